// check_gradients: the engine's backward pass against (a) exact directional derivatives of the
// oracle, (b) central differences of the engine's own forward, (c) float64 gradients of an
// independent program. Without arguments: all three. --model with --reference: one case of (c).

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "checks/engine_run.h"
#include "checks/gradient_case.h"
#include "checks/gradient_differences.h"
#include "checks/gradient_duals.h"
#include "engine/cli/waiting.h"

namespace {

using checks::GradientRow;
using checks::GradientTable;
using Outcome = GradientRow::Outcome;

constexpr std::int64_t kDualTokens = 9;
constexpr std::int64_t kDifferenceTokens = 6;
constexpr int kSampleOfDirections = 24;  // of the thousand of --directions
constexpr int kDirectionsOfAGroup = 8;

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kHolds:
      return "holds";
    case Outcome::kFails:
      return "DOES NOT HOLD";
    case Outcome::kBelowResolution:
      return "below resolution";
    case Outcome::kRoutingFlip:
      return "routing flip";
  }
  return "";
}

class Report {
 public:
  Report(const std::string& out, bool verbose)
      : record_("check_gradients", out), verbose_(verbose) {}

  // Prints what fails and the tightest row that holds; every row with --verbose.
  void add(const GradientTable& table) {
    fmt::print("\n== {}\n", table.title);
    const GradientRow* tightest = nullptr;
    int holds = 0, fails = 0, below = 0, flips = 0;
    for (const GradientRow& row : table.rows) {
      holds += row.outcome == Outcome::kHolds ? 1 : 0;
      fails += row.outcome == Outcome::kFails ? 1 : 0;
      below += row.outcome == Outcome::kBelowResolution ? 1 : 0;
      flips += row.outcome == Outcome::kRoutingFlip ? 1 : 0;
      if (row.outcome == Outcome::kHolds || row.outcome == Outcome::kFails) {
        tally.record(row.outcome == Outcome::kHolds);
      }
      if (row.outcome == Outcome::kHolds && row.allowed > 0.0 &&
          (tightest == nullptr || row.error / row.allowed > tightest->error / tightest->allowed)) {
        tightest = &row;
      }
      if (verbose_ || row.outcome == Outcome::kFails) print(row);
      record_.row(table.title, row.name,
                  row.outcome == Outcome::kFails ? "fails" : name_of(row.outcome),
                  {{"norm", row.norm}, {"error", row.error}, {"allowed", row.allowed}});
    }
    if (tightest != nullptr) {
      fmt::print("tightest:\n");
      print(*tightest);
    }
    fmt::print(
        "verdict: {} hold, {} do not, {} below resolution and {} with a routing flip prove "
        "nothing\n",
        holds, fails, below, flips);
    if (holds == 0) tally.record(false);  // a table that proves nothing is no pass
    for (const checks::PlantedGradient& planted : table.planted) {
      fmt::print("planted: {}: {}\n", planted.what, planted.refused ? "refused" : "NOT REFUSED");
      record_.row(table.title, planted.what, planted.refused ? "refused" : "not refused");
      tally.record(planted.refused);
    }
  }

  int finish() { return tally.finish(record_); }

  checks::Tally tally;

 private:
  static void print(const GradientRow& row) {
    fmt::print("  {:<44} |g| {:>10.3e}  error {:>9.2e}  allowed {:>9.2e}  {}\n", row.name, row.norm,
               row.error, row.allowed, name_of(row.outcome));
  }

  checks::TableRecord record_;
  bool verbose_;
};

void check_reference_cases(Report& report) {
  for (const char* name : {"tiny_g1", "tool_g1", "tiny_packed", "tiny_packed4"}) {
    const std::string model = std::string("ckpt_") + (name[1] == 'i' ? "tiny" : "tool");
    const auto checkpoint = checks::reference_data(model);
    const auto folder = checks::reference_data(std::string("grad/") + name);
    if (!checkpoint || !folder) {
      report.tally.absent(checkpoint ? folder : checkpoint);
      continue;
    }
    report.add(checks::check_gradient_case(*checkpoint, *folder));
  }
}

// Differences that may not cry wolf, duals that must see an error of 1e-3.
void check_case_g12(Report& report, const std::filesystem::path& model, int directions) {
  report.add(checks::check_random_directions(model, kDifferenceTokens,
                                             static_cast<std::uint64_t>(directions)));
  report.add(checks::check_large_tensor(model, kDualTokens, directions / kDirectionsOfAGroup));
}

}  // namespace

int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  CLI::App app("The engine's gradients against independent ones.");
  std::string model, reference, out;
  int directions = 0;
  bool quick = false, verbose = false;
  auto* model_option = app.add_option("--model", model, "checkpoint folder");
  auto* reference_option =
      app.add_option("--reference", reference, "folder of one case of float64 gradients");
  reference_option->needs(model_option);
  model_option->needs(reference_option);
  app.add_option("--out", out, "write the tables as JSON lines");
  app.add_option("--directions", directions,
                 "only case G12, in so many random directions (make check-differences: 1000)")
      ->check(CLI::Range(8, 1000000))
      ->excludes(model_option);
  app.add_flag("--quick", quick, "every seventh tensor, no reference data");
  app.add_flag("--verbose", verbose, "print every row");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    Report report(out, verbose);
    if (!model.empty()) {
      report.add(checks::check_gradient_case(model, reference));
      return report.finish();
    }
    const std::filesystem::path& tiny = checks::tiny_checkpoint();
    if (directions > 0) {
      check_case_g12(report, tiny, directions);
      return report.finish();
    }
    for (const auto& table : checks::check_against_duals(tiny, kDualTokens, quick)) {
      report.add(table);
    }
    report.add(checks::check_against_differences(tiny, kDifferenceTokens, quick));
    if (!quick) {
      check_case_g12(report, tiny, kSampleOfDirections);
      check_reference_cases(report);
    }
    return report.finish();
  } catch (const std::exception& error) {
    fmt::print(stderr, "check_gradients: {}\n", error.what());
    return 1;
  }
}
