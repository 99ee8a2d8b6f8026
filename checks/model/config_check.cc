#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checks/model/released_config.h"
#include "checks/reference.h"
#include "checks/scratch_folder.h"
#include "checks/store/shard_files.h"
#include "engine/base/sha256.h"
#include "engine/model/config.h"

namespace {

using checks::error_of;
using checks::refusal;
using checks::released_config;
using engine::model::Config;
using engine::model::load_config;
using engine::model::parse_config;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// The same with the fields at the root, under their flat names.
json flat() {
  json root = released_config().at("text_config");
  const json linear = root.at("linear_attn_config");
  root.erase("linear_attn_config");
  root.erase("head_dim");
  root["kda_num_heads"] = linear.at("num_heads");
  root["kda_head_dim"] = linear.at("head_dim");
  for (const char* name : {"short_conv_kernel_size", "gate_lower_bound", "full_attn_layers"}) {
    root[name] = linear.at(name);
  }
  root["situ_beta"] = root.at("activation_situ_beta");
  root["situ_linear_beta"] = root.at("activation_situ_linear_beta");
  root.erase("activation_situ_beta");
  root.erase("activation_situ_linear_beta");
  return root;
}

void expect_released(const Config& c) {
  EXPECT_EQ(c.hidden, 7168);
  EXPECT_EQ(c.layers, 93);
  EXPECT_EQ(c.vocabulary, 163840);
  EXPECT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.kda_heads, 96);
  EXPECT_EQ(c.kda_width, 128);
  EXPECT_EQ(c.conv_kernel, 4);
  EXPECT_EQ(c.gate_lower_bound, -5.0f);
  EXPECT_EQ(c.mla_heads, 96);
  EXPECT_EQ(c.q_lora_rank, 1536);
  EXPECT_EQ(c.kv_lora_rank, 512);
  EXPECT_EQ(c.nope_width, 128);
  EXPECT_EQ(c.rope_width, 64);
  EXPECT_EQ(c.value_width, 128);
  EXPECT_EQ(c.experts, 896);
  EXPECT_EQ(c.chosen, 16);
  EXPECT_EQ(c.shared_experts, 2);
  EXPECT_EQ(c.latent, 3584);
  EXPECT_EQ(c.inner, 3072);
  EXPECT_EQ(c.routed_scaling, 1.0f);
  EXPECT_TRUE(c.renormalize);
  EXPECT_TRUE(c.latent_norm);
  EXPECT_EQ(c.dense_layers, 1);
  EXPECT_EQ(c.dense_inner, 33792);
  EXPECT_EQ(c.block, 12);
  EXPECT_EQ(c.situ_beta, 4.0f);
  EXPECT_EQ(c.situ_linear_beta, 25.0f);
  std::vector<std::size_t> mla;
  for (std::size_t n = 0; n < c.is_mla.size(); ++n) {
    if (c.is_mla[n]) mla.push_back(n);
  }
  EXPECT_EQ(mla.size(), 24u);
  EXPECT_EQ(mla.front(), 3u);  // listed as 4
  EXPECT_EQ(std::vector<std::size_t>(mla.end() - 2, mla.end()), (std::vector<std::size_t>{91, 92}));
  EXPECT_EQ(c.bank_entries(), 8);
}

TEST(ConfigCheck, D1_NestedOrFlat) {
  expect_released(parse_config(released_config().dump(), "x"));
  expect_released(parse_config(flat().dump(), "x"));
  // At the root of a nested file, saying the same.
  json both = released_config();
  both["hidden_size"] = 7168;
  both["kda_num_heads"] = 96;
  both["situ_beta"] = 4;
  expect_released(parse_config(both.dump(), "x"));
}

