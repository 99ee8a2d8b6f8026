#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "checks/reference.h"
#include "engine/base/rng.h"
#include "oracle/bound.h"
#include "oracle/dual.h"

// Small inputs of every op and what the oracle says about them: the values, how far float32 may be
// off, and both again for the gradients. make_fixtures writes them to fixtures/ops/;
// checks/ops/fixture_check.cc holds the engine to them.
namespace checks {

template <class S>
using Values = std::map<std::string, std::vector<S>>;

// What an op is given. All numbers are float32 numbers, whole ones (borders, ids, bytes) included.
struct FixtureCase {
  std::string name;
  NamedTensors fixed;   // frozen weights, settings, borders
  NamedTensors varied;  // what gradients are wanted for
  NamedTensors up;      // dL/d(output), for the outputs that the loss depends on
  // For cases in which most of an output or gradient is zero by nature, and then exactly.
  bool sparse = false;

  double number(const std::string& name_of) const { return at(fixed, name_of).data.at(0); }
  std::int64_t whole(const std::string& name_of) const {
    return static_cast<std::int64_t>(number(name_of));
  }
  const std::vector<double>& weights(const std::string& name_of) const {
    return at(fixed, name_of).data;
  }
  // Fixed numbers as ids, or as first tokens of documents (the last border is the end).
  std::vector<std::int32_t> ids(const std::string& name_of) const {
    return at(fixed, name_of).i32();
  }
  std::vector<std::int64_t> first_tokens() const {
    const auto& borders = weights("documents");
    return {borders.begin(), borders.end() - 1};
  }
};

// The oracle's op on the varied inputs of a case; returns its outputs by name.
template <class S>
using OracleOp = std::function<Values<S>(const FixtureCase&, const Values<S>&)>;

inline constexpr int kTangents = 8;

struct OpFixture {
  template <class Op>
  OpFixture(std::string op_name, std::vector<FixtureCase> all, Op op)
      : name(std::move(op_name)),
        cases(std::move(all)),
        value(op),
        bound(op),
        derivative(op),
        derivative_bound(op) {}

  std::string name;
  std::vector<FixtureCase> cases;
  OracleOp<double> value;
  OracleOp<oracle::Bound> bound;
  OracleOp<oracle::Dual<double, kTangents>> derivative;
  OracleOp<oracle::Dual<oracle::Bound, kTangents>> derivative_bound;
};

// All ops, in groups that compile apart.
std::vector<OpFixture> op_fixtures();
std::vector<OpFixture> row_fixtures();
std::vector<OpFixture> time_fixtures();
std::vector<OpFixture> product_fixtures();

// What the file of an op holds. Inputs: "CASE.in.NAME", "CASE.up.OUTPUT". Solution:
// "CASE.out.OUTPUT", "CASE.bound.OUTPUT", "CASE.grad.NAME", "CASE.grad_bound.NAME".
NamedTensors fixture_inputs(const OpFixture& op);

// The gradient is the vector-Jacobian product up^T J, with J column by column from dual numbers.
// Its bound is that of a forward sweep: Dual<Bound> bounds every element of J, and Accumulator the
// sum over outputs, in which a term that is exactly zero (another token, another row) rounds
// nothing. A backward sweep multiplies the same factors along the same paths in another order, with
// as many roundings on a path; it may only lose more where paths from ONE input element cancel
// before they reach an output, which the forward sweep sees cancelled.
NamedTensors solve(const OpFixture& op);

// Random numbers that are a function of their names alone.
class Draw {
 public:
  explicit Draw(std::string prefix) : prefix_(std::move(prefix)) {}
  NamedTensor between(const std::string& name, std::vector<std::int64_t> shape, float low,
                      float high) const;
  NamedTensor within(const std::string& name, std::vector<std::int64_t> shape, float scale) const {
    return between(name, std::move(shape), -scale, scale);
  }

 private:
  std::string prefix_;
};

NamedTensor setting(double value);
NamedTensor list(std::initializer_list<std::int64_t> numbers);

}  // namespace checks
