#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include "checks/reference.h"
#include "checks/store/shard_files.h"
#include "engine/model/checkpoint_layout.h"

namespace {

using checks::described;
using engine::model::check_layout;
using engine::model::Config;
using engine::model::ExpectedTensor;
using engine::model::expert_tensors;
using engine::model::layer_tensors;
using engine::model::model_tensors;
using engine::model::Role;
using engine::store::Finding;
using engine::store::Severity;
using engine::store::ShardReader;
using testing::AllOf;
using testing::HasSubstr;

Config released() {
  Config c;
  c.layers = 93;
  c.hidden = 7168;
  c.vocabulary = 163840;
  c.kda_heads = c.mla_heads = 96;
  c.kda_width = c.nope_width = c.value_width = 128;
  c.conv_kernel = 4;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.rope_width = 64;
  c.experts = 896;
  c.chosen = 16;
  c.shared_experts = 2;
  c.latent = 3584;
  c.inner = 3072;
  c.dense_layers = 1;
  c.dense_inner = 33792;
  c.block = 12;
  c.quantization_stated = true;
  for (int n = 1; n <= 93; ++n) c.is_mla.push_back(n % 4 == 0 || n == 93);
  return c;
}

// Every width another number.
Config toy() {
  Config c = released();
  c.layers = 4;
  c.hidden = 48;
  c.vocabulary = 56;
  c.kda_heads = 3;
  c.kda_width = 10;
  c.mla_heads = 5;
  c.q_lora_rank = 14;
  c.kv_lora_rank = 12;
  c.nope_width = 6;
  c.rope_width = 4;
  c.value_width = 7;
  c.experts = 3;
  c.chosen = 2;
  c.latent = 32;
  c.inner = 96;
  c.dense_inner = 80;
  c.is_mla = {false, false, true, true};
  return c;
}

// What the release stores as F32 (docs/model.md section 2); the rest of matrices and vectors is BF16.
const char* stored_dtype(const ExpectedTensor& tensor) {
  if (tensor.role == Role::kPacked || tensor.role == Role::kScale) return "U8";
  for (const char* part : {"conv1d", "dt_bias", "A_log", "o_norm", "e_score_correction_bias"}) {
    if (tensor.name.find(part) != std::string::npos) return "F32";
  }
  return "BF16";
}

struct Stored {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;

  std::uint64_t bytes() const {
    std::uint64_t count = dtype == "U8" ? 1 : dtype == "BF16" ? 2 : dtype == "F32" ? 4 : 8;
    for (const std::int64_t extent : shape) count *= static_cast<std::uint64_t>(extent);
    return count;
  }
};

void append(std::vector<Stored>& list, std::span<const ExpectedTensor> tensors) {
  for (const auto& tensor : tensors)
    list.push_back({tensor.name, stored_dtype(tensor), tensor.shape});
}

std::vector<Stored> all_tensors(const Config& config) {
  std::vector<Stored> list;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    append(list, layer_tensors(config, layer));
    if (config.is_dense(layer)) continue;
    for (std::int64_t e = 0; e < config.experts; ++e)
      append(list, expert_tensors(config, layer, e));
  }
  append(list, model_tensors(config));
  return list;
}

// A shard whose data are a hole in the file.
void write_shard(const std::filesystem::path& path, std::span<const Stored> tensors) {
  std::string header = "{";
  std::uint64_t at = 0;
  for (const Stored& tensor : tensors) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          at == 0 ? "" : ",", tensor.name, tensor.dtype,
                          fmt::join(tensor.shape, ","), at, at + tensor.bytes());
    at += tensor.bytes();
  }
  header += "}";
  checks::write_bytes(path, checks::length_field(header.size()) + header);
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(8 + header.size() + at)), 0);
}

std::uint64_t bytes_of(std::span<const ExpectedTensor> tensors) {
  std::vector<Stored> list;
  append(list, tensors);
  std::uint64_t sum = 0;
  for (const Stored& tensor : list) sum += tensor.bytes();
  return sum;
}

