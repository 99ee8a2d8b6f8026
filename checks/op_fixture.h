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
  OpFixture(std::string op_name, std::vector<FixtureCase> all, Op op, FixtureCase broad)
      : name(std::move(op_name)),
        cases(std::move(all)),
        wide(std::move(broad)),
        value(op),
        bound(op),
        derivative(op),
        derivative_bound(op) {}

  std::string name;
  std::vector<FixtureCase> cases;  // those of the files
  FixtureCase wide;  // of the size of the op's own check: worked out when it is wanted
  // Roundings that a backward's chain of additions into the input `name` has and a forward sweep does
  // not, see solve().
  std::function<int(const FixtureCase&, const std::string& name)> longer_chain =
      [](const FixtureCase&, const std::string&) { return 0; };
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
NamedTensors fixture_inputs(const FixtureCase& c);

// The gradient is the vector-Jacobian product up^T J, with J column by column from dual numbers.
// Its bound is that of a forward sweep: Dual<Bound> bounds every element of J, and Accumulator the
// sum over outputs, in which a term that is exactly zero (another token, another row) rounds
// nothing.
//
// A backward multiplies the same factors along the same paths in another order. Roundings of a path
//   forward    one a factor, and at every sum on the way its number of terms (fan-in), those over
//              outputs included
//   backward   one a factor, and at every value that is used several times the number of uses
//              (fan-out)
// For layers that join everything with everything, widths n_0 (input) ... n_m (outputs), these are
// n_1 + ... + n_m both ways: out of one input element, the first sum has one term. So they are, or
// fewer backward, in every op but the experts, where what one token's z is used for, both branches of
// all its experts, ends in one chain: longer_chain. What is left open: paths from ONE input element
// that cancel before they reach an output are one small term forward and two large ones backward, in
// the roundings behind the place where they meet. That is the element's own output in norms (rmsnorm,
// l2norm, attn_res) and its own key in a softmax (mla, attn_res), one term of the sum over outputs; a
// bound that carries sum of |paths| beside the derivative would close it. kda carries norms
// (oracle/kda_bound.h) forward alone. The bound is used as the gate all the same: being smaller than
// it need be, it can only refuse what is right, and that it does not is what the checks show.
NamedTensors solve(const OpFixture& op);

// The same without a file, at every `stride`-th element of each varied input; value by the oracle in
// double, bound by Dual<Bound>.
struct CertifiedGradient {
  std::vector<double> want, bound;
};
std::map<std::string, CertifiedGradient> certified_gradient(
    const OpFixture& op, const FixtureCase& c,
    const std::function<std::size_t(std::size_t size)>& stride);

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
