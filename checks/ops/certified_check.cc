// The gradient of every op within the bound that the oracle derives for it, at the sizes of the op's
// own check and on the cases of the reference data, where no file holds the bound: Dual<Bound> is run
// here. What is allowed of an element is the smaller of that bound and of the share of the largest
// element that the op's own check allows, so that neither weakens the other.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checks/compare.h"
#include "checks/op_fixture.h"
#include "checks/ops/fixture_engine.h"
#include "checks/ops/fixture_faults.h"
#include "checks/ops/reference_cases.h"

namespace checks::ops {
namespace {

// About forty elements of every input, an odd number apart so that they fall into all columns of
// widths that are powers of two. (The loss's case has its labels among them.)
std::size_t about_forty(std::size_t size) { return size / 40 | 1; }

// What a case allows, and how its two halves compare.
struct Allowed {
  std::map<std::string, CertifiedGradient> certified;
  std::map<std::string, std::vector<double>> smaller;
};

Allowed allowed_of(const OpFixture& op, const FixtureCase& c) {
  Allowed a{certified_gradient(op, c, about_forty), {}};
  for (const auto& [name, gradient] : a.certified) {
    double largest = 0.0;
    for (const double value : gradient.want) largest = std::max(largest, std::abs(value));
    for (const double bound : gradient.bound) {
      a.smaller[name].push_back(std::min(bound, kOpShare * largest));
    }
  }
  return a;
}

std::vector<double> sampled(const std::vector<double>& all) {
  std::vector<double> some;
  for (std::size_t i = 0; i < all.size(); i += about_forty(all.size())) some.push_back(all[i]);
  return some;
}

std::map<std::string, Comparison> compared(const FixtureCase& c, const Allowed& allowed,
                                           const Values<double>& got) {
  std::map<std::string, Comparison> all;
  for (const auto& [name, gradient] : allowed.certified) {
    const auto found = got.find("grad." + name);
    all[name] =
        compare(found == got.end() ? std::vector<double>{} : sampled(found->second), gradient.want,
                allowed.smaller.at(name), c.sparse ? Content::kSparse : Content::kDense);
  }
  return all;
}

Values<double> run(const OpFixture& op, const FixtureCase& c) {
  return engine_ops().at(op.name)(GradCase(fixture_inputs(c), c.name), true);
}

// Of the elements of an op: how near the engine comes, and which of the two limits is the smaller.
class Account {
 public:
  void add(const Allowed& allowed, const std::map<std::string, Comparison>& all) {
    for (const auto& [name, comparison] : all) {
      worst_ = std::max(worst_, comparison.worst);
      for (std::size_t bin = 0; bin < kUlpBins; ++bin) ulps_[bin] += comparison.ulps[bin];
      const CertifiedGradient& gradient = allowed.certified.at(name);
      double largest = 0.0;
      for (const double value : gradient.want) largest = std::max(largest, std::abs(value));
      for (const double bound : gradient.bound) {
        if (largest > 0.0) ratio_.push_back(bound / (kOpShare * largest));
      }
    }
  }
  void print(const std::string& op) {
    std::sort(ratio_.begin(), ratio_.end());
    const auto smaller = std::lower_bound(ratio_.begin(), ratio_.end(), 1.0) - ratio_.begin();
    fmt::print(
        "{:<13} worst error/allowed {:.3f}; bound over share: median {:.2g}, largest {:.2g}, "
        "smaller in {} of {}\n  ulps: {}\n",
        op, worst_, ratio_.at(ratio_.size() / 2), ratio_.back(), smaller, ratio_.size(),
        to_text(ulps_));
    testing::Test::RecordProperty("worst " + op, fmt::format("{}", worst_));
    testing::Test::RecordProperty("ulps " + op, to_text(ulps_));
    testing::Test::RecordProperty("bound over share, median " + op,
                                  fmt::format("{}", ratio_.at(ratio_.size() / 2)));
  }

