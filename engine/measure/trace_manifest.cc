#include "engine/measure/trace_manifest.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/file.h"
#include "engine/store/json_text.h"

namespace engine::measure {
namespace {

using base::Error;
using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "lazylora trace 1";
// A million ids are seven million bytes.
constexpr std::uint64_t kMaxManifestBytes = 64'000'000;
// Ours, and those of LazyLoRA's runs, which their export keeps. Any text would be words that an
// export lets through.
constexpr std::string_view kComputeTypes[] = {"float32", "torch.float32", "torch.bfloat16",
                                              "torch.float16"};

std::string shown(const Json& value) {
  return store::shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json parse(const std::string& text, const std::string& where) {
  store::require_strict_json(text, where);
  return Json::parse(text);
}

// An object of the file, with the way to it for messages.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw Error("{}: is {}, not an object", where_, shown(json));
  }

  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& at(const char* key) const {
    const Json* found = find(key);
    if (found == nullptr) throw Error("{}: has no {}", where_, key);
    return *found;
  }
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) const {
    const Json& value = at(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <=
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
      throw Error("{}: {} is {}, not an integer of {} ... {}", where_, key, shown(value), least,
                  most);
    }
    return value.get<std::int64_t>();
  }
  bool boolean(const char* key) const {
    if (!at(key).is_boolean()) refuse(key, "true or false");
    return at(key).get<bool>();
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) refuse(key, "a text");
    return at(key).get<std::string>();
  }
  // null is the empty text.
  std::string digest(const char* key) const {
    if (at(key).is_null()) return "";
    const std::string digits = text(key);
    if (digits.size() != 64 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
      refuse(key, "64 hex digits or null");
    }
    return digits;
  }
  template <class Visit>
  void list(const char* key, const Visit& visit) const {
    if (!at(key).is_array()) refuse(key, "a list");
    for (std::size_t i = 0; i < at(key).size(); ++i) {
      visit(at(key)[i], fmt::format("{}: {}[{}]", where_, key, i));
    }
  }
  void allow(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        throw Error("{}: unknown field \"{}\" ({})", where_, store::shortened(key), shown(value));
      }
    }
  }
  [[noreturn]] void refuse(const char* key, const char* wanted) const {
    throw Error("{}: {} is {}, not {}", where_, key, shown(at(key)), wanted);
  }

 private:
  const Json& json_;
  std::string where_;
};

constexpr std::int64_t kMany = std::numeric_limits<std::int32_t>::max();

std::vector<TracedLayer> read_layers(const Object& root, bool ours) {
  std::vector<TracedLayer> layers;
  root.list("layers", [&](const Json& row, const std::string& where) {
    const Object object(row, where);
    if (ours) object.allow({"layer", "n", "k", "unique_experts", "is_kda"});
    layers.push_back({object.integer("layer", 0, kMany), object.integer("n", 1, kMany),
                      object.integer("k", 1, kMaxExperts),
                      object.integer("unique_experts", 1, kMaxExperts), object.boolean("is_kda")});
  });
  return layers;
}

std::vector<std::int32_t> read_ids(const Object& root) {
  std::vector<std::int32_t> ids;
  root.list("ids", [&](const Json& id, const std::string& where) {
    if (!id.is_number_integer() || id < 0 || id > kMany) {
      throw Error("{}: is {}, not an id of 0 ... {}", where, shown(id), kMany);
    }
    ids.push_back(id.get<std::int32_t>());
  });
  return ids;
}

void require_equal(const std::string& where, const char* what, std::int64_t got,
                   std::int64_t want) {
  if (got != want) throw Error("{}: {} {}, n_tokens {}", where, what, got, want);
}

// Ids are those whose digests the documents give.
void require_ids(const TraceManifest& manifest, const std::string& where) {
  if (manifest.ids.empty()) return;
  require_equal(where, "ids", static_cast<std::int64_t>(manifest.ids.size()), manifest.tokens());
  auto next = manifest.ids.begin();
  for (std::size_t d = 0; d < manifest.documents.size(); ++d) {
    const TracedDocument& document = manifest.documents[d];
    const std::string digest = ids_digest({next, next + document.tokens});
    if (digest != document.ids_sha256) {
      throw Error("{}: documents[{}]: ids_sha256 {}, that of its ids is {}", where, d,
                  document.ids_sha256, digest);
    }
    next += document.tokens;
  }
}

