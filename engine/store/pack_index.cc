#include "engine/store/pack_index.h"

#include <fmt/format.h>

#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/store/durable.h"
#include "engine/store/json_text.h"

namespace engine::store {
namespace {

using base::Error;
using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "lazylora pack 1";
// The released model's has 2,500 rows of about 300 bytes.
constexpr std::uint64_t kMaxIndexBytes = 8 << 20;

Json json_of(const PackIndex::Shard& shard) {
  return {{"file", shard.file}, {"bytes", shard.bytes}, {"header_sha256", shard.header_sha256}};
}

Json json_of(const PackIndex::Tensor& tensor) {
  return {{"name", tensor.name},     {"dtype", base::name_of(tensor.dtype)},
          {"shape", tensor.shape},   {"shard", tensor.shard},
          {"offset", tensor.offset}, {"sha256", tensor.sha256}};
}

// A file name may hold any bytes; JSON holds UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class Rows>
std::string lines_of(const Rows& rows) {
  std::string text;
  for (const auto& row : rows) text += (text.empty() ? "\n" : ",\n") + text_of(json_of(row));
  return text;
}

// An object with these fields and no others.
class Fields {
 public:
  Fields(const Json& json, std::initializer_list<const char*> names, std::string where)
      : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw Error("{}: is {}, not an object", where_, json.type_name());
    for (const char* name : names) {
      if (!json.contains(name)) throw Error("{}: has no {}", where_, name);
    }
    if (json.size() != names.size()) {
      throw Error("{}: has {} fields, not {}", where_, json.size(), names.size());
    }
  }
  const std::string& text(const char* name) const {
    return require(name, json_[name].is_string(), "a string")
        .template get_ref<const std::string&>();
  }
  std::uint64_t number(const char* name) const { return number(name, json_[name]); }
  std::vector<std::int64_t> extents(const char* name) const {
    std::vector<std::int64_t> values;
    for (const Json& value : list(name)) {
      const std::uint64_t extent = number(name, value);
      if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        throw Error("{}: {} has {}, more than any tensor", where_, name, extent);
      }
      values.push_back(static_cast<std::int64_t>(extent));
    }
    return values;
  }
  const Json& list(const char* name) const {
    return require(name, json_[name].is_array(), "a list");
  }
  base::Dtype dtype(const char* name) const {
    const auto found = base::dtype_named(text(name));
    if (!found) throw Error("{}: {} is \"{}\"", where_, name, shortened(text(name)));
    return *found;
  }

 private:
  const Json& require(const char* name, bool holds, const char* wanted) const {
    if (holds) return json_[name];
    throw Error("{}: {} is {}, not {}", where_, name, json_[name].type_name(), wanted);
  }
  std::uint64_t number(const char* name, const Json& value) const {
    if (value.is_number_unsigned()) return value.get<std::uint64_t>();
    throw Error("{}: {} is {}, not a whole number", where_, name, shortened(text_of(value)));
  }

  const Json& json_;
  const std::string where_;
};

PackIndex::Shard read_shard(const Json& json, const std::string& where) {
  const Fields fields(json, {"file", "bytes", "header_sha256"}, where);
  return {fields.text("file"), fields.number("bytes"), fields.text("header_sha256")};
}

}  // namespace

std::vector<PackIndex::Shard> shards_of(const ShardReader& reader) {
  std::vector<PackIndex::Shard> shards;
  for (std::size_t i = 0; i < reader.files().size(); ++i) {
    const File& file = reader.files()[i];
    shards.push_back({file.path().filename().string(), file.size(),
                      reader.header_sha256(static_cast<std::int32_t>(i))});
  }
  return shards;
}

void write_pack_index(const std::filesystem::path& path, const PackIndex& index) {
  write_file_durably(path,
                     fmt::format("{{\"format\": \"{}\",\n\"config_sha256\": \"{}\",\n"
                                 "\"checkpoint\": [{}\n],\n\"copy\": {},\n\"tensors\": [{}\n]}}\n",
                                 kFormat, index.config_sha256, lines_of(index.checkpoint),
                                 text_of(json_of(index.copy)), lines_of(index.tensors)));
}

PackIndex read_pack_index(const std::filesystem::path& path) {
  const std::string file = path.string();
  const std::string text = read_text(path, kMaxIndexBytes);
  require_strict_json(text, file);
  const Json json = Json::parse(text);
  const Fields fields(json, {"format", "config_sha256", "checkpoint", "copy", "tensors"}, file);
  if (fields.text("format") != kFormat) {
    throw Error("{}: format is \"{}\", not \"{}\"", file, shortened(fields.text("format")),
                kFormat);
  }
  PackIndex index;
  index.config_sha256 = fields.text("config_sha256");
  for (const Json& row : fields.list("checkpoint")) {
    index.checkpoint.push_back(read_shard(row, file + ": a row of checkpoint"));
  }
  index.copy = read_shard(json["copy"], file + ": copy");
  for (const Json& row : fields.list("tensors")) {
    const Fields tensor(row, {"name", "dtype", "shape", "shard", "offset", "sha256"},
                        file + ": a row of tensors");
    index.tensors.push_back({tensor.text("name"), tensor.dtype("dtype"), tensor.extents("shape"),
                             tensor.text("shard"), tensor.number("offset"), tensor.text("sha256")});
  }
  return index;
}

}  // namespace engine::store
