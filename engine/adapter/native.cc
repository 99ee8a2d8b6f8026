#include "engine/adapter/native.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/store/safetensors_header.h"
#include "engine/store/safetensors_writer.h"

namespace engine::adapter {

namespace {

using base::Error;

constexpr const char* kOwnKeys[] = {"r", "alpha", "targets"};

struct NameParts {
  std::string_view stem;    // all but the last letter
  std::string_view target;  // between the layer and ".lora_"
  bool is_a = false;
};

// layers.{n}.{target}.lora_{A,B}, n without leading zeros: one adapter, one name.
std::optional<NameParts> parse_name(std::string_view name) {
  const std::string_view whole = name;
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0 || (digits > 1 && name[0] == '0')) return std::nullopt;
  name.remove_prefix(digits);
  const bool is_a = name.ends_with(".lora_A");
  if (!name.starts_with('.') || !(is_a || name.ends_with(".lora_B"))) return std::nullopt;
  name.remove_prefix(1);
  if (name.size() <= 7) return std::nullopt;
  const std::string_view target = name.substr(0, name.size() - 7);
  if (target.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != std::string_view::npos) {
    return std::nullopt;
  }
  return NameParts{whole.substr(0, whole.size() - 1), target, is_a};
}

template <class T>
T positive_number(const std::map<std::string, std::string>& metadata, const std::string& key,
                  const std::string& file) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) throw Error("{}: metadata has no \"{}\"", file, key);
  const std::string& text = found->second;
  T value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || !(value > 0) ||
      !std::isfinite(static_cast<double>(value))) {
    throw Error("{}: metadata \"{}\" is \"{}\", not a positive number", file, key, text);
  }
  return value;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// read_header() has found the header to be sound; this is its "__metadata__".
std::map<std::string, std::string> metadata_of(const store::File& file) {
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  std::string text(length, '\0');
  file.read(sizeof(length), std::as_writable_bytes(std::span(text)));
  const nlohmann::json header = nlohmann::json::parse(text);
  return header.value("__metadata__", std::map<std::string, std::string>{});
}

void check_shape(const NativeTensor& tensor, const NameParts& parts, std::int64_t rank,
                 const std::string& file) {
  const std::size_t at = parts.is_a ? 0 : 1;
  if (tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] < 1 ||
      tensor.shape[at] != rank) {
    throw Error("{}: tensor {} has shape [{}], [{}] is wanted by r {}", file, tensor.name,
                fmt::join(tensor.shape, ","),
                parts.is_a ? fmt::format("{},in", rank) : fmt::format("out,{}", rank), rank);
  }
}

// Names, shapes and pairs; takes the targets from the names where none are listed.
void check_tensors(NativeOutline& adapter, const std::string& file) {
  const bool listed = !adapter.targets.empty();
  for (const NativeTensor& tensor : adapter.tensors) {
    const auto parts = parse_name(tensor.name);
    if (!parts) {
      throw Error("{}: tensor {} is not named layers.N.TARGET.lora_A or .lora_B", file,
                  tensor.name);
    }
    check_shape(tensor, *parts, adapter.rank, file);
    const std::string other = std::string(parts->stem) + (parts->is_a ? 'B' : 'A');
    if (adapter.find(other) == nullptr) {
      throw Error("{}: there is {}, but no {}", file, tensor.name, other);
    }
    if (std::ranges::find(adapter.targets, parts->target) != adapter.targets.end()) continue;
    if (listed) {
      throw Error("{}: tensor {} is of no target in \"{}\"", file, tensor.name,
                  fmt::join(adapter.targets, ","));
    }
    adapter.targets.emplace_back(parts->target);
  }
}

}  // namespace

void write_native_adapter(const std::filesystem::path& path, std::span<const NativeTensor> tensors,
                          const NativeMetadata& metadata,
                          const std::function<void(std::size_t)>& written) {
  std::map<std::string, std::string> keys = metadata.more;
  for (const char* key : kOwnKeys) assert(!keys.contains(key));
  keys["r"] = fmt::format("{}", metadata.rank);
  keys["alpha"] = fmt::format("{}", metadata.alpha);
  keys["targets"] = fmt::format("{}", fmt::join(metadata.targets, ","));
  std::vector<store::TensorSpec> specs;
  for (const NativeTensor& tensor : tensors) {
    specs.push_back({tensor.name, base::Dtype::kF32, tensor.shape});
  }
  store::SafetensorsWriter writer(path, std::move(specs), keys);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    writer.write(tensors[i].name, std::as_bytes(tensors[i].values));
    if (written) written(i);
  }
  writer.finish();
}

const NativeTensor* NativeOutline::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &NativeTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

void require_finite(const std::string& file, const std::string& tensor, std::int64_t first,
                    std::span<const float> values) {
  const auto wrong = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (wrong == values.end()) return;
  throw Error("{}: tensor {}: element {} is {}, not finite", file, tensor,
              first + (wrong - values.begin()), *wrong);
}

bool is_native_adapter(const std::filesystem::path& path) {
  const store::File file(path);
  std::vector<store::Finding> findings;
  store::read_header(file, findings);
  return findings.empty() && metadata_of(file).contains("r");
}

NativeFile::NativeFile(const std::filesystem::path& path) : file_(path) {
  const std::string where = path.string();
  std::vector<store::Finding> findings;
  const store::ShardHeader header = store::read_header(file_, findings);
  store::throw_first_error(findings);
  if (header.tensors.empty()) throw Error("{}: an adapter without tensors", where);

  outline_.more = metadata_of(file_);
  outline_.rank = positive_number<std::int64_t>(outline_.more, "r", where);
  outline_.alpha = positive_number<double>(outline_.more, "alpha", where);
  if (const auto list = outline_.more.find("targets"); list != outline_.more.end()) {
    outline_.targets = split(list->second);
  }
  for (const char* key : kOwnKeys) outline_.more.erase(key);
  for (const store::CheckedTensor& tensor : header.tensors) {
    if (tensor.dtype != base::Dtype::kF32) {
      throw Error("{}: tensor {} is {}, adapters are F32", where, tensor.name, tensor.dtype_name);
    }
    outline_.tensors.push_back({tensor.name, tensor.shape, {}});
    offsets_.push_back(tensor.offset);
  }
  check_tensors(outline_, where);
}

void NativeFile::read(const NativeTensor& tensor, std::span<float> values) const {
  file_.read(offsets_[static_cast<std::size_t>(&tensor - outline_.tensors.data())],
             std::as_writable_bytes(values));
  require_finite(file_.path().string(), tensor.name, 0, values);
}

NativeAdapter read_native_adapter(const std::filesystem::path& path) {
  const NativeFile file(path);
  NativeAdapter adapter;
  static_cast<NativeOutline&>(adapter) = file.outline();
  const auto size = [](const NativeTensor& tensor) {  // of two extents, see check_shape
    return static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]);
  };
  std::size_t all = 0;
  for (const NativeTensor& tensor : adapter.tensors) all += size(tensor);
  adapter.storage.resize(all);
  std::span<float> left(adapter.storage);
  for (std::size_t i = 0; i < adapter.tensors.size(); ++i) {
    const std::span<float> values = left.first(size(adapter.tensors[i]));
    left = left.subspan(values.size());
    file.read(file.outline().tensors[i], values);
    adapter.tensors[i].values = values;
  }
  return adapter;
}

}  // namespace engine::adapter
