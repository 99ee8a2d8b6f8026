#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checks/bench/sample.h"
#include "engine/ops/weight.h"

namespace checks::bench {

// A product at a slice of K3's shapes: K 7168 is the trunk's width, 3584 the experts'.
struct ProductCase {
  engine::ops::WeightKind kind;
  bool forward;
  std::int64_t tokens;
  std::int64_t cols;
  std::int64_t rows;

  std::string name() const;
  double flops() const;
  double weight_bytes() const;
};

std::vector<ProductCase> product_cases();

template <class T>
using HugePages = std::unique_ptr<T[], void (*)(void*)>;

// Memory larger than the last cache, of which every sample takes the next piece: its weights are
// cold, as a streamed model's are. The bytes are normal numbers in all three forms of a weight; scales lie
// apart, as cold, and are five neighbouring powers of two.
class ColdMemory {
 public:
  ColdMemory();
  std::span<const std::byte> take(std::size_t bytes);
  // The scales of the MXFP4 codes in a piece taken.
  const std::uint8_t* scales_of(std::span<const std::byte> codes) const;
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  HugePages<std::uint64_t> words_;
  HugePages<std::uint8_t> scales_;
  std::size_t next_ = 0;
};

// Our rate over that of what stands beside it in the same round, from the rounds whose samples were
// quiet and steady.
struct ProductResult {
  ProductCase of;
  std::int64_t rounds = 0;
  std::vector<double> of_peak = {};      // the fma peak
  std::vector<double> of_openblas = {};  // sgemm on float32 weights; more than one row
  std::vector<double> of_dram = {};      // the read rate, in packed bytes; one row
  std::vector<double> of_forward = {};   // backward: the forward product of the same shape
};

// One round: each ratio with samples of its own.
void measure_round(const std::string& instruction_set, ColdMemory& memory, ProductResult& result);

// Name of the sgemm kernel in use, or why there is none.
std::string openblas_kernel();

}  // namespace checks::bench