TEST(ConfigCheck, D1_PlacesThatDisagree) {
  const auto with = [](const char* name, const char* value) {
    json config = released_config();
    config[name] = json::parse(value);
    return refusal(config);
  };
  EXPECT_THAT(with("hidden_size", "4096"),
              AllOf(HasSubstr("DIR/config.json"), HasSubstr("hidden_size is 4096"),
                    HasSubstr("text_config.hidden_size is 7168")));
  EXPECT_THAT(with("kda_num_heads", "64"),
              AllOf(HasSubstr("kda_num_heads is 64"),
                    HasSubstr("text_config.linear_attn_config.num_heads is 96")));
  EXPECT_THAT(with("situ_beta", "3.0"), AllOf(HasSubstr("situ_beta is 3"), HasSubstr("is 4")));
  EXPECT_THAT(with("moe_renormalize", "false"), HasSubstr("moe_renormalize"));
  EXPECT_THAT(with("full_attn_layers", "[4, 8]"), HasSubstr("full_attn_layers"));
  EXPECT_THAT(with("linear_attn_config", R"({"head_dim": 64})"),
              HasSubstr("linear_attn_config.head_dim is 64"));
  // The one name that may differ: the released file says kimi_k3 outside and kimi_linear inside.
  EXPECT_EQ(with("model_type", R"("something")"), "");
}

// Every field of docs/model.md section 1 that is not marked optional.
TEST(ConfigCheck, MissingIsNeverADefault) {
  const json text = released_config().at("text_config");
  std::set<std::string> required;
  for (const auto& [name, value] : text.items()) {
    json config = released_config();
    config["text_config"].erase(name);
    const std::string message = refusal(config);
    if (message.empty()) continue;
    required.insert(name);
    if (name != "linear_attn_config") {
      EXPECT_THAT(message, AllOf(HasSubstr(name), HasSubstr("is missing"), HasSubstr("DIR")));
    }
  }
  EXPECT_EQ(required, (std::set<std::string>{"hidden_size",
                                             "num_hidden_layers",
                                             "vocab_size",
                                             "rms_norm_eps",
                                             "num_attention_heads",
                                             "q_lora_rank",
                                             "kv_lora_rank",
                                             "qk_nope_head_dim",
                                             "qk_rope_head_dim",
                                             "v_head_dim",
                                             "num_experts",
                                             "num_experts_per_token",
                                             "num_shared_experts",
                                             "routed_expert_hidden_size",
                                             "moe_intermediate_size",
                                             "routed_scaling_factor",
                                             "first_k_dense_replace",
                                             "intermediate_size",
                                             "attn_res_block_size",
                                             "activation_situ_beta",
                                             "activation_situ_linear_beta",
                                             "linear_attn_config"}));
  for (const char* name : {"num_heads", "head_dim", "short_conv_kernel_size", "gate_lower_bound",
                           "full_attn_layers"}) {
    json config = released_config();
    config["text_config"]["linear_attn_config"].erase(name);
    EXPECT_THAT(refusal(config), AllOf(HasSubstr(name), HasSubstr("is missing")));
  }
  // text_config.head_dim is no stand-in for the KDA block's.
  json config = released_config();
  config["text_config"]["head_dim"] = 128;
  config["text_config"]["num_heads"] = 96;
  config["text_config"]["linear_attn_config"].erase("head_dim");
  EXPECT_THAT(refusal(config), HasSubstr("linear_attn_config.head_dim or kda_head_dim is missing"));
}

