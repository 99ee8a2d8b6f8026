#include "checks/bench/product_case.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "checks/bench/machine.h"
#include "engine/base/rng.h"
#include "engine/ops/matmul.h"

#ifdef LAZYLORA_OPENBLAS
#include <cblas.h>
#endif

namespace checks::bench {
namespace {

using engine::ops::Weight;
using engine::ops::WeightKind;

constexpr std::size_t kCodeBytesAScale = 16;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::int64_t kWarmUpRows = 24;
constexpr std::size_t kMinimumMemory = std::size_t{256} << 20;
constexpr std::size_t kMaximumMemory = std::size_t{1} << 30;

template <class T>
HugePages<T> huge_pages(std::size_t bytes) {
  const std::size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  auto* pages = static_cast<T*>(std::aligned_alloc(kHugePage, whole));
  madvise(pages, whole, MADV_HUGEPAGE);
  return {pages, &std::free};
}

std::size_t memory_size() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::size_t twice = cache > 0 ? 2 * static_cast<std::size_t>(cache) : kMinimumMemory;
  return std::clamp(twice, kMinimumMemory, kMaximumMemory);
}

// Aligned as the engine's arenas are: a vector's sixteen bytes would let every load cross a line.
class Floats {
 public:
  explicit Floats(std::int64_t count)
      : size_(static_cast<std::size_t>(count)),
        data_(static_cast<float*>(
                  std::aligned_alloc(kLine, (size_ * sizeof(float) + kLine - 1) / kLine * kLine)),
              &std::free) {
    std::fill_n(data_.get(), size_, 0.25f);
  }
  std::span<float> all() { return {data_.get(), size_}; }

 private:
  static constexpr std::size_t kLine = 64;
  std::size_t size_;
  std::unique_ptr<float[], void (*)(void*)> data_;
};

struct Activations {
  Floats x, y;
  explicit Activations(const ProductCase& c) : x(c.tokens * c.cols), y(c.tokens * c.rows) {}
};

Sample run_product(const ProductCase& c, ColdMemory& memory, Activations& a, bool forward) {
  const auto product = [&](std::int64_t rows) {
    const auto bytes = memory.take(static_cast<std::size_t>(rows * c.cols) * 2);
    const Weight w = {c.kind, bytes.data(), memory.scales_of(bytes), rows, c.cols};
    const auto y = a.y.all().first(static_cast<std::size_t>(c.tokens * rows));
    if (forward) {
      engine::ops::matmul_forward(a.x.all(), w, y, c.tokens);
    } else {
      engine::ops::matmul_backward(y, w, a.x.all(), c.tokens);
    }
  };
  return timed([&] { product(kWarmUpRows); }, [&] { product(c.rows); });
}

#ifdef LAZYLORA_OPENBLAS
Sample run_openblas(const ProductCase& c, ColdMemory& memory, Activations& a) {
  const auto tokens = static_cast<int>(c.tokens);
  const auto cols = static_cast<int>(c.cols);
  const auto product = [&](std::int64_t all_rows) {
    const auto bytes = memory.take(static_cast<std::size_t>(all_rows * c.cols) * sizeof(float));
    const auto* w = reinterpret_cast<const float*>(bytes.data());
    const auto rows = static_cast<int>(all_rows);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, tokens, rows, cols, 1.0f, a.x.all().data(),
                cols, w, cols, 0.0f, a.y.all().data(), rows);
  };
  return timed([&] { product(kWarmUpRows); }, [&] { product(c.rows); });
}
#endif

// About a millisecond of it.
constexpr int kPeakRuns = 150;

double peak_flops(const std::string& instruction_set) {
  return kPeakRuns * fma_chain_flops(instruction_set);
}

Sample run_peak(const std::string& instruction_set) {
  return timed([&] { run_fma_chains(instruction_set); },
               [&] {
                 for (int i = 0; i < kPeakRuns; ++i) run_fma_chains(instruction_set);
               });
}

// Whether no other thread of the physical core takes a share of its loads, as a virtual machine's neighbour
// may: alone, chains that load run at nearly the speed of chains that do not; with a neighbour, at half.
constexpr double kAlone = 0.75;
constexpr int kAloneRuns = 30;

bool core_is_ours(const std::string& instruction_set) {
  const auto run = [&](auto chains) {
    return timed([] {},
                 [&] {
                   for (int i = 0; i < kAloneRuns; ++i) chains(instruction_set);
                 })
        .wall;
  };
  return kAlone * run(run_loading_chains) <= run(run_fma_chains);
}

constexpr std::size_t kReadBytes = std::size_t{8} << 20;

Sample run_read(ColdMemory& memory, bool with_prefetch) {
  const auto bytes = memory.take(kReadBytes);
  return timed([&] { read_all(bytes.first(kWarmUpRows * 64), with_prefetch); },
               [&] { read_all(bytes, with_prefetch); });
}

// The way that reads faster on this machine.
Sample run_read(ColdMemory& memory) {
  constexpr int kTries = 25;
  const auto median = [&](bool with_prefetch) {
    std::vector<double> walls;
    for (int i = 0; i < kTries; ++i) walls.push_back(run_read(memory, with_prefetch).wall);
    return spread_of(walls).median;
  };
  static const bool with_prefetch = median(true) < median(false);
  return run_read(memory, with_prefetch);
}

