// An export of a trace lets no word through that somebody wrote into its manifest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checks/measure/toy_trace.h"
#include "checks/scratch_folder.h"
#include "engine/base/budget.h"
#include "engine/base/error.h"

namespace {

using checks::read_bytes;
using checks::write_bytes;
using testing::AllOf;
using testing::HasSubstr;

// A manifest of the form that LazyLoRA writes, with other values, as JSON, in some fields.
std::string theirs(const std::map<std::string, std::string>& other = {}) {
  nlohmann::ordered_json json = {{"tag", "words"},
                                 {"layers", nlohmann::json::array()},
                                 {"text", "words of a text"},
                                 {"n_tokens", 6},
                                 {"layers_requested", 5},
                                 {"compute_dtype", "torch.bfloat16"},
                                 {"model_dir", "words of a path"}};
  for (const std::int64_t layer : {1, 2, 4}) {
    json["layers"].push_back(
        {{"layer", layer}, {"n", 6}, {"k", 2}, {"unique_experts", 4}, {"is_kda", true}});
  }
  for (const auto& [field, text] : other) json[field] = nlohmann::json::parse(text);
  return json.dump(1);
}

// Why it is not exported.
std::string refusal(const std::filesystem::path& from, const std::filesystem::path& out) {
  engine::base::RamBudget budget(1'000'000);
  try {
    engine::measure::export_trace(from, out, budget);
  } catch (const engine::base::Error& error) {
    return error.what();
  }
  return "";
}

TEST(TraceExport, NoWordsOfTheManifestGetThrough) {
  const checks::ScratchFolder scratch;
  checks::write_toy_trace(scratch / "trace");
  write_bytes(scratch / "trace" / "trace.json", theirs());
  ASSERT_EQ(refusal(scratch / "trace", scratch / "out"), "");
  EXPECT_THAT(read_bytes(scratch / "out" / "trace.json"),
              AllOf(testing::Not(HasSubstr("words")), HasSubstr("torch.bfloat16")));
  EXPECT_EQ(refusal(scratch / "out", scratch / "again"), "");
  const std::pair<const char*, const char*> faults[] = {
      {"compute_dtype", "\"my secret sentence\""},
      {"compute_dtype", "\"torch.bfloat16 of mine\""},
      {"compute_dtype", "\"\""},
      {"compute_dtype", "\"float16\""},
      {"layers_requested", "4"},
      {"layers_requested", "\"my secret\""}};
  for (const auto& [field, value] : faults) {
    write_bytes(scratch / "trace" / "trace.json", theirs({{field, value}}));
    EXPECT_THAT(refusal(scratch / "trace", scratch / "other"),
                AllOf(HasSubstr(field), HasSubstr(value), HasSubstr("trace.json")));
    EXPECT_FALSE(std::filesystem::exists(scratch / "other"));
  }
}

}  // namespace