// One field of the released configuration changed; all the rest is the control that D1 accepts.
struct Fault {
  const char* name;
  const char* pointer;
  const char* value;  // JSON
  std::vector<const char*> says;
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> list = {
      {"Text", "/text_config/hidden_size", "\"7168\"", {"hidden_size is \"7168\", not an integer"}},
      {"Fraction", "/text_config/hidden_size", "7168.0", {"hidden_size is 7168.0, not an integer"}},
      {"Boolean", "/text_config/num_experts", "true", {"num_experts is true"}},
      {"Null", "/text_config/vocab_size", "null", {"vocab_size is null"}},
      {"Zero", "/text_config/attn_res_block_size", "0", {"attn_res_block_size is 0"}},
      {"Negative", "/text_config/v_head_dim", "-128", {"v_head_dim is -128"}},
      {"Huge",
       "/text_config/vocab_size",
       "9223372036854775808",
       {"vocab_size is 9223372036854775808"}},
      {"HugeProduct",
       "/text_config/num_attention_heads",
       "16777216",
       {"num_attention_heads", "4294967296"}},
      {"ManyLayers", "/text_config/num_hidden_layers", "100000", {"num_hidden_layers is 100000"}},
      {"D3_LatentZero",
       "/text_config/routed_expert_hidden_size",
       "0",
       {"routed_expert_hidden_size is 0"}},
      {"LatentGroup",
       "/text_config/routed_expert_hidden_size",
       "3600",
       {"routed_expert_hidden_size is 3600", "32"}},
      {"InnerGroup",
       "/text_config/moe_intermediate_size",
       "48",
       {"moe_intermediate_size is 48", "32"}},
      {"ChosenMany",
       "/text_config/num_experts_per_token",
       "65",
       {"num_experts_per_token is 65", "64"}},
      {"ChosenMore", "/text_config/num_experts", "15", {"num_experts_per_token is 16", "15"}},
      {"EpsZero", "/text_config/rms_norm_eps", "0", {"rms_norm_eps is 0"}},
      {"EpsText",
       "/text_config/rms_norm_eps",
       "\"1e-5\"",
       {"rms_norm_eps is \"1e-5\", not a number"}},
      {"BetaHuge",
       "/text_config/activation_situ_beta",
       "1e300",
       {"activation_situ_beta is 1e+300"}},
      {"BetaNegative", "/text_config/activation_situ_linear_beta", "-25", {"linear_beta", "-25"}},
      {"BoundZero",
       "/text_config/linear_attn_config/gate_lower_bound",
       "0",
       {"gate_lower_bound is 0"}},
      {"BoundPositive",
       "/text_config/linear_attn_config/gate_lower_bound",
       "5.0",
       {"gate_lower_bound is 5"}},
      {"HeadsOfALog",
       "/text_config/linear_attn_config/head_dim",
       "64",
       {"head_dim is 64", "96", "A_log"}},
      {"DenseMany",
       "/text_config/first_k_dense_replace",
       "94",
       {"first_k_dense_replace is 94", "93"}},
      {"FlagText", "/text_config/moe_renormalize", "\"yes\"", {"moe_renormalize is \"yes\""}},
      {"FlagNumber", "/text_config/latent_moe_use_norm", "1", {"latent_moe_use_norm is 1"}},
      {"Groups",
       "/text_config/num_expert_group",
       "8",
       {"text_config.num_expert_group is 8", "only 1"}},
      {"TopkGroup", "/text_config/topk_group", "4", {"topk_group is 4"}},
      {"TopkMethod",
       "/text_config/topk_method",
       "\"greedy\"",
       {"topk_method is \"greedy\"", "noaux_tc"}},
      {"RouterFunction",
       "/text_config/moe_router_activation_func",
       "\"softmax\"",
       {"\"softmax\"", "sigmoid"}},
      {"Rope", "/text_config/mla_use_nope", "false", {"mla_use_nope is false"}},
      {"OutputGate", "/text_config/mla_use_output_gate", "false", {"mla_use_output_gate is false"}},
      {"LowRankGate", "/text_config/use_full_rank_gate", "false", {"use_full_rank_gate is false"}},
      {"Activation", "/text_config/hidden_act", "\"silu\"", {"hidden_act is \"silu\"", "situ"}},
      {"NextTokens",
       "/text_config/num_nextn_predict_layers",
       "1",
       {"num_nextn_predict_layers is 1"}},
      {"Tied", "/tie_word_embeddings", "true", {"tie_word_embeddings is true"}},
      {"TiedInside",
       "/text_config/tie_word_embeddings",
       "true",
       {"text_config.tie_word_embeddings is true"}},
      {"TextConfigIsList", "/text_config", "[]", {"text_config is []"}},
      {"LinearIsText", "/text_config/linear_attn_config", "\"x\"", {"linear_attn_config is \"x\""}},
      {"FullIsNumber",
       "/text_config/linear_attn_config/full_attn_layers",
       "4",
       {"full_attn_layers is 4"}},
  };
  return list;
}

