#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/cli/waiting.h"

namespace {

// Ends every check program with one line that a runner can count, and turns into failures what
// would otherwise read as a pass: a program that ran nothing, a disabled test, a skip without a
// reason.
class Summary : public testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const testing::TestInfo& info) override {
    if (!info.result()->Skipped()) return;
    for (int i = 0; i < info.result()->total_part_count(); ++i) {
      const auto& part = info.result()->GetTestPartResult(i);
      if (part.skipped() && std::strlen(part.message()) > 0) return;
    }
    ++unexplained_;
    fmt::print("{}.{} was skipped without a reason\n", info.test_suite_name(), info.name());
  }

  int finish() const {
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    const int failed =
        all.failed_test_count() + all.reportable_disabled_test_count() + unexplained_;
    fmt::print("{} passed, {} failed, {} skipped\n", all.successful_test_count(), failed,
               all.skipped_test_count() - unexplained_);
    return failed == 0 && all.successful_test_count() + all.skipped_test_count() > 0 ? 0 : 1;
  }

 private:
  int unexplained_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    argv[1] = argv[0];
    int count = argc - 1;
    benchmark::Initialize(&count, argv + 1);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  testing::InitGoogleMock(&argc, argv);
  auto* summary = new Summary;
  testing::UnitTest::GetInstance()->listeners().Append(summary);
  const int ran = RUN_ALL_TESTS();
  const int summed = summary->finish();
  return ran != 0 ? ran : summed;
}
