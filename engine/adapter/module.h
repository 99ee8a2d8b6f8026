#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace engine::adapter {

// What a native adapter changes: one frozen matrix of the checkpoint, or, of routed experts, the
// matrices of one kind of all experts of a layer, which share an adapter.
struct Module {
  std::int64_t layer = 0;
  std::string target;         // native: "expert_gate"
  std::string parent;         // "language_model.model.layers.7.block_sparse_moe.experts"
  std::string leaf;           // "w1"
  std::int64_t in = 0;        // columns of the frozen matrix
  std::int64_t out = 0;       // rows
  std::int64_t experts = 0;   // 0: not routed
  std::int64_t heads = 0;     // of kv_b_proj: its rows are, head by head, ...
  std::int64_t key_rows = 0;  // ... so many for the key, then the rest for the value

  // Matrices of the checkpoint that it stands for.
  std::int64_t matrices() const { return experts > 0 ? experts : 1; }
  // "layers.7.expert_gate.lora_A"
  std::string native(char matrix) const;
  // In the checkpoint: PARENT.LEAF, of one expert PARENT.E.LEAF.
  std::string path() const { return parent + '.' + leaf; }
  std::string path(std::int64_t expert) const;
};

// Modules by their path.
class ModuleIndex {
 public:
  explicit ModuleIndex(std::span<const Module> modules);

  struct Place {
    std::size_t module = 0;
    std::int64_t expert = -1;  // -1: not routed, or all experts
  };
  // Nothing if there is no such module. An expert's number has no leading zeros.
  std::optional<Place> find(std::string_view path) const;

 private:
  std::span<const Module> modules_;
  std::unordered_map<std::string, std::size_t> by_path_;
};

}  // namespace engine::adapter