 private:
  double worst_ = 0.0;
  UlpHistogram ulps_ = {};
  std::vector<double> ratio_;
};

TEST(CertifiedGradients, AtTheSizesOfTheOpsOwnChecks) {
  for (const OpFixture& op : op_fixtures()) {
    const Allowed allowed = allowed_of(op, op.wide);
    const auto all = compared(op.wide, allowed, run(op, op.wide));
    for (const auto& [name, comparison] : all) {
      EXPECT_TRUE(comparison) << op.name << " " << name << ": " << comparison.why;
    }
    Account account;
    account.add(allowed, all);
    account.print(op.name);
  }
}

// Every wrong version, its gradients alone: a backward that reads a wrong input, or drops a term. Not
// those that leave every gradient of the case as it is: of values alone, or linear in what is wrong.
TEST(CertifiedGradients, PlantedFaults) {
  const std::set<std::string> not_a_gradients = {"rmsnorm: sum instead of mean",
                                                 "l2norm: mean instead of sum",
                                                 "situ_glu: sigmoid of the capped gate",
                                                 "router: 1e-20 forgotten",
                                                 "cross_entropy: in bits",
                                                 "lora: y overwritten",
                                                 "matmul_f32: last column dropped",
                                                 "matmul_bf16: last column dropped",
                                                 "matmul_mxfp4: last column dropped",
                                                 "matmul_mxfp4: byte 0 taken for zero"};
  const auto faults = fixture_faults();
  for (const OpFixture& op : op_fixtures()) {
    const Allowed allowed = allowed_of(op, op.wide);
    for (const FixtureFault& fault : faults.at(op.name)) {
      NamedTensors wrong = fixture_inputs(op.wide);
      if (fault.before) fault.before(wrong, op.wide.name);
      Values<double> result = engine_ops().at(op.name)(GradCase(wrong, op.wide.name), true);
      if (fault.after) fault.after(result, wrong, op.wide.name);
      const auto all = compared(op.wide, allowed, result);
      const bool is_refused =
          std::any_of(all.begin(), all.end(), [](const auto& one) { return !one.second.holds; });
      const std::string name = op.name + ": " + fault.name;
      EXPECT_EQ(is_refused, !not_a_gradients.contains(name)) << name;
    }
  }
}

// Three derivations at once: engine, oracle's dual numbers, and autograd in float64, which is held to
// the oracle as two evaluations in double are (OpFixtures.TheFilesAreWhatTheOracleSays).
TEST(CertifiedGradients, ReferenceCases) {
  CHECKS_NEED(folder, reference_data("grad/ops"));
  std::map<std::string, const OpFixture*> ops;
  const auto fixtures = op_fixtures();
  for (const OpFixture& op : fixtures) ops[op.name] = &op;
  std::map<std::string, Account> accounts;
  for (const ReferenceCase& r : reference_cases(folder)) {
    const OpFixture& op = *ops.at(r.op);
    const Allowed allowed = allowed_of(op, r.inputs);
    auto all = compared(r.inputs, allowed, run(op, r.inputs));
    for (const auto& [name, gradient] : allowed.certified) {
      const auto autograd = r.autograd.find(name);
      if (autograd == r.autograd.end()) {
        all.erase(name);
        continue;
      }
      std::vector<double> in_double = gradient.bound;
      for (double& bound : in_double) bound *= 0x1p-28;
      const Comparison same = compare(sampled(autograd->second), gradient.want, in_double,
                                      r.inputs.sparse ? Content::kSparse : Content::kDense);
      EXPECT_TRUE(same) << op.name << " " << r.inputs.name << " " << name
                        << " against autograd: " << same.why;
    }
    for (const auto& [name, comparison] : all) {
      EXPECT_TRUE(comparison) << op.name << " " << r.inputs.name << " " << name << ": "
                              << comparison.why;
    }
    accounts[op.name].add(allowed, all);
  }
  for (auto& [name, account] : accounts) account.print(name);
}

}  // namespace
}  // namespace checks::ops
