#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/adapter/module.h"
#include "engine/adapter/walk.h"
#include "engine/base/dtype.h"

namespace engine::adapter {

// The forms in which an adapter leaves (docs/adapters.md).
enum class Format : std::uint8_t {
  kPeft,           // experts' shared adapter once, [1,r,in] and [1,out,r]
  kPeftPerExpert,  // the same pair under every expert
  kPeftFused,      // all experts in one matrix, for a model whose experts are 3-D parameters
  kGguf,           // for llama.cpp
};
// Nothing for another word.
std::optional<Format> format_named(std::string_view name);

// Of a fused parameter [experts, d1, d2], PEFT 0.17 and 0.18 take d1 for the input, 0.19.1 and
// later d2. The parameter itself is [experts, out, in] for both.
enum class FusedInput : std::uint8_t { kFirst, kLast };
// Errors    Error for what is no version, for one before 0.17 (no fused form), and for 0.19 and
//           0.19.0, which lie between the two meanings
FusedInput fused_input(const std::string& peft_version);

// One tensor of an exported file.
struct Piece {
  std::string name;
  std::vector<std::int64_t> shape;  // outermost first
  std::size_t module = 0;           // index
  char matrix = 'A';                // which native matrix holds its values ...
  Walk walk;                        // ... and where
};

struct Layout {
  Format format = Format::kPeft;
  FusedInput fused = FusedInput::kLast;  // kPeftFused only
  std::int64_t rank = 0;
};

// All tensors of the export, in the file's order. One at a time: expanded for every expert of the
// released model they are half a million.
void for_pieces(const Layout& layout, std::span<const Module> modules,
                const std::function<void(const Piece&)>& use);

// Keys of a file as a loader finds them, for a digest that shows whether it used them all.
class KeyDigest {
 public:
  void add(std::string_view name, base::Dtype dtype, std::span<const std::int64_t> shape);
  std::size_t count() const { return lines_.size(); }
  // SHA-256 of the lines "NAME DTYPE AxBxC\n" in bytewise order.
  std::string sha256();

 private:
  std::vector<std::string> lines_;
};

// llama.cpp's name of the frozen tensor: "blk.7.attn_q.weight". Nothing for a module that its
// kimi-k3 architecture holds in another form (kv_b_proj: as attn_k_b and attn_v_b).
std::optional<std::string> llama_name(const Module& module);

}  // namespace engine::adapter