// docs/model.md section 13: the numbers of the release, which this file knows from nowhere else.
TEST(CheckpointLayoutCheck, ReleaseArithmetic) {
  const Config c = released();
  EXPECT_EQ(tensor_count(c), 93 * 6 + 69 * 14 + 24 * 8 + 3 + 92 * 8 + 92 * 896 * 6 + 5);
  EXPECT_EQ(tensor_count(c), 497'052);
  EXPECT_EQ(bytes_of(expert_tensors(c, 1, 0)), 17'547'264u);
  EXPECT_EQ(bytes_of(layer_tensors(c, 1)), 1'267'744'256u);  // KDA
  EXPECT_EQ(bytes_of(layer_tensors(c, 3)), 844'335'616u);    // MLA
  std::uint64_t trunk = 0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    trunk += bytes_of(layer_tensors(c, layer));
  EXPECT_EQ(trunk / 10'000'000, 10'881u);  // 108.81 GB
  EXPECT_EQ(bytes_of(model_tensors(c)) / 10'000'000, 469u);
  EXPECT_EQ(92u * 896u * bytes_of(expert_tensors(c, 1, 0)) / 1'000'000'000, 1446u);
}

class ToyLayout : public testing::Test {
 protected:
  ToyLayout() : config_(toy()), tensors_(all_tensors(config_)) {}

  std::vector<Finding> findings() {
    write_shard(folder_ / "model.safetensors", tensors_);
    return check_layout(config_, ShardReader(folder_.path()));
  }
  Stored& tensor(const std::string& end) {
    const auto found = std::ranges::find_if(
        tensors_, [&](const Stored& tensor) { return tensor.name.ends_with(end); });
    EXPECT_NE(found, tensors_.end()) << end;
    return *found;
  }
  void remove(const std::string& end) {
    tensors_.erase(tensors_.begin() + (&tensor(end) - tensors_.data()));
  }

  checks::ScratchFolder folder_;
  Config config_;
  std::vector<Stored> tensors_;
};

TEST_F(ToyLayout, Control) { EXPECT_EQ(described(findings()), ""); }

TEST_F(ToyLayout, F32AndF16AreMatricesToo) {
  tensor("layers.0.self_attn.q_proj.weight").dtype = "F32";
  tensor("layers.1.block_sparse_moe.gate.weight").dtype = "F32";
  tensor("layers.2.self_attn.q_a_layernorm.weight").dtype = "F32";
  EXPECT_EQ(described(findings()), "");
}

TEST_F(ToyLayout, EveryTensorIsMissed) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Stored taken = tensors_[i];
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(i));
    const auto found = findings();
    tensors_.insert(tensors_.begin() + static_cast<std::ptrdiff_t>(i), taken);
    ASSERT_EQ(count(found, Severity::kError), 1u) << taken.name << "\n" << described(found);
    EXPECT_EQ(found[0].tensor, taken.name);
    EXPECT_THAT(found[0].message,
                AllOf(HasSubstr("is missing"),
                      HasSubstr(fmt::format("[{}]", fmt::join(taken.shape, ",")))));
  }
}

TEST_F(ToyLayout, EveryShapeIsLookedAt) {
  for (Stored& changed : tensors_) {
    const std::vector<std::int64_t> shape = changed.shape;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      changed.shape[i] = shape[i] + 16;
      const auto found = findings();
      EXPECT_GE(count(found, Severity::kError), 1u) << changed.name;
      for (const Finding& finding : found) {
        if (finding.severity != Severity::kError || finding.tensor != changed.name) continue;
        EXPECT_THAT(describe(finding), AllOf(HasSubstr("model.safetensors"), HasSubstr("at byte"),
                                             HasSubstr(std::to_string(shape[i])),
                                             HasSubstr(std::to_string(shape[i] + 16))));
        break;
      }
      changed.shape = shape;
    }
    changed.shape.push_back(1);  // as many elements, another rank
    EXPECT_EQ(count(findings(), Severity::kError) > 0, true) << changed.name;
    changed.shape = shape;
  }
}

