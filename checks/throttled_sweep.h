#pragma once

#include <filesystem>

#include "engine/model/model.h"

namespace checks {

// One forward and backward sweep from a device of a given speed, and what it took.
struct ThrottledSample {
  double took = 0.0;      // seconds by the clock
  double waited = 0.0;    // of it
  double computed = 0.0;  // processor time
  double others = 0.0;    // part of the machine that worked for other processes
  engine::model::SweepResult result;
};

class ThrottledSweep {
 public:
  // `sequences` random documents of `tokens` tokens. The budget is enough to read ahead, and to keep a
  // little.
  ThrottledSweep(std::filesystem::path model, std::int64_t tokens, std::int64_t sequences,
                 engine::store::Throttle::Clock clock);

  ThrottledSample run(double bytes_per_second) const;

  bool wall() const { return clock_ == engine::store::Throttle::Clock::kWall; }
  // By the wall clock, other processes make a sample worthless.
  bool disturbed(const ThrottledSample& sample) const { return wall() && sample.others > 0.05; }
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  engine::model::Batch batch(std::int64_t vocabulary) const;

 private:
  std::filesystem::path folder_;
  std::int64_t tokens_, sequences_;
  engine::store::Throttle::Clock clock_;
  std::uint64_t budget_bytes_ = 0;
};

}  // namespace checks
