#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace checks {

// What an adapter does to a checkpoint, worked out apart from the engine: oracle/safetensors.h, a
// GGUF reader of its own, the loaders' rules as docs/adapters.md states them, and doubles.

struct Frozen {
  std::int64_t out = 0, in = 0;
};
// The checkpoint's matrices by module path, packed ones by the size they unpack to.
using FrozenMatrices = std::map<std::string, Frozen>;
FrozenMatrices frozen_matrices(const std::filesystem::path& checkpoint);

// The change to every matrix that has one, [out,in] row-major:
//   delta[o][i] = scale * sum_k B[o][k] A[k][i],   k rising
using Deltas = std::map<std::string, std::vector<double>>;

// A native adapter file on the checkpoint: one expert's pair under each of them.
Deltas native_deltas(const std::filesystem::path& adapter, const FrozenMatrices& frozen);

// A PEFT folder, by the rules of the PEFT version given (of its config, if empty).
// Errors    std::runtime_error for a key, shape or target that leads nowhere
Deltas peft_deltas(const std::filesystem::path& folder, const FrozenMatrices& frozen,
                   std::string version = "");

// An adapter.gguf as llama.cpp takes it, on its own tensors: experts [E,out,in], attn_k_b
// [heads,kv rank,nope], attn_v_b [heads,v,kv rank].
Deltas llama_deltas(const std::filesystem::path& file);

// Changes of the checkpoint's matrices, put into the form of llama.cpp's model file as its
// conversion does: experts stacked, kv_b_proj cut by heads, its key half transposed.
Deltas as_llama(const Deltas& deltas, const FrozenMatrices& frozen, std::int64_t heads,
                std::int64_t key_rows);

// Same names, and every value the same; all-zero ones are mistrusted. Empty if so, else why not.
std::string difference(const Deltas& got, const Deltas& want);

}  // namespace checks
