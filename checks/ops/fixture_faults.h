#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checks/op_fixture.h"

// Wrong versions of the ops, to be tried against the files under fixtures/ops/. The engine's code
// cannot be changed from here: a wrong formula is given to it as wrong inputs, or done to its
// results.
namespace checks::ops {

struct FixtureFault {
  std::string name;
  // On the tensors of the case `id` before the op runs ...
  std::function<void(NamedTensors& tensors, const std::string& id)> before;
  // ... or on its result, given the right tensors.
  std::function<void(Values<double>& result, const NamedTensors& tensors, const std::string& id)>
      after;
};

// Of every op; none without its own.
std::map<std::string, std::vector<FixtureFault>> fixture_faults();

}  // namespace checks::ops
