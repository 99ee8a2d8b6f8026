#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace engine::base {

class RamBudget;

// Memory taken from a RamBudget under a name, zeroed, 4096-aligned, given back by the destructor.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  std::span<T> span() { return {data_, count_}; }
  std::span<const T> span() const { return {data_, count_}; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  friend class RamBudget;
  void swap(Buffer& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    std::swap(name_, other.name_);
  }
  RamBudget* budget_ = nullptr;
  T* data_ = nullptr;
  std::size_t count_ = 0;
  std::string name_;
};

// Every large buffer is taken here by name. Not thread-safe: buffers are taken between parallel
// regions.
class RamBudget {
 public:
  explicit RamBudget(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  RamBudget(const RamBudget&) = delete;
  RamBudget& operator=(const RamBudget&) = delete;

  // Errors    Error with the table of what holds how much, if `count` more T do not fit in the budget
  //           or, within it, in the machine
  template <class T>
  Buffer<T> take(const std::string& name, std::int64_t count) {
    Buffer<T> buffer;
    const std::uint64_t bytes = static_cast<std::uint64_t>(count) * sizeof(T);
    charge(name, bytes);
    if (bytes == 0) return buffer;
    void* const memory = ::operator new (bytes, std::align_val_t{4096}, std::nothrow);
    if (memory == nullptr) refuse_allocation(name, bytes);
    buffer.budget_ = this;
    buffer.name_ = name;
    buffer.count_ = static_cast<std::size_t>(count);
    buffer.data_ = static_cast<T*>(memory);
    std::memset(memory, 0, bytes);
    return buffer;
  }

  // Not zeroed, and in huge pages where the system has them: what is read into. It costs no memory
  // before it is written to, and little time then.
  // Errors    as take
  Buffer<std::byte> take_room(const std::string& name, std::int64_t bytes);

  // Charges for good what is not a buffer and is there already, whether it fits or not: code,
  // libraries, stacks, the tensor index. Never refuses: the plan that follows finds nothing free and
  // says, in one table, what all of it needs.
  void reserve(const std::string& name, std::uint64_t bytes) { hold(name, bytes); }

  std::uint64_t limit_bytes() const { return limit_bytes_; }
  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  std::uint64_t free_bytes() const {
    return limit_bytes_ > used_bytes_ ? limit_bytes_ - used_bytes_ : 0;
  }
  // One line a name: bytes held now.
  std::string table() const;

 private:
  template <class T>
  friend class Buffer;
  friend class Charge;
  void charge(const std::string& name, std::uint64_t bytes);
  void hold(const std::string& name, std::uint64_t bytes);
  [[noreturn]] void refuse_allocation(const std::string& name, std::uint64_t bytes);
  void release(const std::string& name, std::uint64_t bytes) noexcept;

  std::uint64_t limit_bytes_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::map<std::string, std::uint64_t> held_;
};

template <class T>
Buffer<T>::~Buffer() {
  if (data_ == nullptr) return;
  ::operator delete (static_cast<void*>(data_), std::align_val_t{4096});
  budget_->release(name_, static_cast<std::uint64_t>(count_) * sizeof(T));
}

// Bytes held in a RamBudget under a name for what takes its memory elsewhere: tables, copies, what a
// library allocates. Given back by the destructor.
class Charge {
 public:
  // Errors    as grow
  Charge(RamBudget& budget, std::string name, std::uint64_t bytes = 0)
      : budget_(budget), name_(std::move(name)) {
    grow(bytes);
  }
  ~Charge() {
    if (bytes_ > 0) budget_.release(name_, bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  // Errors    Error with the table of what holds how much, if so many more do not fit
  void grow(std::uint64_t bytes) {
    if (bytes > 0) budget_.charge(name_, bytes);
    bytes_ += bytes;
  }

 private:
  RamBudget& budget_;
  std::string name_;
  std::uint64_t bytes_ = 0;
};

// "1.5 GiB", "800MB", "4096": B, KB/MB/GB (powers of 1000), KiB/MiB/GiB (powers of 1024); bytes
// without a unit.
// Errors    Error naming the text
std::uint64_t parse_bytes(const std::string& text);
std::string format_bytes(std::uint64_t bytes);

// Half of the smallest of physical memory and the cgroup limits (v1 and v2) of this process.
std::uint64_t default_ram_bytes();

// Of this process, from /proc/self/status; 0 where the kernel does not say.
std::uint64_t rss_bytes();
std::uint64_t peak_rss_bytes();
std::uint64_t swap_bytes();

}  // namespace engine::base
