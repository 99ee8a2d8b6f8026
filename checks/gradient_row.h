#pragma once

#include <string>
#include <vector>

namespace checks {

// One line of a gradient table.
struct GradientRow {
  enum class Outcome { kHolds, kFails, kBelowResolution, kRoutingFlip };
  std::string name;
  double norm = 0.0;     // of the gradient that is checked
  double error = 0.0;    // what the comparison found, relative to the norm
  double allowed = 0.0;  // likewise
  Outcome outcome = Outcome::kFails;

  // Within, never "does not exceed": NaN fails.
  static Outcome judge(double error, double allowed) {
    return error <= allowed ? Outcome::kHolds : Outcome::kFails;
  }
};

// A wrong gradient that the table's own comparison was shown: it must not hold.
struct PlantedGradient {
  std::string what;
  bool refused = false;
};

struct GradientTable {
  std::string title;
  std::vector<GradientRow> rows;
  std::vector<PlantedGradient> planted;

  void plant(const std::string& what, const GradientRow& row) {
    planted.push_back({what, row.outcome == GradientRow::Outcome::kFails});
  }
};

}  // namespace checks
