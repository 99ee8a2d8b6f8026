#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "checks/model/released_config.h"

namespace {

using checks::refusal;
using checks::released_config;
using engine::model::parse_config;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json with_quantization(const std::function<void(json&)>& change, bool at_root) {
  json config = released_config();
  json block = config["text_config"]["quantization_config"];
  change(block);
  if (at_root) config["text_config"].erase("quantization_config");
  (at_root ? config : config["text_config"])["quantization_config"] = block;
  return config;
}

TEST(QuantizationCheck, D7_QuantizationBlockWhereverItStands) {
  for (const bool at_root : {false, true}) {
    const auto message = [&](const std::string& pointer, const char* value) {
      return refusal(with_quantization(
          [&](json& block) { block[json::json_pointer(pointer)] = json::parse(value); }, at_root));
    };
    const std::string path =
        at_root ? "json: quantization_config" : "text_config.quantization_config";
    EXPECT_EQ(refusal(with_quantization([](json&) {}, at_root)), "");
    const std::string weights = "/config_groups/group_0/weights";
    EXPECT_THAT(message(weights + "/group_size", "16"),
                AllOf(HasSubstr(path + ".config_groups.group_0.weights.group_size is 16"),
                      HasSubstr("only 32")));
    EXPECT_THAT(message("/group_size", "16"), HasSubstr(path + ".group_size is 16"));
    EXPECT_THAT(message(weights + "/scale_dtype", R"("bf16")"),
                AllOf(HasSubstr("scale_dtype is \"bf16\""), HasSubstr("uint8")));
    EXPECT_THAT(message(weights + "/num_bits", "8"), HasSubstr("num_bits is 8"));
    EXPECT_THAT(message(weights + "/type", R"("int")"), HasSubstr("type is \"int\""));
    EXPECT_THAT(message(weights + "/symmetric", "false"), HasSubstr("symmetric"));
    EXPECT_THAT(message("/config_groups/group_0/input_activations", R"({"num_bits": 8})"),
                HasSubstr("input_activations is {\"num_bits\":8}"));
    EXPECT_THAT(message("/quantization_status", R"("frozen")"),
                HasSubstr("quantization_status is \"frozen\""));
    EXPECT_THAT(message("/status", R"("frozen")"), HasSubstr("status is \"frozen\""));
    EXPECT_THAT(message("/format", R"("nvfp4-pack-quantized")"), HasSubstr("format is \"nvfp4"));
    EXPECT_THAT(message("/quant_method", R"("fp8")"), HasSubstr("quant_method is \"fp8\""));
    EXPECT_THAT(message("/ignore", R"(["re:.*self_attn.*", "re:.*mlp.*", "re:.*lm_head.*"])"),
                AllOf(HasSubstr("ignore"), HasSubstr("shared_experts")));
    EXPECT_THAT(message("/ignore", R"("re:.*")"), HasSubstr("ignore is \"re:.*\", not a list"));
  }
  json config = released_config();
  EXPECT_TRUE(parse_config(config.dump(), "x").quantization_stated);
  config["text_config"].erase("quantization_config");
  EXPECT_FALSE(parse_config(config.dump(), "x").quantization_stated);
  config["quantization_config"]["group_size"] = 32;
  EXPECT_TRUE(parse_config(config.dump(), "x").quantization_stated);
  config["quantization_config"] = 4;
  EXPECT_THAT(refusal(config), HasSubstr("quantization_config is not an object"));
}

// A reader that takes the block's place for granted sees one of the two blocks, and one that looks for
// group_size at one depth misses it at the others.
TEST(QuantizationCheck, PlantedFaults) {
  for (const char* pointer :
       {"/quantization_config/group_size", "/text_config/quantization_config/group_size",
        "/text_config/quantization_config/config_groups/group_0/group_size",
        "/text_config/quantization_config/more/0/group_size",
        "/text_config/quantization_config/config_groups/group_7/weights/group_size"}) {
    json config = released_config();
    config["text_config"]["quantization_config"]["more"] = json::array({json::object()});
    config[json::json_pointer(pointer)] = 32;
    EXPECT_EQ(refusal(config), "") << pointer;
    config[json::json_pointer(pointer)] = 16;
    EXPECT_THAT(refusal(config), HasSubstr("group_size is 16")) << pointer;
  }
}

}  // namespace
