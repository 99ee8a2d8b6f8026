// Reads adapters from a safetensors file with the native names, for any scalar.
#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "oracle/safetensors.h"
#include "oracle/trace.h"

namespace oracle {

// alpha   of the adapters; without it, the file's metadata entry "alpha" must say
// Errors  throws std::runtime_error when ranks differ or alpha is not known
template <class S>
Adapters<S> load_adapters(const std::filesystem::path& path, std::optional<double> alpha = {}) {
  const SafeTensors file(path);
  Adapters<S> adapters;
  if (const auto it = file.metadata().find("alpha"); !alpha && it != file.metadata().end()) {
    alpha = std::stod(it->second);
  }
  if (!alpha)
    throw std::runtime_error(path.string() + ": alpha is neither given nor in the metadata");
  adapters.alpha = *alpha;
  for (const auto& [name, info] : file.tensors()) {
    const bool is_a = name.ends_with(".lora_A");
    if (info.shape.size() != 2) throw std::runtime_error(name + ": not a matrix");
    const int64_t rank = info.shape[is_a ? 0 : 1];
    if (adapters.rank == 0) adapters.rank = rank;
    if (rank != adapters.rank) throw std::runtime_error(name + ": rank differs from the others");
    std::vector<S>& values = adapters.tensors[name];
    for (const double x : file.load(name)) values.push_back(S(x));
  }
  return adapters;
}

}  // namespace oracle
