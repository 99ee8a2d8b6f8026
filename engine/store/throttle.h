#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <thread>

namespace engine::store {

// A device of a given speed, for benchmarks: one transfer after the other, in the order in which they
// are asked for.
class Throttle {
 public:
  using Time = std::chrono::nanoseconds;

  enum class Clock : std::uint8_t {
    kWall,  // whoever waits sleeps
    // The processor time of this process, plus what it would have waited: as if nothing else ran on
    // the machine, and without taking that time. For a process that computes in one thread.
    kProcessor,
  };

  explicit Throttle(double bytes_per_second, Clock clock = Clock::kWall)
      : ns_per_byte_(1e9 / bytes_per_second), clock_(clock) {}

  Time now() {
    const std::lock_guard lock(mutex_);
    return read_clock();
  }

  // When the device, busy until then with what was asked for before, has transferred so much more.
  Time reserve(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const Time takes(static_cast<std::int64_t>(static_cast<double>(bytes) * ns_per_byte_));
    free_at_ = std::max(free_at_, read_clock()) + takes;
    return free_at_;
  }

  void wait_until(Time when) {
    Time missing{};
    {
      const std::lock_guard lock(mutex_);
      missing = std::max(Time{}, when - read_clock());
      waited_ += missing;
    }
    if (clock_ == Clock::kWall) std::this_thread::sleep_for(missing);
  }

  Time waited() {
    const std::lock_guard lock(mutex_);
    return waited_;
  }

 private:
  Time read_clock() const {
    if (clock_ == Clock::kWall) return std::chrono::steady_clock::now().time_since_epoch();
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + Time(used.tv_nsec) + waited_;
  }

  const double ns_per_byte_;
  const Clock clock_;
  std::mutex mutex_;
  Time free_at_{}, waited_{};
};

}  // namespace engine::store
