#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checks/op_fixture.h"

// The op cases of the reference data, grad/ops/, as cases of the oracle.
namespace checks::ops {

struct ReferenceCase {
  std::string op;           // of op_fixtures()
  FixtureCase inputs;       // named as there
  Values<double> autograd;  // float64 gradients, by the names of inputs.varied
};

// Of the ops of which there are any; lora is part of the experts'. Left out: kda_gate by alpha, whose
// upstream gradient the engine multiplies first.
std::vector<ReferenceCase> reference_cases(const std::filesystem::path& grad_ops);

}  // namespace checks::ops