void read_ours(const Object& root, const std::string& where, TraceManifest& manifest) {
  root.allow({"format", "tag", "experts", "n_tokens", "layers_requested", "compute_dtype",
              "config_sha256", "headers_sha256", "adapter_sha256", "text_sha256", "loss",
              "documents", "ids", "layers", "files"});
  if (root.text("format") != kFormat) {
    throw Error("{}: format is \"{}\", not \"{}\"", where, store::shortened(root.text("format")),
                kFormat);
  }
  manifest.tag = root.at("tag").is_null() ? "" : root.text("tag");
  if (!root.at("experts").is_null()) manifest.experts = root.integer("experts", 1, kMaxExperts);
  manifest.config_sha256 = root.digest("config_sha256");
  manifest.headers_sha256 = root.digest("headers_sha256");
  manifest.adapter_sha256 = root.digest("adapter_sha256");
  manifest.text_sha256 = root.digest("text_sha256");
  const Json& loss = root.at("loss");
  if (!loss.is_null() && !loss.is_number()) root.refuse("loss", "a number or null");
  if (loss.is_number()) manifest.loss = loss.get<double>();
  root.list("documents", [&](const Json& row, const std::string& place) {
    const Object object(row, place);
    object.allow({"n_tokens", "ids_sha256"});
    manifest.documents.push_back(
        {object.integer("n_tokens", 1, kMany), object.digest("ids_sha256")});
  });
  require_equal(where, "tokens of all documents", manifest.tokens(),
                root.integer("n_tokens", 1, kMany));
  if (!root.at("ids").is_null()) manifest.ids = read_ids(root);
  const Object files(root.at("files"), where + ": files");
  files.allow({kTraceFile, kTraceHdf5});
  for (const char* name : {kTraceFile, kTraceHdf5}) {
    if (files.find(name) == nullptr) continue;
    const Object file(files.at(name), fmt::format("{}: files: {}", where, name));
    file.allow({"bytes", "sha256"});
    manifest.files[name] = {static_cast<std::uint64_t>(
                                file.integer("bytes", 0, std::numeric_limits<std::int64_t>::max())),
                            file.digest("sha256")};
  }
  if (!manifest.files.contains(kTraceFile)) throw Error("{}: files: has no {}", where, kTraceFile);
}

// One text; its digests are made here, so that what was read can be passed on without it.
void read_theirs(const Object& root, TraceManifest& manifest) {
  if (root.find("tag") != nullptr) manifest.tag = root.text("tag");
  if (root.find("text") != nullptr) manifest.text_sha256 = base::sha256_hex(root.text("text"));
  if (root.find("ids") != nullptr) manifest.ids = read_ids(root);
  manifest.documents = {
      {root.integer("n_tokens", 1, kMany), manifest.ids.empty() ? "" : ids_digest(manifest.ids)}};
}

std::string read_compute_dtype(const Object& root) {
  const std::string type = root.text("compute_dtype");
  if (std::ranges::find(kComputeTypes, type) == std::end(kComputeTypes)) {
    root.refuse("compute_dtype", fmt::format("one of {}", fmt::join(kComputeTypes, ", ")).c_str());
  }
  return type;
}

// A run of n layers has layers 0 ... n - 1.
void require_requested(const TraceManifest& manifest, const std::string& where) {
  for (std::size_t i = 0; i < manifest.layers.size(); ++i) {
    if (manifest.layers[i].layer < manifest.layers_requested) continue;
    throw Error("{}: layers[{}]: layer {}, layers_requested is {}: 0 ... {}", where, i,
                manifest.layers[i].layer, manifest.layers_requested, manifest.layers_requested - 1);
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

std::int64_t TraceManifest::tokens() const {
  std::int64_t sum = 0;
  for (const TracedDocument& document : documents) sum += document.tokens;
  return sum;
}

std::string ids_digest(const std::vector<std::int32_t>& ids) {
  base::Sha256 hash;
  hash.update_values(std::span<const std::int32_t>(ids));
  return hash.hex();
}

std::string to_json(const TraceManifest& manifest) {
  Json documents = Json::array(), layers = Json::array(), files = Json::object();
  for (const TracedDocument& document : manifest.documents) {
    documents.push_back(
        {{"n_tokens", document.tokens}, {"ids_sha256", text_or_null(document.ids_sha256)}});
  }
  for (const TracedLayer& row : manifest.layers) {
    layers.push_back({{"layer", row.layer},
                      {"n", row.tokens},
                      {"k", row.chosen},
                      {"unique_experts", row.distinct},
                      {"is_kda", row.is_kda}});
  }
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"sha256", file.sha256}};
  }
  const Json json = {
      {"format", kFormat},
      {"tag", text_or_null(manifest.tag)},
      {"experts", manifest.experts > 0 ? Json(manifest.experts) : Json(nullptr)},
      {"n_tokens", manifest.tokens()},
      {"layers_requested", manifest.layers_requested},
      {"compute_dtype", manifest.compute_dtype},
      {"config_sha256", text_or_null(manifest.config_sha256)},
      {"headers_sha256", text_or_null(manifest.headers_sha256)},
      {"adapter_sha256", text_or_null(manifest.adapter_sha256)},
      {"text_sha256", text_or_null(manifest.text_sha256)},
      {"loss", manifest.loss ? Json(*manifest.loss) : Json(nullptr)},
      {"documents", documents},
      {"ids", manifest.ids.empty() ? Json(nullptr) : Json(manifest.ids)},
      {"layers", layers},
      {"files", files},
  };
  try {
    return json.dump(1) + "\n";
  } catch (const Json::exception& error) {  // a tag that is not UTF-8
    throw Error("{}: {}", kTraceManifest, store::json_reason(error.what()));
  }
}

TraceManifest read_trace_manifest(const std::filesystem::path& path) {
  const std::string where = path.string();
  const Json json = parse(store::read_text(path, kMaxManifestBytes), where);
  const Object root(json, where);
  const bool ours = root.find("format") != nullptr;
  TraceManifest manifest;
  manifest.layers_requested = root.integer("layers_requested", 1, kMany);
  manifest.compute_dtype = read_compute_dtype(root);
  manifest.layers = read_layers(root, ours);
  require_requested(manifest, where);
  if (ours) {
    read_ours(root, where, manifest);
  } else {
    read_theirs(root, manifest);
  }
  require_ids(manifest, where);
  return manifest;
}

}  // namespace engine::measure