json faulty(const Fault& fault) {
  json config = released_config();
  config[json::json_pointer(fault.pointer)] = json::parse(fault.value);
  return config;
}

TEST(ConfigCheck, OneWrongField) {
  ASSERT_EQ(refusal(released_config()), "") << "the control";
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(fault.name);
    const std::string message = refusal(faulty(fault));
    EXPECT_THAT(message, HasSubstr("DIR/config.json: "));
    for (const char* part : fault.says) EXPECT_THAT(message, HasSubstr(part));
  }
}

json with_lists(const char* full, const char* kda) {
  json config = released_config();
  json& linear = config["text_config"]["linear_attn_config"];
  config["text_config"]["num_hidden_layers"] = 8;
  linear["full_attn_layers"] = json::parse(full);
  linear["kda_layers"] = json::parse(kda);
  return config;
}

TEST(ConfigCheck, D5_LayerListsCountFromOne) {
  const char* kda = "[1, 2, 3, 5, 6]";
  EXPECT_EQ(refusal(with_lists("[4, 7, 8]", kda)), "") << "the last two layers may both be MLA";
  const Config config = parse_config(with_lists("[4, 7, 8]", kda).dump(), "x");
  EXPECT_EQ(config.is_mla,
            (std::vector<bool>{false, false, false, true, false, false, true, true}));
  EXPECT_THAT(refusal(with_lists("[0, 4, 8]", "[1, 2, 3, 5, 6, 7]")),
              AllOf(HasSubstr("full_attn_layers holds 0"), HasSubstr("from 1 to 8")));
  EXPECT_THAT(refusal(with_lists("[4, 9]", "[1, 2, 3, 5, 6, 7, 8]")),
              AllOf(HasSubstr("full_attn_layers holds 9"), HasSubstr("to 8")));
  EXPECT_THAT(refusal(with_lists("[4, 8]", "[1, 2, 3, 5, 6, 7, 9]")),
              HasSubstr("kda_layers holds 9"));
  EXPECT_THAT(refusal(with_lists("[4, 8]", "[1, 2, 3, 5, 6]")),
              AllOf(HasSubstr("kda_layers"), HasSubstr("both miss layer 7")));
  EXPECT_THAT(refusal(with_lists("[4, 8]", "[1, 2, 3, 4, 5, 6, 7]")),
              AllOf(HasSubstr("kda_layers"), HasSubstr("both list layer 4")));
  EXPECT_THAT(refusal(with_lists("[4, 4, 8]", "[1, 2, 3, 5, 6, 7]")), HasSubstr("layer 4 twice"));
  EXPECT_THAT(refusal(with_lists("[4, 8.0]", kda)), HasSubstr("full_attn_layers holds 8.0"));
  EXPECT_THAT(refusal(with_lists("[4, -1]", kda)), HasSubstr("full_attn_layers holds -1"));
  EXPECT_THAT(refusal(with_lists("[4, \"8\"]", kda)), HasSubstr("full_attn_layers holds \"8\""));
  // kda_layers may be absent; full_attn_layers may not.
  json config_without = with_lists("[4, 8]", kda);
  config_without["text_config"]["linear_attn_config"].erase("kda_layers");
  EXPECT_EQ(refusal(config_without), "");
}