TEST_F(ToyLayout, DtypesThatDoNotBelong) {
  tensor("layers.0.mlp.up_proj.weight").dtype = "I64";
  tensor("experts.1.w2.weight_packed").dtype = "BF16";
  tensor("model.norm.weight").dtype = "U8";
  const std::string text = described(findings());
  EXPECT_THAT(text, HasSubstr("mlp.up_proj.weight: at byte"));
  EXPECT_THAT(text, HasSubstr("dtype is I64, where BF16, F16 or F32 belongs"));
  EXPECT_THAT(text, HasSubstr("dtype is BF16, where U8 belongs"));
  EXPECT_THAT(text, HasSubstr("dtype is U8, where BF16, F16 or F32 belongs"));
}

TEST_F(ToyLayout, TensorsWithoutAPlace) {
  tensors_.push_back({"vision_tower.patch.weight", "BF16", {3, 5}});
  EXPECT_EQ(described(findings()), "") << "vision tensors are passed over";
  tensors_.push_back({"language_model.model.layers.0.self_attn.q_proj.bias", "BF16", {30}});
  tensors_.push_back({"language_model.model.layers.4.input_layernorm.weight", "BF16", {48}});
  const auto found = findings();
  EXPECT_EQ(count(found, Severity::kError), 2u);
  EXPECT_THAT(described(found), AllOf(HasSubstr("q_proj.bias: at byte"), HasSubstr("no place"),
                                      HasSubstr("layers.4.input_layernorm.weight")));
}

TEST_F(ToyLayout, ScatteredExpertsAreSaid) {
  // w3 of one expert behind everything else: legal.
  const Stored scale = tensor("layers.2.block_sparse_moe.experts.1.w3.weight_scale");
  remove(scale.name);
  tensors_.push_back(scale);
  const auto found = findings();
  EXPECT_EQ(count(found, Severity::kError), 0u);
  ASSERT_EQ(found.size(), 1u) << described(found);
  EXPECT_EQ(found[0].severity, Severity::kNote);
  EXPECT_THAT(describe(found[0]), AllOf(HasSubstr("1 of the 3 experts of layer 2"),
                                        HasSubstr("layers.2.block_sparse_moe.experts.1.")));
}

TEST_F(ToyLayout, PackedAndScaleOfAnExpertAgree) {
  tensor("layers.1.block_sparse_moe.experts.2.w1.weight_scale").shape = {96, 2};
  EXPECT_THAT(described(findings()),
              AllOf(HasSubstr("experts.2.w1.weight_scale"),
                    HasSubstr("[96,2] does not fit the packed codes' [96,16]")));
}

// D3: the configuration's latent width is another one than the tensors'.
TEST_F(ToyLayout, D3_LatentWidthFromTheTensors) {
  config_.latent = config_.hidden;
  EXPECT_THAT(described(findings()),
              AllOf(HasSubstr("layers.1.block_sparse_moe.routed_expert_down_proj.weight"),
                    HasSubstr("make the latent width 32, but routed_expert_hidden_size is 48")));
}

// D11: a checkpoint of the older family has no attention residuals; nothing takes their place.
TEST_F(ToyLayout, D11_NoAttentionResiduals) {
  std::erase_if(tensors_, [](const Stored& tensor) {
    return tensor.name.find("_res_") != std::string::npos;
  });
  const auto found = findings();
  EXPECT_EQ(count(found, Severity::kError), 4u * 4u + 2u);
  EXPECT_THAT(described(found), HasSubstr("output_attn_res_proj.weight: is missing"));
}

TEST_F(ToyLayout, D7_WithoutAQuantizationBlock) {
  config_.quantization_stated = false;
  const auto found = findings();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::kNote);
  EXPECT_THAT(found[0].message, AllOf(HasSubstr("weight_packed"), HasSubstr("weight_scale")));
}

TEST_F(ToyLayout, NormThatIsNotUsed) {
  config_.latent_norm = false;
  const auto found = findings();
  EXPECT_EQ(count(found, Severity::kError), 0u);
  EXPECT_EQ(count(found, Severity::kWarning), 3u) << described(found);
}

