#include "engine/store/index_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/base/error.h"
#include "engine/store/json_text.h"
#include "engine/store/text_stream.h"

namespace engine::store {
namespace {

using nlohmann::json;

// The released index has 497,220 lines of about 120 bytes.
constexpr std::uint64_t kMaxIndexBytes = 512'000'000;

class IndexSax : public nlohmann::json_sax<json> {
 public:
  IndexSax(std::string file, const std::set<std::string>& present, ShardTable& table,
           std::vector<Finding>& findings)
      : file_(std::move(file)),
        present_(present),
        table_(table),
        findings_(findings),
        named_(table.entries.size(), false) {}

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return other(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return other(text); }
  bool binary(json::binary_t&) override { return false; }
  bool number_unsigned(std::uint64_t value) override {
    if (depth_ == 2 && part_ == "metadata" && name_ == "total_size") {
      total_size_ = value;
      return true;
    }
    return other(std::to_string(value));
  }
  bool string(std::string& value) override {
    if (depth_ == 2 && part_ == "weight_map") {
      entry(value);
      return true;
    }
    return other('"' + shortened(value) + '"');
  }
  bool start_object(std::size_t) override {
    if (depth_ == 1 && part_ == "weight_map") has_map_ = true;
    if (depth_ >= 2) other("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    other("an array");
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& value) override {
    if (depth_ == 1) {
      part_ = value;
      if (part_ == "weight_map" && has_map_) report("", "weight_map stands there twice");
    } else if (depth_ == 2) {
      name_ = value;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const json::exception& exception) override {
    findings_.push_back({Severity::kError, file_, "", position > 0 ? position - 1 : 0,
                         "the index is not valid JSON: " + json_reason(exception.what())});
    broken_ = true;
    return false;
  }

  void finish() {
    if (broken_) return;
    if (!has_map_) {
      report("", "has no weight_map");
      return;
    }
    table_.has_index = true;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < table_.entries.size(); ++i) {
      const TensorEntry& entry = table_.entries[i];
      sum += entry.bytes;
      if (named_[i]) continue;
      report(
          std::string(entry.name),
          fmt::format("stands in the header of {}, but not in the index", table_.file_name(entry)));
    }
    const bool whole = table_.broken.empty() && table_.missing.empty();
    if (whole && total_size_ && *total_size_ != sum) {
      findings_.push_back({Severity::kWarning, file_, "", std::nullopt,
                           fmt::format("metadata.total_size is {}, but the tensors take {} bytes",
                                       *total_size_, sum)});
    }
  }

  UnfoundByShard take_unfound() { return std::move(unfound_); }

 private:
  void report(const std::string& tensor, const std::string& message) {
    add(findings_, {Severity::kError, file_, tensor, std::nullopt, message});
  }

  bool other(const std::string& value) {
    if (depth_ == 2 && part_ == "weight_map") {
      report(name_, fmt::format("its file is {}, not a name", value));
    } else if (depth_ == 0 || (depth_ == 1 && part_ == "weight_map")) {
      report("", fmt::format("{} is {}, not an object", depth_ == 0 ? "the index" : part_, value));
    }
    return true;
  }

  void entry(const std::string& shard) {
    if (shard.find('/') != std::string::npos || shard.find('\\') != std::string::npos ||
        shard == "..") {
      report(name_, fmt::format("its file \"{}\" is a path, not a file of this folder: refused",
                                shortened(shard)));
      return;
    }
    const TensorEntry* found = table_.find(name_);
    if (found == nullptr && (!present_.contains(shard) || table_.broken.contains(shard))) {
      if (!present_.contains(shard)) table_.missing.insert(shard);
      table_.lost.insert(name_);
      Unfound& unfound = unfound_[shard];
      if (unfound.count++ == 0) unfound.first = name_;
      return;
    }
    if (found == nullptr) {
      report(name_, fmt::format("is said to be in {}, but no header has it", shortened(shard)));
      return;
    }
    const auto at = static_cast<std::size_t>(found - table_.entries.data());
    if (named_[at]) report(name_, "stands in the index twice");
    named_[at] = true;
    if (const std::string actual = table_.file_name(*found); actual != shard) {
      report(name_, fmt::format("is said to be in {}, but it is in {}", shortened(shard), actual));
    }
  }

  const std::string file_;
  const std::set<std::string>& present_;
  ShardTable& table_;
  std::vector<Finding>& findings_;
  UnfoundByShard unfound_;
  std::vector<bool> named_;  // [entry]
  int depth_ = 0;
  std::string part_;  // the key at depth 1
  std::string name_;  // the key at depth 2
  bool has_map_ = false;
  bool broken_ = false;
  std::optional<std::uint64_t> total_size_;
};

}  // namespace

UnfoundByShard check_index(const std::filesystem::path& path, const std::set<std::string>& present,
                           ShardTable& table, std::vector<Finding>& findings) {
  std::error_code ignored;
  if (std::filesystem::symlink_status(path, ignored).type() ==
      std::filesystem::file_type::not_found) {
    return {};
  }
  try {
    TextStream text(path, kMaxIndexBytes);
    IndexSax sax(path.string(), present, table, findings);
    json::sax_parse(text.begin(), text.end(), &sax);
    sax.finish();
    return sax.take_unfound();
  } catch (const base::Error& error) {
    findings.push_back(finding_of(path.string(), error.what()));
    return {};
  }
}

}  // namespace engine::store