// D11: the released text_config calls itself by the older family's name and is K3 all the same; a
// configuration of that family is refused for what it lacks, never run as K3 with something made
// up.
TEST(ConfigCheck, D11_TheOlderFamilysName) {
  json config = released_config();
  ASSERT_EQ(config["text_config"]["model_type"], "kimi_linear");
  EXPECT_EQ(refusal(config), "");
  config["model_type"] = "kimi_linear";
  expect_released(parse_config(config.dump(), "x"));
  config["text_config"].erase("attn_res_block_size");
  EXPECT_THAT(refusal(config), HasSubstr("attn_res_block_size is missing"));
  config = released_config();
  config["text_config"]["hidden_act"] = "silu";
  config["text_config"].erase("activation_situ_beta");
  EXPECT_THAT(refusal(config), HasSubstr("activation_situ_beta or situ_beta is missing"));
}

TEST(ConfigCheck, Text) {
  const auto message = [](const std::string& text) {
    return error_of([&] { parse_config(text, "DIR/config.json"); });
  };
  const std::string sound = released_config().dump();
  ASSERT_EQ(message(sound), "");
  EXPECT_THAT(message(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(message(sound.substr(0, sound.size() - 1)), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("not an object"));
  EXPECT_THAT(message(sound + "x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message(checks::replaced(sound, "\"vocab_size\":163840", "\"vocab_size\":NaN")),
              HasSubstr("not valid JSON"));
  // The library would keep the second.
  EXPECT_THAT(message(checks::replaced(sound, "\"vocab_size\":163840",
                                       "\"vocab_size\":5,\"vocab_size\":163840")),
              AllOf(HasSubstr("vocab_size"), HasSubstr("twice")));
  EXPECT_THAT(message(std::string(100'000, '[')), testing::Not(testing::IsEmpty()));
  EXPECT_THAT(message("{\"a\":" + std::string(50, '[') + std::string(50, ']') + "}"),
              HasSubstr("deeper than"));
  EXPECT_EQ(parse_config(sound, "x").sha256, engine::base::sha256_hex(sound));
}

TEST(ConfigCheck, Folder) {
  const checks::ScratchFolder folder;
  EXPECT_THAT(error_of([&] { load_config(folder.path()); }),
              AllOf(HasSubstr((folder / "config.json").string()), HasSubstr("No such file")));
  checks::write_bytes(folder / "config.json", released_config().dump(2));
  expect_released(load_config(folder.path()));
}

TEST(ConfigCheck, ReferenceFiles) {
  CHECKS_NEED(tiny, checks::reference_data("ckpt_tiny"));
  const Config nested = load_config(tiny);
  EXPECT_EQ(nested.inner, 96);
  EXPECT_EQ(nested.kda_width, 32);
  EXPECT_TRUE(nested.quantization_stated);
  CHECKS_NEED(tool, checks::reference_data("ckpt_tool"));
  const Config aliased = load_config(tool);
  EXPECT_EQ(aliased.inner, 64);
  EXPECT_EQ(aliased.block, 3);
  EXPECT_FALSE(aliased.quantization_stated);
  CHECKS_NEED(refused, checks::reference_data("upstream/cfg"));
  const auto message = [&](const char* name) {
    return error_of([&] { parse_config(checks::read_bytes(refused / name), name); });
  };
  EXPECT_THAT(message("bad_layer_index.json"), HasSubstr("full_attn_layers holds 999"));
  EXPECT_THAT(message("bad_topk.json"), HasSubstr("num_experts_per_token is 128"));
  EXPECT_THAT(message("no_layermap.json"), HasSubstr("full_attn_layers is missing"));
}

// A reader with `value(name, default)` for every field accepts all of these, and computes another
// model; the released values must differ from what it would take.
TEST(ConfigCheck, PlantedFaults) {
  std::set<std::string> messages;
  for (const Fault& fault : faults()) messages.insert(refusal(faulty(fault)));
  EXPECT_EQ(messages.size(), faults().size()) << "one message for two faults";
  EXPECT_FALSE(messages.contains(""));
  // Lists taken from zero: another model of the same size.
  const Config config = parse_config(with_lists("[4, 8]", "[1, 2, 3, 5, 6, 7]").dump(), "x");
  EXPECT_TRUE(config.is_mla[3] && config.is_mla[7]);
  EXPECT_FALSE(config.is_mla[4]);
}

}  // namespace