// Keeps the thread on the core, of those it may use, that repeats a product out of its caches fastest: another
// may share its physical core with a neighbour who takes half of its buffers, and no clock tells.
void settle_on_fastest_core(ColdMemory& memory) {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    return set;
  }();
  constexpr int kTries = 25;
  const ProductCase c = {WeightKind::kMxfp4, true, 1, 3584, 240};
  Activations a(c);
  const auto bytes = memory.take(static_cast<std::size_t>(c.rows * c.cols) / 2);
  const Weight w = {c.kind, bytes.data(), memory.scales_of(bytes), c.rows, c.cols};
  const auto product = [&] { engine::ops::matmul_forward(a.x.all(), w, a.y.all(), 1); };
  const auto keep_to = [](int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return sched_setaffinity(0, sizeof(one), &one) == 0;
  };
  std::optional<std::pair<double, int>> fastest;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || !keep_to(core)) continue;
    std::vector<double> walls;
    for (int i = 0; i < kTries; ++i) walls.push_back(timed([] {}, product).wall);
    const std::pair rate{spread_of(walls).median, core};
    if (!fastest || rate < *fastest) fastest = rate;
  }
  if (fastest) keep_to(fastest->second);
}

}  // namespace

std::string ProductCase::name() const {
  return fmt::format("{}_{}/rows:{}/K:{}", kind == WeightKind::kBf16 ? "bf16" : "mxfp4",
                     forward ? "forward" : "backward", tokens, cols);
}

double ProductCase::flops() const { return 2.0 * static_cast<double>(tokens * rows * cols); }

double ProductCase::weight_bytes() const {
  return static_cast<double>(rows * cols) * (kind == WeightKind::kBf16 ? 2.0 : 17.0 / 32.0);
}

std::vector<ProductCase> product_cases() {
  std::vector<ProductCase> cases;
  const auto add = [&](WeightKind kind, bool forward, const std::vector<std::int64_t>& all_tokens) {
    for (const std::int64_t tokens : all_tokens) {
      for (const std::int64_t cols : {3584, 7168}) {
        // A sample of a few milliseconds, but no fewer rows than a library wants to be fast, and
        // backward, where rows are what is summed over, not so few that reading d_x is much of it:
        // an expert has 3072.
        const std::int64_t rows = tokens == 1                 ? 3840
                                  : tokens <= 32              ? (forward ? 480 : 1920)
                                  : tokens <= 128 || !forward ? 240
                                                              : 120;
        cases.push_back({kind, forward, tokens, cols, rows});
      }
    }
  };
  add(WeightKind::kBf16, true, {1, 32, 128, 1024});
  add(WeightKind::kMxfp4, true, {1, 8, 20, 32, 128});
  add(WeightKind::kBf16, false, {32, 128, 1024});
  add(WeightKind::kMxfp4, false, {20, 32, 128});
  return cases;
}

// In huge pages where the system has them, scales too, as an engine's own read buffers should be: cold
// weights in small pages would measure address translation.
ColdMemory::ColdMemory()
    : size_(memory_size() / kHugePage * kHugePage),
      words_(huge_pages<std::uint64_t>(size_)),
      scales_(huge_pages<std::uint8_t>(size_ / kCodeBytesAScale)) {
  // Every sixteen bits a number of size 0.5 to 1 in bf16, and so every pair in float32; as MXFP4
  // codes, any.
  const engine::base::CounterRng rng(5, "cold memory");
  for (std::size_t i = 0; i < size_ / sizeof(std::uint64_t); ++i) {
    words_[i] = (rng.bits(i) & 0x807F807F807F807Fu) | 0x3F003F003F003F00u;
  }
  for (std::size_t i = 0; i < size_ / kCodeBytesAScale; ++i) {
    scales_[i] = static_cast<std::uint8_t>(118 + rng.bits(i) % 5);
  }
}

std::span<const std::byte> ColdMemory::take(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (next_ + bytes > size()) next_ = 0;
  const auto* from = reinterpret_cast<const std::byte*>(words_.get()) + next_;
  next_ += (bytes + kPage - 1) / kPage * kPage;
  return {from, bytes};
}

const std::uint8_t* ColdMemory::scales_of(std::span<const std::byte> codes) const {
  const auto* begin = reinterpret_cast<const std::byte*>(words_.get());
  return scales_.get() + static_cast<std::size_t>(codes.data() - begin) / kCodeBytesAScale;
}

void measure_round(const std::string& instruction_set, ColdMemory& memory, ProductResult& result) {
  const ProductCase& c = result.of;
  settle_on_fastest_core(memory);
  Activations a(c);
  ++result.rounds;
  const auto keep = [](std::vector<double>& ratios, std::optional<double> ratio,
                       double times = 1.0) {
    if (ratio) ratios.push_back(*ratio * times);
  };
  const auto ours = [&] { return run_product(c, memory, a, c.forward); };
  const auto beside = [&](auto other) {
    return ratio_beside(other, ours, [&] { return core_is_ours(instruction_set); });
  };
  keep(result.of_peak, beside([&] { return run_peak(instruction_set); }),
       c.flops() / peak_flops(instruction_set));
  if (!c.forward) {
    keep(result.of_forward, beside([&] { return run_product(c, memory, a, true); }));
  } else if (c.tokens == 1) {
    keep(result.of_dram, beside([&] { return run_read(memory); }),
         c.weight_bytes() / static_cast<double>(kReadBytes));
  } else {
#ifdef LAZYLORA_OPENBLAS
    keep(result.of_openblas, beside([&] { return run_openblas(c, memory, a); }));
#endif
  }
}

std::string openblas_kernel() {
#ifdef LAZYLORA_OPENBLAS
  openblas_set_num_threads(1);
  return openblas_get_corename();
#else
  return "none: not installed when this was built";
#endif
}

}  // namespace checks::bench
