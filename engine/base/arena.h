#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

namespace engine::base {

// Carves typed spans out of one block, 64-byte aligned, in the order of the calls. Without a block
// it only measures: the code that lays out a workspace is then also the code that says how large it
// is. What is carved is not initialised.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::span<std::byte> block) : block_(block), measuring_(false) {}

  template <class T>
  std::span<T> take(std::int64_t count) {
    assert(count >= 0);
    const std::size_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    used_ = begin + static_cast<std::size_t>(count) * sizeof(T);
    if (used_ > peak_) peak_ = used_;
    if (measuring_) return {static_cast<T*>(nullptr), static_cast<std::size_t>(0)};
    assert(used_ <= block_.size());
    return {reinterpret_cast<T*>(block_.data() + begin), static_cast<std::size_t>(count)};
  }

  bool measuring() const { return measuring_; }
  std::size_t peak_bytes() const { return peak_; }

  // Gives back, when it ends, everything that was taken since it began.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), used_(arena.used_) {}
    ~Scope() { arena_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::size_t used_;
  };

 private:
  static constexpr std::size_t kAlignment = 64;
  std::span<std::byte> block_;
  bool measuring_ = true;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace engine::base
