#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/model/model.h"
#include "oracle/model.h"

namespace checks {

oracle::Batch oracle_batch(const engine::model::Batch& batch);
oracle::Adapters<double> oracle_adapters(const engine::model::AdapterSet& set);

// Logits [T,V] of a checkpoint without adapters.
std::vector<double> oracle_logits(const std::filesystem::path& model,
                                  const engine::model::Batch& batch);

// The loss, and its derivative along one direction of all adapters at once: +1 or -1 an element,
// drawn by the tensor's name.
template <class S>
struct Witness {
  S loss, derivative;
};
template <class S>
Witness<S> oracle_witness(const std::filesystem::path& model,
                          const oracle::Adapters<double>& adapters, const oracle::Batch& batch);

}  // namespace checks
