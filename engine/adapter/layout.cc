#include "engine/adapter/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/sha256.h"

namespace engine::adapter {
namespace {

constexpr std::array<std::pair<std::string_view, Format>, 4> kFormats = {
    {{"peft", Format::kPeft},
     {"peft-per-expert", Format::kPeftPerExpert},
     {"peft-fused", Format::kPeftFused},
     {"gguf", Format::kGguf}}};

// Module paths behind "layers.N." and llama.cpp's names for them (its conversion of K3).
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kLlamaNames = {
    {{"self_attn.q_proj", "attn_q"},
     {"self_attn.v_proj", "attn_v"},
     {"self_attn.q_b_proj", "attn_q_b"},
     {"mlp.gate_proj", "ffn_gate"},
     {"mlp.up_proj", "ffn_up"},
     {"mlp.down_proj", "ffn_down"},
     {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
     {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
     {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"},
     {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
     {"block_sparse_moe.experts.w3", "ffn_up_exps"},
     {"block_sparse_moe.experts.w2", "ffn_down_exps"}}};

constexpr Axis kOnce{1, 0};

// The native matrices as they are: A [r,in], B [out,r].
Walk whole(const Module& module, char matrix, std::int64_t rank) {
  if (matrix == 'A') return walk(kOnce, {rank, module.in}, {module.in, 1});
  return walk(kOnce, {module.out, rank}, {rank, 1});
}

using Use = std::function<void(const Piece&)>;

void peft_pieces(const Layout& layout, const Module& module, std::size_t index, const Use& use) {
  const std::int64_t r = layout.rank, in = module.in, out = module.out, experts = module.experts;
  const auto key = [](const std::string& path, char matrix) {
    return fmt::format("base_model.model.{}.lora_{}.weight", path, matrix);
  };
  const auto pair = [&](const std::string& path) {
    use({key(path, 'A'), {r, in}, index, 'A', whole(module, 'A', r)});
    use({key(path, 'B'), {out, r}, index, 'B', whole(module, 'B', r)});
  };
  if (experts == 0) return pair(module.path());
  if (layout.format == Format::kPeftPerExpert) {
    for (std::int64_t expert = 0; expert < experts; ++expert) pair(module.path(expert));
    return;
  }
  const std::string a = key(module.path(), 'A'), b = key(module.path(), 'B');
  if (layout.format == Format::kPeft) {
    use({a, {1, r, in}, index, 'A', whole(module, 'A', r)});
    use({b, {1, out, r}, index, 'B', whole(module, 'B', r)});
  } else if (layout.fused == FusedInput::kLast) {
    use({a, {experts * r, in}, index, 'A', walk({experts, 0}, {r, in}, {in, 1})});
    use({b, {out, r * experts}, index, 'B', walk({out, r}, {r, 1}, {experts, 0})});
  } else {
    // The change PEFT makes is then transposed; so what it calls A is our B, and the reverse.
    use({a, {experts * r, out}, index, 'B', walk({experts, 0}, {r, 1}, {out, r})});
    use({b, {in, r * experts}, index, 'A', walk({in, 1}, {r, in}, {experts, 0})});
  }
}

// Shapes outermost first; GGUF stores them the other way round.
void gguf_pieces(const Layout& layout, const Module& module, std::size_t index, const Use& use) {
  const std::int64_t r = layout.rank, in = module.in, out = module.out, experts = module.experts;
  if (const auto name = llama_name(module)) {
    const std::string a = *name + ".lora_a", b = *name + ".lora_b";
    if (experts == 0) {
      use({a, {r, in}, index, 'A', whole(module, 'A', r)});
      use({b, {out, r}, index, 'B', whole(module, 'B', r)});
    } else {
      // Its product looks an expert up in both factors: there is no way to say that all share one.
      use({a, {experts, r, in}, index, 'A', walk({experts, 0}, {r, in}, {in, 1})});
      use({b, {experts, out, r}, index, 'B', walk({experts, 0}, {out, r}, {r, 1})});
    }
    return;
  }
  // kv_b_proj, cut by head into a key half, kept transposed, and a value half. B is cut with it; of
  // the key half the factors change places: (B_h A)^T = A^T B_h^T.
  const std::int64_t heads = module.heads, head_rows = out / heads, keys = module.key_rows;
  const std::int64_t values = head_rows - keys;
  const std::string key = fmt::format("blk.{}.attn_k_b.weight", module.layer);
  const std::string value = fmt::format("blk.{}.attn_v_b.weight", module.layer);
  use({key + ".lora_a",
       {heads, r, keys},
       index,
       'B',
       walk({heads, head_rows * r}, {r, 1}, {keys, r})});
  use({key + ".lora_b", {in, r}, index, 'A', walk(kOnce, {in, 1}, {r, in})});
  use({value + ".lora_a", {r, in}, index, 'A', whole(module, 'A', r)});
  use({value + ".lora_b",
       {heads, values, r},
       index,
       'B',
       walk({heads, head_rows * r}, {values, r}, {r, 1}, keys * r)});
}

}  // namespace

std::optional<Format> format_named(std::string_view name) {
  const auto found =
      std::ranges::find_if(kFormats, [&](const auto& entry) { return entry.first == name; });
  return found == kFormats.end() ? std::nullopt : std::optional(found->second);
}

FusedInput fused_input(const std::string& peft_version) {
  std::array<int, 3> part = {0, 0, -1};
  const char* at = peft_version.data();
  const char* const end = at + peft_version.size();
  std::size_t count = 0;
  while (count < part.size()) {
    const auto [next, failed] = std::from_chars(at, end, part[count]);
    if (failed != std::errc() || part[count] < 0) break;
    ++count;
    at = next;
    if (at == end || *at != '.') break;
    ++at;
  }
  if (count < 2 || at != end || (count == 2 && peft_version.back() == '.')) {
    throw base::Error("PEFT version \"{}\": X.Y or X.Y.Z is wanted", peft_version);
  }
  const auto [major, minor, patch] = part;
  if (major == 0 && minor < 17) {
    throw base::Error("PEFT version {}: adapters of fused experts begin with 0.17", peft_version);
  }
  if (major == 0 && minor == 19 && patch < 1) {
    throw base::Error(
        "PEFT version {}: which dimension of a fused parameter is the input changed between 0.18 "
        "and 0.19.1; name one of these, or a later one",
        peft_version);
  }
  return major == 0 && minor < 19 ? FusedInput::kFirst : FusedInput::kLast;
}

void for_pieces(const Layout& layout, std::span<const Module> modules, const Use& use) {
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (layout.format == Format::kGguf) {
      gguf_pieces(layout, modules[i], i, use);
    } else {
      peft_pieces(layout, modules[i], i, use);
    }
  }
}

void KeyDigest::add(std::string_view name, base::Dtype dtype, std::span<const std::int64_t> shape) {
  lines_.push_back(fmt::format("{} {} {}\n", name, base::name_of(dtype), fmt::join(shape, "x")));
}

std::string KeyDigest::sha256() {
  std::ranges::sort(lines_);
  base::Sha256 hash;
  for (const std::string& line : lines_) hash.update(line);
  return hash.hex();
}

std::optional<std::string> llama_name(const Module& module) {
  const std::string path = module.path();
  for (const auto& [tail, name] : kLlamaNames) {
    if (path.ends_with(fmt::format(".layers.{}.{}", module.layer, tail))) {
      return fmt::format("blk.{}.{}.weight", module.layer, name);
    }
  }
  return std::nullopt;
}

}  // namespace engine::adapter
