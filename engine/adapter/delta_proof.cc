#include "engine/adapter/delta_proof.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <map>
#include <vector>

#include "engine/base/error.h"
#include "engine/store/unfinished.h"

namespace engine::adapter {
namespace {

using base::Error;

float round_to(base::Dtype dtype, float value) {
  return dtype == base::Dtype::kBf16 ? base::bf16_to_float(base::float_to_bf16(value)) : value;
}

// |B A|^2 = sum_ij (B^T B)_ij (A A^T)_ij: the product itself, [out,in], is never made.
//
// Shape     a [ranks][in]   b [ranks][out], column by column
double squared_norm(const std::vector<std::vector<double>>& a,
                    const std::vector<std::vector<double>>& b) {
  const auto dot = [](const std::vector<double>& x, const std::vector<double>& y) {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  };
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a.size(); ++j) sum += dot(a[i], a[j]) * dot(b[i], b[j]);
  }
  return sum;
}

// Of one module. The difference is the product of two factors of twice the rank,
//   B' A' - B A = [B' - B, B] [A'; A' - A],
// so nothing nearly equal is subtracted after squaring.
double relative_rounding(std::span<const float> a, std::span<const float> b, std::int64_t rank,
                         base::Dtype dtype) {
  const auto r = static_cast<std::size_t>(rank);
  const std::size_t in = a.size() / r, out = b.size() / r;
  std::vector<std::vector<double>> exact_a(r), exact_b(r), left(2 * r), right(2 * r);
  for (std::size_t k = 0; k < r; ++k) {
    for (std::size_t i = 0; i < in; ++i) {
      const double exact = a[k * in + i], rounded = round_to(dtype, a[k * in + i]);
      exact_a[k].push_back(exact);
      right[k].push_back(rounded);
      right[r + k].push_back(rounded - exact);
    }
    for (std::size_t o = 0; o < out; ++o) {
      const double exact = b[o * r + k], rounded = round_to(dtype, b[o * r + k]);
      exact_b[k].push_back(exact);
      left[k].push_back(rounded - exact);
      left[r + k].push_back(exact);
    }
  }
  const double norm = squared_norm(exact_a, exact_b);
  if (norm == 0.0) return 0.0;
  return std::sqrt(std::max(0.0, squared_norm(right, left)) / norm);
}

void compare_settings(const Exported& exported, const NativeAdapter& native) {
  if (exported.rank != native.rank) {
    throw Error("{}: rank {}, the native adapter has {}", exported.file, exported.rank,
                native.rank);
  }
  const auto scale = static_cast<float>(native.alpha / static_cast<double>(native.rank));
  if (std::bit_cast<std::uint32_t>(exported.scale) != std::bit_cast<std::uint32_t>(scale)) {
    throw Error("{}: its reader scales by {}, the native adapter by alpha/r = {}/{} = {}",
                exported.file, exported.scale, native.alpha, native.rank, scale);
  }
  std::vector<std::string> ours = native.targets, theirs = exported.targets;
  std::ranges::sort(ours);
  std::ranges::sort(theirs);
  if (ours != theirs) {
    throw Error("{}: has targets {}, the native adapter {}", exported.file, fmt::join(theirs, ","),
                fmt::join(ours, ","));
  }
}

}  // namespace

DeltaProof prove_delta(const Exported& exported, const NativeAdapter& native,
                       std::span<const Module> modules) {
  compare_settings(exported, native);
  std::map<std::string, std::span<const float>> matrices;
  for (const NativeTensor& tensor : native.tensors) matrices[tensor.name] = tensor.values;

  DeltaProof proof;
  for (const Module& module : modules) {
    store::stop_if_wished();
    const auto a = matrices.find(module.native('A')), b = matrices.find(module.native('B'));
    if (a == matrices.end()) continue;  // not a target of this adapter
    assert(b != matrices.end());
    ++proof.modules;
    proof.matrices += module.matrices();
    if (exported.dtype == base::Dtype::kF32) continue;
    for (const std::span<const float> values : {a->second, b->second}) {
      proof.rounded += std::ranges::count_if(
          values, [&](float value) { return round_to(exported.dtype, value) != value; });
    }
    const double change = relative_rounding(a->second, b->second, native.rank, exported.dtype);
    if (change > proof.worst) {
      proof.worst = change;
      proof.worst_module = module.path();
    }
  }

  read_values(exported, [&](const Part& part, std::int64_t first, std::span<const float> values) {
    store::stop_if_wished();
    const std::string name = modules[part.module].native(part.matrix);
    const std::span<const float> matrix = matrices.at(name);
    auto value = values.begin();
    for_runs(
        part.walk, first, static_cast<std::int64_t>(values.size()),
        [&](std::int64_t place, std::int64_t step, std::int64_t count) {
          for (; count > 0; --count, place += step, ++value) {
            const float wanted = round_to(exported.dtype, matrix[static_cast<std::size_t>(place)]);
            if (std::bit_cast<std::uint32_t>(*value) != std::bit_cast<std::uint32_t>(wanted)) {
              throw Error("{}: tensor {}: value {} is {}, value {} of {} is {}", exported.file,
                          part.name, first + (value - values.begin()), *value, place, name, wanted);
            }
          }
        });
    proof.values += static_cast<std::int64_t>(values.size());
  });
  return proof;
}

}  // namespace engine::adapter
