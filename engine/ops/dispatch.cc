#include <atomic>

#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

bool runs_here(const Kernels& candidate) {
  if (&candidate == &kKernelsAvx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  if (&candidate == &kKernelsAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
  return true;
}

constexpr const Kernels* kAll[] = {&kKernelsScalar, &kKernelsAvx2, &kKernelsAvx512};

const Kernels* widest() {
  const Kernels* best = &kKernelsScalar;
  for (const Kernels* candidate : kAll) {
    if (runs_here(*candidate)) best = candidate;
  }
  return best;
}

// Which code runs is a property of the process, like its thread count; no result depends on it.
std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

const Kernels& kernels() noexcept {
  const Kernels* table = chosen.load(std::memory_order_relaxed);
  if (table == nullptr) {
    table = widest();
    chosen.store(table, std::memory_order_relaxed);
  }
  return *table;
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels* candidate : kAll) {
    if (runs_here(*candidate)) names.emplace_back(candidate->instruction_set);
  }
  return names;
}

bool choose_instruction_set(std::string_view name) {
  for (const Kernels* candidate : kAll) {
    if (name == candidate->instruction_set && runs_here(*candidate)) {
      chosen.store(candidate, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

}  // namespace engine::ops
