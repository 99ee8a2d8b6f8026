#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checks/op_fixture.h"
#include "checks/ops/op_case.h"

// The engine's ops on the inputs of the files under fixtures/ops/.
namespace checks::ops {

// Outputs as "out.NAME" and, where the case has an upstream gradient, gradients as "grad.NAME".
using EngineOp = Values<double> (*)(const GradCase& in, bool with_gradient);

// By the name of the file. In two parts, so that no file is long.
std::map<std::string, EngineOp> engine_ops();
std::map<std::string, EngineOp> engine_time_ops();

inline float number(const GradCase& in, const std::string& key) { return in.f32(key).at(0); }

inline std::vector<std::int64_t> documents(const GradCase& in) {
  const auto& borders = in.f64("in.documents");
  return {borders.begin(), borders.end()};
}

// Overwritten by the op: what stands there must not matter.
inline std::vector<float> overwritten(std::size_t count) { return std::vector<float>(count, 7.0f); }

}  // namespace checks::ops
