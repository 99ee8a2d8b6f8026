#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace checks {

// A LoRA adapter file by llama.cpp's rules (gguf_init_from_file and llama_adapter_lora_init, read in
// September 2026), on its own: what it would refuse is refused here, and a few things that it lets
// pass (bytes after the last tensor, an alpha of 0) as well.

struct LlamaTensor {
  std::array<std::int64_t, 4> ne = {1, 1, 1, 1};  // innermost first
  std::vector<double> values;
};

struct LlamaAdapter {
  std::string architecture;
  float alpha = 0.0f;
  std::uint64_t stated_tensors = 0;  // by the header
  struct Pair {
    LlamaTensor a, b;
  };
  std::map<std::string, Pair> pairs;  // by the model's tensor
};

// Errors    std::runtime_error
LlamaAdapter read_llama_adapter(const std::string& bytes);

}  // namespace checks
