// fixtures/ops/: the engine within the bounds that the oracle derived, and the files what their
// generator makes today.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "checks/compare.h"
#include "checks/hdf5_file.h"
#include "checks/op_fixture.h"
#include "checks/ops/fixture_engine.h"
#include "checks/ops/fixture_faults.h"
#include "checks/scratch_folder.h"
#include "engine/base/sha256.h"

namespace checks::ops {
namespace {

NamedTensors recorded(const OpFixture& op) {
  return read_hdf5(source_root() / "fixtures" / "ops" / (op.name + ".h5"));
}

Values<double> run(const OpFixture& op, const FixtureCase& c, const NamedTensors& tensors) {
  return engine_ops().at(op.name)(GradCase(tensors, c.name), !c.up.empty());
}

// Every output and gradient of the case that the file holds, by "out.NAME" or "grad.NAME". What is
// allowed is the oracle's bound of that element and nothing else.
std::map<std::string, Comparison> compared(const FixtureCase& c, const NamedTensors& file,
                                           const Values<double>& got) {
  std::map<std::string, Comparison> all;
  for (const auto& [kind, bound] : {std::pair("out.", "bound."), {"grad.", "grad_bound."}}) {
    const std::string prefix = c.name + "." + kind;
    for (auto it = file.lower_bound(prefix); it != file.end() && it->first.starts_with(prefix);
         ++it) {
      const std::string name = it->first.substr(prefix.size());
      const auto found = got.find(kind + name);
      all[kind + name] = compare(found == got.end() ? std::vector<double>{} : found->second,
                                 it->second.data, at(file, c.name + "." + bound + name).data,
                                 c.sparse ? Content::kSparse : Content::kDense);
    }
  }
  return all;
}

bool all_hold(const std::map<std::string, Comparison>& all) {
  return std::all_of(all.begin(), all.end(), [](const auto& one) { return one.second.holds; });
}

TEST(OpFixtures, WithinTheBoundOfTheOracle) {
  for (const OpFixture& op : op_fixtures()) {
    const NamedTensors file = recorded(op);
    std::map<std::string, double> worst = {{"out", 0.0}, {"grad", 0.0}};
    std::map<std::string, UlpHistogram> ulps = {{"out", {}}, {"grad", {}}};
    for (const FixtureCase& c : op.cases) {
      const auto all = compared(c, file, run(op, c, file));
      EXPECT_FALSE(all.empty());
      for (const auto& [name, comparison] : all) {
        EXPECT_TRUE(comparison) << op.name << " " << c.name << " " << name << ": "
                                << comparison.why;
        const std::string kind = name.substr(0, name.find('.'));
        worst[kind] = std::max(worst[kind], comparison.worst);
        for (std::size_t bin = 0; bin < kUlpBins; ++bin) ulps[kind][bin] += comparison.ulps[bin];
      }
    }
    RecordProperty("worst " + op.name, std::to_string(worst["out"]));
    RecordProperty("worst gradient " + op.name, std::to_string(worst["grad"]));
    RecordProperty("ulps " + op.name, to_text(ulps["out"]));
    RecordProperty("ulps gradient " + op.name, to_text(ulps["grad"]));
    fmt::print("{:<14} worst error/allowed {:.3f}, gradient {:.3f}\n", op.name, worst["out"],
               worst["grad"]);
    fmt::print("  ulps: {}\n  ulps of the gradient: {}\n", to_text(ulps["out"]),
               to_text(ulps["grad"]));
  }
}

// The tensor of bounds that belongs to a tensor of values; a bound belongs to itself.
std::string bound_name(std::string name) {
  for (const std::string kind : {"out.", "grad."}) {
    const auto place = name.find("." + kind);
    if (place == std::string::npos) continue;
    return name.replace(place + 1, kind.size(), kind == "out." ? "bound." : "grad_bound.");
  }
  return name;
}

// Two evaluations of the oracle in double, on machines whose libm may round differently. Bound
// counts every operation with the unit 2^-24 of float32 and every elementary function with several;
// in double the unit is 2^-53 and libm errs by less than that, so either is within 2^-29 of the
// bound. (A number of units of a value's own last place would not do: where terms cancel, one unit
// of an exponential is many of the result.) A bound is a sum of positive terms, so relatively it is
// as exact as that.
Comparison same_in_double(const std::vector<double>& got, const std::vector<double>& want,
                          std::vector<double> bound) {
  for (double& value : bound) value *= 0x1p-28;
  if (got == want) return {true, 0.0, -1, ""};  // zeros throughout, as of a choice's bound, too
  return compare(got, want, bound);
}

TEST(OpFixtures, TheFilesAreWhatTheOracleSays) {
  for (const OpFixture& op : op_fixtures()) {
    const NamedTensors file = recorded(op);
    const NamedTensors inputs = fixture_inputs(op);
    const NamedTensors solution = solve(op);
    EXPECT_EQ(file.size(), inputs.size() + solution.size()) << op.name;
    for (const auto& [name, tensor] : inputs) {
      EXPECT_EQ(at(file, name).shape, tensor.shape) << op.name << " " << name;
      EXPECT_EQ(at(file, name).data, tensor.data) << op.name << " " << name;
    }
    for (const auto& [name, tensor] : solution) {
      const auto& bound = at(file, bound_name(name)).data;
      const Comparison same = same_in_double(at(file, name).data, tensor.data, bound);
      EXPECT_TRUE(same) << op.name << " " << name << ": " << same.why;
    }
  }
}

// The digest in fixtures/MANIFEST of a path below fixtures/.
std::string listed_digest(const std::string& path) {
  std::ifstream manifest(source_root() / "fixtures" / "MANIFEST");
  for (std::string line; std::getline(manifest, line);) {
    if (line.find("  " + path + "  ") == 64) return line.substr(0, 64);
  }
  return "not listed";
}

TEST(OpFixtures, TheGeneratorGivesTheSameBytes) {
  unsigned version[3] = {};
  H5get_libversion(&version[0], &version[1], &version[2]);
  if (version[0] != 1 || version[1] != 10) {
    GTEST_SKIP() << "HDF5 " << version[0] << "." << version[1]
                 << " may lay out a file in another way than 1.10, which made fixtures/ops";
  }
  const ScratchFolder folder;
  for (const OpFixture& op : op_fixtures()) {
    const NamedTensors solution = solve(op);
    const NamedTensors file = recorded(op);
    for (const auto& [name, tensor] : solution) {
      if (tensor.data != at(file, name).data) {
        GTEST_SKIP() << "libm rounds otherwise here: " << op.name << " " << name
                     << " differs in its last places (TheFilesAreWhatTheOracleSays compares it)";
      }
    }
    const auto path = folder / (op.name + ".h5");
    write_hdf5(path, fixture_inputs(op), solution);
    EXPECT_EQ(engine::base::sha256_hex_of_file(path), listed_digest("ops/" + op.name + ".h5"))
        << op.name;
  }
}

// Every output and every gradient must have a case that sees it off by a ten-thousandth: a bound
// that would let this pass is not worth comparing with.
TEST(OpFixtures, ATenThousandthIsSeenEverywhere) {
  for (const OpFixture& op : op_fixtures()) {
    const NamedTensors file = recorded(op);
    std::map<std::string, bool> seen;
    for (const FixtureCase& c : op.cases) {
      Values<double> result = run(op, c, file);
      for (auto& [name, values] : result) {
        for (double& value : values) value *= 1 + 1e-4;
      }
      for (const auto& [name, comparison] : compared(c, file, result)) {
        seen[name] = seen[name] || !comparison.holds;
      }
    }
    for (const auto& [name, is_seen] : seen) EXPECT_TRUE(is_seen) << op.name << " " << name;
  }
}

TEST(OpFixtures, PlantedFaults) {
  const auto faults = fixture_faults();
  for (const OpFixture& op : op_fixtures()) {
    const NamedTensors file = recorded(op);
    // An oracle that stores float32, against TheFilesAreWhatTheOracleSays.
    for (const auto& [name, tensor] : solve(op)) {
      if (name.find(".grad_bound.") == std::string::npos) continue;
      const auto f32 = tensor.f32();
      EXPECT_FALSE(same_in_double(widen(f32), tensor.data, tensor.data)) << op.name << " " << name;
    }
    for (const FixtureFault& fault : faults.at(op.name)) {
      bool is_refused = false;
      for (const FixtureCase& c : op.cases) {
        NamedTensors wrong = file;
        if (fault.before) fault.before(wrong, c.name);
        Values<double> result = run(op, c, wrong);
        if (fault.after && !c.up.empty()) fault.after(result, file, c.name);
        is_refused = is_refused || !all_hold(compared(c, file, result));
      }
      EXPECT_TRUE(is_refused) << op.name << ": " << fault.name;
    }
  }
}

}  // namespace
}  // namespace checks::ops
