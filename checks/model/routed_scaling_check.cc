#include <gtest/gtest.h>

#include <filesystem>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/oracle_run.h"
#include "checks/scratch_folder.h"

namespace {

namespace fs = std::filesystem;

// Gate of check_forward on a pass from the tokens on: docs/numerics.md.
constexpr double kGate = 1e-3;

// The tiny checkpoint with another routed_scaling_factor; its own, like the release's, is 1.
void write_scaled(const fs::path& folder, const std::string& factor) {
  for (const auto& entry : fs::directory_iterator(checks::tiny_checkpoint())) {
    const fs::path name = entry.path().filename();
    if (name != "config.json") fs::create_symlink(fs::absolute(entry.path()), folder / name);
  }
  const std::string key = "\"routed_scaling_factor\": ";
  std::string config = checks::read_bytes(checks::tiny_checkpoint() / "config.json");
  const std::size_t at = config.find(key + "1.0");
  ASSERT_NE(at, std::string::npos);
  config.replace(at + key.size(), 3, factor);
  checks::write_bytes(folder / "config.json", config);
}

// The factor is of the routed experts' weights alone; where it is 1 nothing would show that. Behind
// their sum the latent norm takes it out again, but for its epsilon: what shows here is a factor on
// anything else (the row shared-expert-scaled of checks/mutants).
TEST(RoutedScaling, IsOfTheRoutedExpertsAlone) {
  const checks::ScratchFolder folder;
  write_scaled(folder.path(), "2.5");
  checks::Engine engine(folder.path());
  const engine::model::Batch batch =
      checks::forward_batch(checks::random_ids(9, engine.config().vocabulary, 4));
  const auto got = checks::widen(checks::run_forward(engine, batch, nullptr).logits);
  EXPECT_LE(checks::relative_norm_error(got, checks::oracle_logits(folder.path(), batch)), kGate);
}

}  // namespace
