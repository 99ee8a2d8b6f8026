#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "checks/table_record.h"
#include "engine/cli/waiting.h"

namespace {

// Ends every check program with one line that a runner can count, and turns into failures what
// would otherwise read as a pass: a program that ran nothing, a disabled test, a skip without a
// reason.
class Summary : public testing::EmptyTestEventListener {
 public:
  explicit Summary(checks::TableRecord& record) : record_(record) {}

  void OnTestEnd(const testing::TestInfo& info) override {
    write(info);
    if (!info.result()->Skipped()) return;
    for (int i = 0; i < info.result()->total_part_count(); ++i) {
      const auto& part = info.result()->GetTestPartResult(i);
      if (part.skipped() && std::strlen(part.message()) > 0) return;
    }
    ++unexplained_;
    fmt::print("{}.{} was skipped without a reason\n", info.test_suite_name(), info.name());
  }

  int finish() {
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    const int failed =
        all.failed_test_count() + all.reportable_disabled_test_count() + unexplained_;
    const int skipped = all.skipped_test_count() - unexplained_;
    record_.finish(all.successful_test_count(), failed, skipped);
    fmt::print("{} passed, {} failed, {} skipped\n", all.successful_test_count(), failed, skipped);
    return failed == 0 && all.successful_test_count() + all.skipped_test_count() > 0 ? 0 : 1;
  }

 private:
  // A row a test, with what it recorded: numbers as numbers.
  void write(const testing::TestInfo& info) {
    const testing::TestResult& result = *info.result();
    checks::TableRecord::Figures figures;
    for (int i = 0; i < result.test_property_count(); ++i) {
      const std::string value = result.GetTestProperty(i).value();
      char* end = nullptr;
      const double number = std::strtod(value.c_str(), &end);
      auto& figure = figures[result.GetTestProperty(i).key()];
      if (!value.empty() && *end == '\0') {
        figure = number;
      } else {
        figure = value;
      }
    }
    record_.row(info.test_suite_name(), info.name(),
                result.Failed()    ? "fails"
                : result.Skipped() ? "skipped"
                                   : "holds",
                figures);
  }

  checks::TableRecord& record_;
  int unexplained_ = 0;
};

int run(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    argv[1] = argv[0];
    int count = argc - 1;
    benchmark::Initialize(&count, argv + 1);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  testing::InitGoogleMock(&argc, argv);
  const std::string name = std::filesystem::path(argv[0]).filename();
  if (argc != 1 && (argc != 3 || std::strcmp(argv[1], "--out") != 0)) {
    fmt::print(stderr, "usage: {} [--gtest_...] [--out FILE] | --bench ...\n", name);
    return 2;
  }
  checks::TableRecord record(name, argc == 3 ? argv[2] : "");
  auto* summary = new Summary(record);
  testing::UnitTest::GetInstance()->listeners().Append(summary);
  const int ran = RUN_ALL_TESTS();
  const int summed = summary->finish();
  return ran != 0 ? ran : summed;
}

}  // namespace

int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}
