#include <fmt/ranges.h>

#include <cmath>

#include "engine/adapter/exported_tensors.h"
#include "engine/adapter/gguf.h"
#include "engine/base/error.h"

namespace engine::adapter {
namespace {

using base::Error;

// What llama.cpp's loader asks of an adapter file (llama_adapter_lora_init): the keys below; names
// BASE.lora_a and BASE.lora_b, both of them, BASE being a tensor of the model; in the innermost-first
// extents ne, a.ne[0] = base.ne[0], b.ne[1] = base.ne[1], a.ne[1] = b.ne[0].
template <class T>
T key(const GgufHeader& header, const std::string& name, const std::string& file) {
  const auto found = header.keys.find(name);
  if (found == header.keys.end()) throw Error("{}: there is no key {}", file, name);
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  throw Error("{}: key {} is of another type", file, name);
}

void require_text(const GgufHeader& header, const std::string& name, const std::string& wanted,
                  const std::string& file) {
  const auto value = key<std::string>(header, name, file);
  if (value != wanted) {
    throw Error("{}: {} is \"{}\", \"{}\" is wanted", file, name, value, wanted);
  }
}

// The model's tensors that may be adapted, as llama.cpp's kimi-k3 has them.
struct Place {
  std::size_t module = 0;
  enum { kWhole, kKeyHalf, kValueHalf } half = kWhole;
};
std::map<std::string, Place> places_of(std::span<const Module> modules) {
  std::map<std::string, Place> places;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (const auto name = llama_name(modules[i])) {
      places[*name] = {i, Place::kWhole};
    } else {
      places[fmt::format("blk.{}.attn_k_b.weight", modules[i].layer)] = {i, Place::kKeyHalf};
      places[fmt::format("blk.{}.attn_v_b.weight", modules[i].layer)] = {i, Place::kValueHalf};
    }
  }
  return places;
}

// Extents of the frozen tensor, outermost first, as the model file has it.
std::vector<std::int64_t> base_shape(const Module& module, const Place& place) {
  if (module.experts > 0) return {module.experts, module.out, module.in};
  const std::int64_t head_rows = module.heads > 0 ? module.out / module.heads : 0;
  if (place.half == Place::kKeyHalf) return {module.heads, module.in, module.key_rows};
  if (place.half == Place::kValueHalf) {
    return {module.heads, head_rows - module.key_rows, module.in};
  }
  return {module.out, module.in};
}

// Where row `o` of the frozen tensor's change, column `i`, comes from:
//   delta[g][o][i] = sum_r b[g][o][r] a[g][r][i],
// g an expert or a head, and a or b the same for all g if it has no such axis.
void understand(const FoundTensor& tensor, const Module& module, const Place& place, bool is_a,
                std::int64_t rank, const std::string& file, Part& part) {
  const std::vector<std::int64_t> base = base_shape(module, place);
  const std::int64_t cols = base.back(), rows = base[base.size() - 2];
  const std::int64_t groups = base.size() == 3 ? base[0] : 1;
  // Of heads, the factor on the side of the kv latent is one for all of them.
  const bool shared = module.heads > 0 && (is_a == (place.half == Place::kValueHalf));
  std::vector<std::int64_t> shape = is_a ? std::vector{rank, cols} : std::vector{rows, rank};
  if (base.size() == 3 && !shared) shape.insert(shape.begin(), groups);
  require_shape(file, tensor, shape);

  const std::int64_t n = groups, r = rank;
  const std::int64_t head_values = module.heads > 0 ? module.out / module.heads * r : 0;
  if (place.half == Place::kKeyHalf) {
    // The frozen tensor is the transpose of the key rows: a holds B's rows, b holds A.
    part.matrix = is_a ? 'B' : 'A';
    part.walk =
        is_a ? walk({n, head_values}, {r, 1}, {cols, r}) : walk({1, 0}, {rows, 1}, {r, module.in});
  } else if (place.half == Place::kValueHalf) {
    part.matrix = is_a ? 'A' : 'B';
    part.walk = is_a ? walk({1, 0}, {r, cols}, {cols, 1})
                     : walk({n, head_values}, {rows, r}, {r, 1}, module.key_rows * r);
  } else {
    part.matrix = is_a ? 'A' : 'B';
    part.walk = is_a ? walk({n, 0}, {r, cols}, {cols, 1}) : walk({n, 0}, {rows, r}, {r, 1});
  }
}

}  // namespace

Exported open_gguf(const std::filesystem::path& path, const Base& base) {
  const store::File file(path);
  Exported exported;
  exported.format = Format::kGguf;
  exported.file = path.string();
  const GgufHeader header = read_gguf(file);
  require_text(header, "general.type", "adapter", exported.file);
  require_text(header, "general.architecture", "kimi-k3", exported.file);
  require_text(header, "adapter.type", "lora", exported.file);
  const auto alpha = key<float>(header, "adapter.lora.alpha", exported.file);
  if (!(alpha > 0.0f) || !std::isfinite(alpha)) {
    throw Error("{}: adapter.lora.alpha is {}; 0 would be taken for a scale of 1", exported.file,
                alpha);
  }
  if (header.tensors.empty()) throw Error("{}: an adapter without tensors", exported.file);

  const std::map<std::string, Place> places = places_of(base.modules);
  Coverage coverage(base.modules);
  KeyDigest keys;
  exported.dtype = header.tensors[0].dtype;
  for (const GgufTensor& tensor : header.tensors) {
    const bool is_a = tensor.name.ends_with(".lora_a");
    if (!is_a && !tensor.name.ends_with(".lora_b")) {
      throw Error("{}: tensor {} ends neither in .lora_a nor in .lora_b", exported.file,
                  tensor.name);
    }
    const auto place = places.find(tensor.name.substr(0, tensor.name.size() - 7));
    if (place == places.end()) {
      throw Error("{}: tensor {} is for no tensor of the model", exported.file, tensor.name);
    }
    if (tensor.dtype != exported.dtype) {
      throw Error("{}: tensor {} is {}, the first one {}", exported.file, tensor.name,
                  base::name_of(tensor.dtype), base::name_of(exported.dtype));
    }
    // The first tensor says the rank: b's innermost extent, a's next to innermost.
    const std::size_t axes = tensor.shape.size();
    if (axes < 2) throw Error("{}: tensor {} is no matrix", exported.file, tensor.name);
    if (exported.rank == 0) exported.rank = tensor.shape[is_a ? axes - 2 : axes - 1];
    Part part;
    part.name = tensor.name;
    part.module = place->second.module;
    part.offset = tensor.offset;
    const FoundTensor found{tensor.name, tensor.shape, tensor.dtype, tensor.offset};
    understand(found, base.modules[part.module], place->second, is_a, exported.rank, exported.file,
               part);
    const bool value_half = place->second.half == Place::kValueHalf;
    coverage.tick(part.module, is_a ? (value_half ? 'a' : 'A') : (value_half ? 'b' : 'B'), -1);
    keys.add(tensor.name, tensor.dtype, tensor.shape);
    exported.parts.push_back(std::move(part));
  }
  exported.targets = coverage.complete(exported.file, true);
  exported.alpha = alpha;
  exported.scale = alpha / static_cast<float>(exported.rank);
  exported.keys = keys.count();
  exported.keys_sha256 = keys.sha256();
  return exported;
}

}  // namespace engine::adapter
