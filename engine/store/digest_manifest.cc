#include "engine/store/digest_manifest.h"

#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/store/json_text.h"
#include "engine/store/text_stream.h"

namespace engine::store {
namespace {

using base::Error;
using nlohmann::json;

// The released model's manifest has 497,220 lines of about 250 bytes.
constexpr std::uint64_t kMaxManifestBytes = 1'000'000'000;

// {"format": ..., "config_sha256": ..., "shards": [{...}, ...], "tensors": [{...}, ...]}
class ManifestSax : public nlohmann::json_sax<json> {
 public:
  using Row = std::function<void(const ManifestRow&)>;
  ManifestSax(std::string file, const Row& shard, const Row& tensor)
      : file_(std::move(file)), shard_(shard), tensor_(tensor) {}

  std::string config_sha256;

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_integer(std::int64_t value) override { refuse(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { refuse(text); }
  bool binary(json::binary_t&) override { refuse("binary"); }
  bool number_unsigned(std::uint64_t value) override {
    if (!in_row_ || (key_ != "offset" && key_ != "bytes")) refuse(std::to_string(value));
    (key_ == "offset" ? row_.offset : row_.bytes) = value;
    return true;
  }
  bool string(std::string& value) override {
    if (depth_ == 1 && key_ == "format") {
      if (value != kManifestFormat) {
        throw Error("{}: format is \"{}\", not \"{}\"", file_, shortened(value), kManifestFormat);
      }
    } else if (depth_ == 1 && key_ == "config_sha256") {
      config_sha256 = value;
    } else if (in_row_ && key_ == "name") {
      row_.name = value;
    } else if (in_row_ && key_ == (in_tensors_ ? "shard" : "file")) {
      row_.file = value;
    } else if (in_row_ && key_ == (in_tensors_ ? "sha256" : "header_sha256")) {
      row_.sha256 = value;
    } else {
      refuse('"' + shortened(value) + '"');
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ != 0 && depth_ != 2) refuse("an object");
    in_row_ = depth_ == 2;
    row_ = {};
    keys_.clear();
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (in_row_) {
      const std::size_t fields = in_tensors_ ? 5 : 3;
      if (keys_.size() != fields) {
        throw Error("{}: a row of {} has {} fields, not {}", file_, part_, keys_.size(), fields);
      }
      (in_tensors_ ? tensor_ : shard_)(row_);
    }
    in_row_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 1 || (part_ != "shards" && part_ != "tensors")) refuse("an array");
    in_tensors_ = part_ == "tensors";
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& value) override {
    key_ = value;
    if (depth_ == 1) part_ = value;
    if (!(depth_ == 1 ? parts_ : keys_).insert(value).second) {
      throw Error("{}: the key \"{}\" stands twice in one object", file_, shortened(value));
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const json::exception& exception) override {
    throw Error("{}: at byte {}: not valid JSON: {}", file_, position > 0 ? position - 1 : 0,
                json_reason(exception.what()));
  }

  void finish() const {
    for (const char* part : {"format", "config_sha256", "shards", "tensors"}) {
      if (!parts_.contains(part)) throw Error("{}: has no {}", file_, part);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& value) const {
    throw Error("{}: {} does not belong at \"{}\"", file_, value, shortened(key_));
  }

  const std::string file_;
  const Row& shard_;
  const Row& tensor_;
  int depth_ = 0;
  bool in_row_ = false;
  bool in_tensors_ = false;
  std::string part_;
  std::string key_;
  ManifestRow row_;
  std::set<std::string> parts_;
  std::set<std::string> keys_;
};

}  // namespace

std::string read_manifest(const std::filesystem::path& path,
                          const std::function<void(const ManifestRow&)>& shard,
                          const std::function<void(const ManifestRow&)>& tensor) {
  TextStream text(path, kMaxManifestBytes);
  ManifestSax sax(path.string(), shard, tensor);
  json::sax_parse(text.begin(), text.end(), &sax);
  sax.finish();
  return sax.config_sha256;
}

}  // namespace engine::store
