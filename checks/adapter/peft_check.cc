#include <nlohmann/json.hpp>

#include "checks/adapter/exports.h"
#include "engine/adapter/layout.h"
#include "engine/adapter/native.h"
#include "engine/adapter/peft_config.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "oracle/safetensors.h"

namespace {

using checks::AdapterCase;
using checks::Deltas;
using checks::difference;
using checks::peft_deltas;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

using Peft = AdapterCase;

const std::string kExperts =
    "base_model.model.language_model.model.layers.5.block_sparse_moe.experts.";

json config_of(const fs::path& folder) {
  return json::parse(checks::read_bytes(folder / "adapter_config.json"));
}

std::uintmax_t tensor_bytes(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  const oracle::SafeTensors file(folder / "adapter_model.safetensors");
  for (const auto& [name, info] : file.tensors()) {
    bytes += info.bytes;
  }
  return bytes;
}

// H2 (NVIDIA-NeMo/Automodel#3626, vllm-project/vllm#52194): one adapter, two meanings of a fused
// parameter's dimensions.
TEST_F(Peft, H2_OrientationFollowsTheStatedVersion) {
  const fs::path old = exported("old", {"--format", "peft-fused", "--peft-version", "0.18.1"});
  const fs::path now = exported("now", {"--format", "peft-fused", "--peft-version", "0.19.1"});
  EXPECT_EQ(difference(peft_deltas(old, shared_->frozen), shared_->native), "");
  EXPECT_EQ(difference(peft_deltas(now, shared_->frozen), shared_->native), "");
  const oracle::SafeTensors old_file(old / "adapter_model.safetensors");
  const oracle::SafeTensors now_file(now / "adapter_model.safetensors");
  const checks::Frozen size =
      shared_->frozen.at("language_model.model.layers.5.block_sparse_moe.experts.0.w1");
  const std::int64_t experts = 16, rank = 3;
  ASSERT_NE(size.in, size.out);
  EXPECT_THAT(now_file.info(kExperts + "w1.lora_A.weight").shape,
              ElementsAre(experts * rank, size.in));
  EXPECT_THAT(now_file.info(kExperts + "w1.lora_B.weight").shape,
              ElementsAre(size.out, rank * experts));
  EXPECT_THAT(old_file.info(kExperts + "w1.lora_A.weight").shape,
              ElementsAre(experts * rank, size.out));
  // The wrong version is noticed, by the check's loader and by the proof.
  EXPECT_ANY_THROW(peft_deltas(old, shared_->frozen, "0.19.1"));
  json config = config_of(old);
  EXPECT_EQ(config.at("target_parameters"),
            json({"block_sparse_moe.experts.w1.weight", "block_sparse_moe.experts.w3.weight",
                  "block_sparse_moe.experts.w2.weight"}));
  config["peft_version"] = "0.19.1";
  checks::write_bytes(old / "adapter_config.json", config.dump());
  EXPECT_THAT(verify(old), HasSubstr("is wanted by the checkpoint"));
  config.erase("peft_version");
  checks::write_bytes(old / "adapter_config.json", config.dump());
  EXPECT_THAT(verify(old), HasSubstr("no peft_version"));

  using engine::adapter::fused_input;
  using engine::adapter::FusedInput;
  for (const char* version : {"0.17", "0.17.1", "0.18", "0.18.0"}) {
    EXPECT_EQ(fused_input(version), FusedInput::kFirst) << version;
  }
  for (const char* version : {"0.19.1", "0.19.12", "0.20", "0.20.0", "1.0"}) {
    EXPECT_EQ(fused_input(version), FusedInput::kLast) << version;
  }
  for (const char* version : {"0.19", "0.19.0", "0.16.9", "", "0", "0.", "0.18.", "0.18.x", "-1.2",
                              "0.18.1.2", "0.18.1rc1", "v0.18"}) {
    EXPECT_THROW(fused_input(version), engine::base::Error) << version;
  }
  EXPECT_THAT(refusal({"--format", "peft-fused"}), HasSubstr("version"));
  EXPECT_THAT(refusal({"--format", "peft-fused", "--peft-version", "0.19"}), HasSubstr("changed"));
}

// H4 (NVIDIA-NeMo/Automodel#3435): every entry of target_modules leads somewhere, and none is left.
TEST_F(Peft, H4_EveryTargetResolvesAgainstTheCheckpoint) {
  const fs::path folder = exported("each", {"--format", "peft-per-expert"});
  EXPECT_EQ(difference(peft_deltas(folder, shared_->frozen), shared_->native), "");
  const oracle::SafeTensors file(folder / "adapter_model.safetensors");
  EXPECT_TRUE(
      file.has("base_model.model.language_model.model.layers.5.block_sparse_moe.experts.15."
               "w1.lora_A.weight"));
  // The checkpoint's list against the entries, by PEFT's rule, with a loop of the check's own.
  std::map<std::string, int> hits;
  const json config = config_of(folder);
  for (const std::string entry : config.at("target_modules")) hits[entry] = 0;
  int modules = 0;
  for (const auto& [path, size] : shared_->frozen) {
    bool matched = false;
    for (auto& [entry, count] : hits) {
      if (path != entry && !path.ends_with("." + entry)) continue;
      matched = true;
      ++count;
    }
    modules += matched ? 1 : 0;
    EXPECT_EQ(matched, file.has("base_model.model." + path + ".lora_A.weight")) << path;
    EXPECT_EQ(matched, shared_->native.contains(path)) << path;
  }
  EXPECT_EQ(modules, 641);
  for (const auto& [entry, count] : hits) EXPECT_GT(count, 0) << entry;

  // An end of a name that another module shares is no entry: then the whole paths are.
  const std::vector<engine::adapter::Module> some = {
      {3, "q", "m.layers.3.self_attn", "q_proj", 2, 2},
      {4, "expert_up", "m.layers.4.moe.experts", "w3", 2, 2, 2}};
  std::vector<std::string> names = {"m.layers.3.self_attn.q_proj", "m.layers.4.moe.experts.0.w3",
                                    "m.layers.4.moe.experts.1.w3", "m.head"};
  EXPECT_THAT(engine::adapter::target_entries(some, names), ElementsAre("self_attn.q_proj", "w3"));
  names.push_back("vision.3.self_attn.q_proj");
  names.push_back("vision.w3");
  EXPECT_THAT(engine::adapter::target_entries(some, names),
              ElementsAre(names[0], names[1], names[2]));
  names.erase(names.begin() + 2);
  EXPECT_THROW(engine::adapter::target_entries(some, names), engine::base::Error);
}

// H6 (sgl-project/sglang#21466, NVIDIA-NeMo/Megatron-Bridge#3981, #6075): once or expanded.
TEST_F(Peft, H6_SharedOnceOrExpanded) {
  const fs::path once = exported("once", {"--format", "peft"});
  const fs::path each = exported("each", {"--format", "peft-per-expert"});
  EXPECT_EQ(difference(peft_deltas(once, shared_->frozen), shared_->native), "");
  EXPECT_EQ(difference(peft_deltas(each, shared_->frozen), shared_->native), "");
  const oracle::SafeTensors file(once / "adapter_model.safetensors");
  const checks::Frozen size =
      shared_->frozen.at("language_model.model.layers.5.block_sparse_moe.experts.0.w2");
  EXPECT_THAT(file.info(kExperts + "w2.lora_A.weight").shape, ElementsAre(1, 3, size.in));
  EXPECT_THAT(file.info(kExperts + "w2.lora_B.weight").shape, ElementsAre(1, size.out, 3));
  // No key of the config says so: metadata and README do.
  EXPECT_THAT(file.metadata().at("experts"), HasSubstr("one for all experts"));
  EXPECT_THAT(checks::read_bytes(once / "README.md"), HasSubstr("[1, r, in]"));
  EXPECT_EQ(config_of(once), config_of(each));
  // Sizes: 12 layers of 16 experts, three kinds.
  const std::uintmax_t pair = static_cast<std::uintmax_t>(4 * 3 * (size.in + size.out));
  EXPECT_EQ(tensor_bytes(each) - tensor_bytes(once), 12 * 3 * 15 * pair);
}

// H8 (sgl-project/sglang#37704): the experts live in the latent space.
TEST_F(Peft, H8_ExpertWidthsAreLatentAndInner) {
  const checks::Engine engine(shared_->model);
  const auto& config = engine.config();
  ASSERT_NE(config.latent, config.hidden);
  const oracle::SafeTensors file(exported("once", {"--format", "peft"}) /
                                 "adapter_model.safetensors");
  const auto shape = [&](const std::string& end) { return file.info(kExperts + end).shape; };
  for (const char* up : {"w1", "w3"}) {
    EXPECT_THAT(shape(up + std::string(".lora_A.weight")), ElementsAre(1, 3, config.latent));
    EXPECT_THAT(shape(up + std::string(".lora_B.weight")), ElementsAre(1, config.inner, 3));
  }
  EXPECT_THAT(shape("w2.lora_A.weight"), ElementsAre(1, 3, config.inner));
  EXPECT_THAT(shape("w2.lora_B.weight"), ElementsAre(1, config.latent, 3));
}

// A native adapter with one change, in a file of its own.
fs::path changed(const fs::path& adapter, const fs::path& to,
                 const std::function<void(engine::adapter::NativeAdapter&)>& change) {
  engine::adapter::NativeAdapter native = engine::adapter::read_native_adapter(adapter);
  change(native);
  engine::adapter::write_native_adapter(to, native.tensors, native);
  return to;
}

// F14 (radixark/miles#2008): rows of an output gate are no rows of the query.
TEST_F(Peft, F14_WidthMismatchIsRefused) {
  std::vector<float> wide;
  const fs::path fused =
      changed(shared_->adapter, scratch_ / "fused.safetensors", [&](auto& native) {
        for (auto& tensor : native.tensors) {
          if (tensor.name != "layers.0.q.lora_B") continue;
          wide.assign(tensor.values.begin(), tensor.values.end());
          wide.insert(wide.end(), tensor.values.begin(), tensor.values.end());
          tensor.shape[0] *= 2;
          tensor.values = wide;
        }
      });
  for (const char* format : {"peft", "peft-per-expert", "gguf"}) {
    EXPECT_THAT(
        refusal({"--format", format}, fused),
        AllOf(HasSubstr("layers.0.q.lora_B"), HasSubstr("self_attn.q_proj"), HasSubstr("wants [")));
  }
}

// H12 (radixark/miles#2017): bfloat16 matrices beside a claim to be quantized.
TEST_F(Peft, H12_NoQuantizationIsClaimed) {
  const fs::path folder = exported("bf16", {"--format", "peft", "--dtype", "bf16"});
  ASSERT_THAT(checks::read_bytes(shared_->model / "config.json"), HasSubstr("quantization_config"));
  for (const auto& [name, bytes] : checks::folder_bytes(folder)) {
    EXPECT_EQ(bytes.find("quant"), bytes.npos) << name;
  }
  const json plain = config_of(folder);
  EXPECT_EQ(verify(folder), "");
  for (const char* where : {"/quantization_config", "/base/quantization_config"}) {
    json config = plain;
    config[json::json_pointer(where)] = {{"quant_method", "compressed-tensors"}};
    checks::write_bytes(folder / "adapter_config.json", config.dump());
    EXPECT_THAT(verify(folder), HasSubstr("quantization_config")) << where;
    EXPECT_THAT(import(folder, "back"), HasSubstr("quantization_config")) << where;
    EXPECT_FALSE(fs::exists(scratch_ / "back"));
  }
}

// What rounding does is what rounding each factor does, and nothing else.
TEST_F(Peft, Bfloat16IsTheRoundedAdapter) {
  const fs::path folder = exported("bf16", {"--format", "peft-per-expert", "--dtype", "bf16"});
  std::vector<std::vector<float>> storage;
  const fs::path rounded =
      changed(shared_->adapter, scratch_ / "rounded.safetensors", [&](auto& native) {
        storage.reserve(native.tensors.size());
        for (auto& tensor : native.tensors) {
          storage.emplace_back();
          for (const float value : tensor.values) {
            storage.back().push_back(
                engine::base::bf16_to_float(engine::base::float_to_bf16(value)));
          }
          tensor.values = storage.back();
        }
      });
  const Deltas wanted = checks::native_deltas(rounded, shared_->frozen);
  const Deltas got = peft_deltas(folder, shared_->frozen);
  EXPECT_EQ(difference(got, wanted), "");
  EXPECT_NE(difference(got, shared_->native), "");
}

// export -> import -> export gives the bytes of the first, and import those of the adapter.
TEST_F(Peft, RoundTripIsByteIdentical) {
  const std::vector<std::vector<std::string>> all = {
      {"--format", "peft"},
      {"--format", "peft-per-expert"},
      {"--format", "peft-fused", "--peft-version", "0.18.0"},
      {"--format", "peft-fused", "--peft-version", "0.19.1", "--dtype", "bf16"},
      {"--format", "peft", "--dtype", "bf16"},
      {"--format", "gguf"},
      {"--format", "gguf", "--dtype", "bf16"}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string tag = std::to_string(i);
    const fs::path first = exported("first" + tag, all[i]);
    ASSERT_EQ(import(first, "back" + tag), "") << tag;
    if (all[i].back() != "bf16") {
      EXPECT_TRUE(checks::read_bytes(scratch_ / ("back" + tag)) ==
                  checks::read_bytes(shared_->adapter))
          << tag;
    }
    std::vector<std::string> arguments = {"export",         (scratch_ / ("back" + tag)).string(),
                                          "--model",        shared_->model.string(),
                                          "--out",          (scratch_ / ("second" + tag)).string(),
                                          "--probe-tokens", "0",
                                          "--base-model",   "tiny"};
    arguments.insert(arguments.end(), all[i].begin(), all[i].end());
    ASSERT_EQ(checks::adapter_command(arguments), "") << tag;
    EXPECT_TRUE(checks::folder_bytes(first) == checks::folder_bytes(scratch_ / ("second" + tag)))
        << tag;
  }
}

// alpha and r leave as they are; their quotient is computed by the reader, once, in double.
TEST_F(Peft, ScaleIsExact) {
  for (const auto& [rank, alpha] : {std::pair{3, 7.0}, {5, 0.1}, {3, 1.0 / 3.0}, {7, 16.0}}) {
    const fs::path adapter = scratch_ / fmt::format("{}_{}", rank, alpha);
    checks::Engine engine(shared_->model);
    engine::train::write_adapter(adapter, *checks::random_adapter_set(engine, rank, alpha, 9),
                                 checks::identity_of(engine));
    const fs::path out = scratch_ / fmt::format("out{}_{}", rank, alpha);
    ASSERT_EQ(
        checks::adapter_command({"export", adapter.string(), "--model", shared_->model.string(),
                                 "--out", out.string(), "--format", "peft", "--probe-tokens", "0"}),
        "");
    EXPECT_EQ(config_of(out).at("lora_alpha").get<double>(), alpha);
    EXPECT_EQ(difference(peft_deltas(out, shared_->frozen),
                         checks::native_deltas(adapter, shared_->frozen)),
              "");
  }
}

TEST_F(Peft, NothingIsWrittenOver) {
  const fs::path folder = exported("there", {"--format", "peft"});
  const auto before = checks::folder_bytes(folder);
  EXPECT_THAT(checks::adapter_command({"export", shared_->adapter.string(), "--model",
                                       shared_->model.string(), "--out", folder.string(),
                                       "--format", "gguf"}),
              HasSubstr("is there already"));
  EXPECT_TRUE(checks::folder_bytes(folder) == before);
  EXPECT_EQ(import(folder, "back"), "");
  EXPECT_THAT(import(folder, "back"), HasSubstr("is there already"));
  EXPECT_THAT(checks::adapter_command(
                  {"export", shared_->adapter.string(), "--model", shared_->model.string()}),
              HasSubstr("usage"));
  EXPECT_THAT(checks::adapter_command({"export", shared_->adapter.string(), "--model",
                                       shared_->model.string(), "--out", "x", "--format", "onnx"}),
              AllOf(HasSubstr("usage"), HasSubstr("onnx")));
}

// A config that asks for another formula is not understood, whoever wrote it.
TEST_F(Peft, PlantedFaults) {
  const fs::path folder = exported("folder", {"--format", "peft"});
  const json plain = config_of(folder);
  ASSERT_EQ(verify(folder), "");
  const auto message = [&](const char* key, const json& value) {
    json config = plain;
    config[key] = value;
    checks::write_bytes(folder / "adapter_config.json", config.dump());
    return verify(folder);
  };
  EXPECT_THAT(message("use_rslora", true), HasSubstr("use_rslora is true"));
  EXPECT_THAT(message("use_dora", true), HasSubstr("use_dora"));
  EXPECT_THAT(message("fan_in_fan_out", true), HasSubstr("fan_in_fan_out"));
  EXPECT_THAT(message("bias", "all"), HasSubstr("bias is \"all\""));
  EXPECT_THAT(message("rank_pattern", {{"w1", 4}}), HasSubstr("rank_pattern"));
  EXPECT_THAT(message("alpha_pattern", {{"w1", 4}}), HasSubstr("alpha_pattern"));
  EXPECT_THAT(message("modules_to_save", {"lm_head"}), HasSubstr("modules_to_save"));
  EXPECT_THAT(message("peft_type", "LOHA"), HasSubstr("peft_type"));
  EXPECT_THAT(message("r", 4), HasSubstr("[3,"));
  EXPECT_THAT(message("r", 0), HasSubstr("r is 0"));
  // Times 896 experts it would be 4 x 896 again, in 64 bits.
  EXPECT_THAT(message("r", (std::int64_t{1} << 57) + 4), HasSubstr("r is 144115188075855876"));
  EXPECT_THAT(message("r", std::uint64_t{1} << 63), HasSubstr("r is 9223372036854775808"));
  EXPECT_THAT(message("alora_invocation_tokens", {1, 2}), HasSubstr("alora_invocation_tokens"));
  EXPECT_THAT(message("use_qalora", true), HasSubstr("use_qalora is true"));
  EXPECT_THAT(message("use_of_tomorrow", true), HasSubstr("use_of_tomorrow"));
  EXPECT_THAT(message("init_lora_weights", "pissa"), HasSubstr("changes the frozen weights"));
  for (const char* key : {"base_model_name_or_path", "peft_version", "arrow_config"}) {
    EXPECT_EQ(message(key, nullptr), "") << key;
  }
  EXPECT_EQ(message("init_lora_weights", "gaussian"), "");
  EXPECT_THAT(message("r", "3"), HasSubstr("r is \"3\""));
  EXPECT_THAT(message("lora_alpha", -7), HasSubstr("lora_alpha is -7"));
  EXPECT_THAT(message("target_modules", "all-linear"), HasSubstr("a list of module names"));
  EXPECT_THAT(message("target_parameters", {"experts.w1.weight"}), HasSubstr("matches no adapter"));
  // One entry too many, one too few, one that reaches further than the adapters.
  const auto entries = [&](const std::function<void(json&)>& change) {
    json list = plain.at("target_modules");
    change(list);
    return message("target_modules", list);
  };
  EXPECT_THAT(entries([](json& list) { list.push_back("out_proj"); }),
              AllOf(HasSubstr("\"out_proj\""), HasSubstr("matches no module")));
  EXPECT_THAT(entries([](json& list) { list.push_back("o_proj"); }),
              AllOf(HasSubstr("\"o_proj\""), HasSubstr("for which there is no adapter")));
  EXPECT_THAT(entries([](json& list) { list.erase(0); }),
              HasSubstr("which no entry of target_modules matches"));
  checks::write_bytes(folder / "adapter_config.json", "{\"r\": 3,");
  EXPECT_THAT(verify(folder), HasSubstr("adapter_config.json"));
}

}  // namespace