TEST_F(ToyLayout, ConfigurationOfAnybody) {
  config_.experts = 1 << 24;
  const auto found = findings();
  ASSERT_EQ(found.size(), 1u) << "not one finding for every one of 3e8 experts";
  EXPECT_THAT(found[0].message, HasSubstr(std::to_string(tensor_count(config_))));
}

TEST(CheckpointLayoutCheck, ReferenceCheckpoints) {
  for (const char* name : {"ckpt_tiny", "ckpt_tool"}) {
    CHECKS_NEED(folder, checks::reference_data(name));
    const auto found = check_layout(engine::model::load_config(folder), ShardReader(folder));
    EXPECT_EQ(count(found, Severity::kError) + count(found, Severity::kWarning), 0u)
        << described(found);
  }
}

// The headers of the release over 96 sparse files, and its index: half a million tensors.
TEST(CheckpointLayoutCheck, HeadersOfTheReleasesSize) {
  const checks::ScratchFolder folder;
  Config config = released();
#ifdef __SANITIZE_ADDRESS__  // twenty times as slow: the same with a tenth of it
  config.layers = 10;
  config.is_mla.resize(10);
#endif
  std::vector<Stored> tensors = all_tensors(config);
  for (int i = 0; i < 168; ++i)
    tensors.push_back({fmt::format("vision_tower.{}", i), "BF16", {64, 64}});
  const std::size_t share = tensors.size() / 96 + 1;
  std::string index = "{\"weight_map\":{";
  for (std::size_t i = 0; i < 96; ++i) {
    const auto part =
        std::span(tensors).subspan(i * share, std::min(share, tensors.size() - i * share));
    const std::string file = fmt::format("model-{:05}-of-00096.safetensors", i + 1);
    write_shard(folder / file, part);
    for (const Stored& tensor : part) {
      index += fmt::format("{}\n\"{}\":\"{}\"", index.size() < 20 ? "" : ",", tensor.name, file);
    }
  }
  checks::write_bytes(folder / "model.safetensors.index.json", index + "}}");
  const ShardReader reader(folder.path());
  EXPECT_EQ(reader.entries().size(), tensors.size());
  EXPECT_LE(sizeof(engine::store::TensorEntry), 64u);
  const auto found = check_layout(config, reader);
  EXPECT_EQ(count(found, Severity::kError), 0u) << describe(found.front());
}

// A layout that was written down wrongly in one place, in the ways that suggest themselves.
TEST_F(ToyLayout, PlantedFaults) {
  const auto refused = [&](const char* name, const std::vector<std::int64_t>& tempting) {
    Stored& changed = tensor(name);
    const std::vector<std::int64_t> shape = changed.shape;
    ASSERT_NE(shape, tempting) << name << ": the toy's widths must tell these apart";
    changed.shape = tempting;
    EXPECT_GE(count(findings(), Severity::kError), 1u) << name;
    changed.shape = shape;
  };
  const Config& c = config_;
  refused("layers.0.self_attn.A_log", {c.kda_heads});            // one a head, but [D]
  refused("layers.0.self_attn.o_norm.weight", {c.kda_inner()});  // shared by the heads
  refused("layers.0.self_attn.q_conv1d.weight", {c.kda_inner(), c.conv_kernel});
  refused("layers.0.self_attn.f_a_proj.weight", {c.kda_heads, c.hidden});
  refused("layers.2.self_attn.g_proj.weight", {c.mla_query(), c.hidden});
  refused("layers.2.self_attn.kv_a_proj_with_mqa.weight", {c.kv_lora_rank, c.hidden});
  refused("layers.2.self_attn.q_b_proj.weight", {c.mla_heads * c.nope_width, c.q_lora_rank});
  refused("layers.1.block_sparse_moe.shared_experts.up_proj.weight", {c.inner, c.hidden});
  refused("layers.1.block_sparse_moe.routed_expert_norm.weight", {c.hidden});
  refused("layers.1.block_sparse_moe.experts.0.w2.weight_packed", {c.inner, c.latent / 2});
}

}  // namespace
