// Whoever mends a config.json wants to know everything that is wrong with it, not the first thing.

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "checks/model/released_config.h"
#include "checks/scratch_folder.h"
#include "checks/store/shard_files.h"
#include "engine/model/config.h"

namespace {

using checks::refusal;
using checks::released_config;
using engine::model::inspect_config;
using nlohmann::json;
using testing::HasSubstr;

// All of them at once, one finding each and none that only follows from another.
TEST(ConfigFindings, EveryWrongField) {
  json config = released_config();
  json& text = config["text_config"];
  text["num_hidden_layers"] = 0;
  text["num_experts"] = "896";
  text.erase("hidden_size");
  text["rms_norm_eps"] = -1;
  text["moe_intermediate_size"] = 3073;
  text["topk_method"] = "greedy";
  text["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 16;
  text["quantization_config"]["quant_method"] = "fp8";
  config["vocab_size"] = 7;
  const checks::ScratchFolder folder;
  checks::write_bytes(folder / "config.json", config.dump());
  std::vector<engine::store::Finding> findings;
  EXPECT_FALSE(inspect_config(folder.path(), findings));
  std::vector<std::string> messages;
  for (const auto& finding : findings) {
    EXPECT_EQ(finding.file, (folder / "config.json").string());
    messages.push_back(finding.message);
  }
  EXPECT_THAT(messages,
              testing::UnorderedElementsAre(
                  HasSubstr("num_hidden_layers is 0"), HasSubstr("num_experts is \"896\""),
                  HasSubstr("hidden_size is missing"), HasSubstr("rms_norm_eps is -1"),
                  HasSubstr("moe_intermediate_size is 3073"),
                  HasSubstr("topk_method is \"greedy\""), HasSubstr("group_size is 16"),
                  HasSubstr("quant_method is \"fp8\""), HasSubstr("vocab_size is 7")));
  EXPECT_THAT(refusal(config), HasSubstr("(and 8 more"));
  // And none where nothing is wrong.
  findings.clear();
  checks::write_bytes(folder / "config.json", released_config().dump());
  EXPECT_TRUE(inspect_config(folder.path(), findings));
  EXPECT_TRUE(findings.empty());
  // No file, and no JSON, are findings, too.
  checks::write_bytes(folder / "config.json", "{");
  EXPECT_FALSE(inspect_config(folder.path(), findings));
  EXPECT_EQ(findings.size(), 1u);
}

// A reader that stops at the first wrong field passes every test of one wrong field; two tell.
TEST(ConfigFindings, PlantedFaults) {
  json config = released_config();
  config["text_config"]["hidden_size"] = 0;
  const std::string one = refusal(config);
  config["text_config"]["vocab_size"] = 0;
  const std::string two = refusal(config);
  EXPECT_THAT(one, testing::Not(HasSubstr("more")));
  EXPECT_THAT(two, HasSubstr("(and 1 more"));
}

}  // namespace
