// Sublayers, layers and a whole 13-layer model of the C reference, whose weights are float32 in
// memory.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "checks/compare.h"
#include "checks/json_file.h"
#include "checks/model/fixture_layer.h"
#include "engine/model/kda_attention.h"
#include "engine/model/mla_attention.h"
#include "engine/ops/attn_res.h"
#include "engine/ops/matmul.h"
#include "engine/ops/rmsnorm.h"

namespace {

using checks::compare;
using checks::FixtureLayers;
using checks::NamedTensors;

// The C reference's own tolerance: its fixtures carry seven decimals and come from float32.
double allowed(double want) { return 1e-5 + 1e-4 * std::abs(want); }

// A HalfContext for one document of `tokens`, with its workspace.
struct Workspace {
  Workspace(const engine::model::Config& config_in, std::int64_t layer, std::int64_t tokens)
      : config(config_in),
        documents{0, tokens},
        block(std::size_t{1} << 24),
        arena(block),
        context{config, layer, tokens, documents, nullptr, arena, {}} {}
  engine::model::Config config;
  std::vector<std::int64_t> documents;
  std::vector<std::byte> block;
  engine::base::Arena arena;
  engine::model::HalfContext context;
};

// The sublayer fixtures spell their keys without the module's name; FixtureLayers wants it.
NamedTensors renamed(const NamedTensors& fixture,
                     const std::map<std::string, std::string>& special) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : fixture) {
    const auto found = special.find(name);
    tensors["self_attn_" + (found == special.end() ? name : found->second)] = tensor;
  }
  return tensors;
}

TEST(ReferenceModel, KdaSublayer) {
  CHECKS_NEED(folder, checks::reference_fixtures());
  for (const char* name : {"kda_layer1", "kda_layer8"}) {
    const NamedTensors fixture =
        checks::read_fixture_json(folder / "ops" / (std::string(name) + ".json"));
    const FixtureLayers layers(renamed(fixture, {{"q_proj", "q_proj_weight"},
                                                 {"k_proj", "k_proj_weight"},
                                                 {"v_proj", "v_proj_weight"},
                                                 {"g_proj", "g_proj_weight"},
                                                 {"o_proj", "o_proj_weight"},
                                                 {"f_a", "f_a_proj_weight"},
                                                 {"f_b", "f_b_proj_weight"},
                                                 {"b_proj", "b_proj_weight"},
                                                 {"q_conv", "q_conv1d_weight"},
                                                 {"k_conv", "k_conv1d_weight"},
                                                 {"v_conv", "v_conv1d_weight"},
                                                 {"o_norm", "o_norm_weight"}}));
    const std::string p = "self_attn_";
    const engine::model::KdaWeights w{
        layers.matrix(p + "q_proj_weight"),   layers.matrix(p + "k_proj_weight"),
        layers.matrix(p + "v_proj_weight"),   layers.matrix(p + "g_proj_weight"),
        layers.matrix(p + "o_proj_weight"),   layers.matrix(p + "f_a_proj_weight"),
        layers.matrix(p + "f_b_proj_weight"), layers.matrix(p + "b_proj_weight"),
        layers.vector(p + "q_conv1d_weight"), layers.vector(p + "k_conv1d_weight"),
        layers.vector(p + "v_conv1d_weight"), layers.vector(p + "A_log"),
        layers.vector(p + "dt_bias"),         layers.vector(p + "o_norm_weight")};
    const std::vector<float> x = checks::at(fixture, "in").f32();
    Workspace space(checks::fixture_config(), 1, static_cast<std::int64_t>(x.size()) / 128);
    std::vector<float> out(x.size());
    engine::model::kda_attention_forward(space.context, w, x, out);
    const auto result = compare(out, checks::at(fixture, "out").data, allowed);
    EXPECT_TRUE(result) << name << " " << result.why;
  }
}

TEST(ReferenceModel, MlaSublayer) {
  CHECKS_NEED(folder, checks::reference_fixtures());
  const NamedTensors fixture = checks::read_fixture_json(folder / "ops" / "mla.json");
  const FixtureLayers layers(renamed(fixture, {}));
  const std::string p = "self_attn_";
  const engine::model::MlaWeights w{layers.matrix(p + "q_a_proj_weight"),
                                    layers.matrix(p + "q_b_proj_weight"),
                                    layers.matrix(p + "kv_a_proj_with_mqa_weight"),
                                    layers.matrix(p + "kv_b_proj_weight"),
                                    layers.matrix(p + "g_proj_weight"),
                                    layers.matrix(p + "o_proj_weight"),
                                    layers.vector(p + "q_a_layernorm_weight"),
                                    layers.vector(p + "kv_a_layernorm_weight")};
  const std::vector<float> x = checks::at(fixture, "in").f32();
  Workspace space(checks::fixture_config(), 3, 6);
  const engine::model::MlaActivations a(space.context);
  engine::model::mla_attention_inner(space.context, w, x, a);
  std::vector<float> out(x.size());
  engine::model::mla_attention_forward(space.context, w, x, out);
  for (const auto& [got, want] : {std::pair<std::span<const float>, const char*>{out, "out"},
                                  {a.kv_normed, "kv_latent"},
                                  {a.kr, "k_rope"}}) {
    const auto result = compare(got, checks::at(fixture, want).data, allowed);
    EXPECT_TRUE(result) << want << " " << result.why;
  }
}

// The fixture's bank is artificial: two entries on entry, laid out [T][entry][H].
std::vector<std::vector<float>> bank_of(const checks::NamedTensor& tensor) {
  const auto tokens = static_cast<std::size_t>(tensor.shape.at(0));
  const auto entries = static_cast<std::size_t>(tensor.shape.at(1));
  const auto hidden = static_cast<std::size_t>(tensor.shape.at(2));
  std::vector<std::vector<float>> bank(entries);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t e = 0; e < entries; ++e) {
      const auto row =
          tensor.data.begin() + static_cast<std::ptrdiff_t>((t * entries + e) * hidden);
      bank[e].insert(bank[e].end(), row, row + static_cast<std::ptrdiff_t>(hidden));
    }
  }
  return bank;
}

TEST(ReferenceModel, WholeLayers) {
  CHECKS_NEED(folder, checks::reference_fixtures());
  for (const auto& [name, layer] : {std::pair{"layer_kda", 1}, {"layer_mla", 3}}) {
    const NamedTensors fixture =
        checks::read_fixture_json(folder / "ops" / (std::string(name) + ".json"));
    const FixtureLayers layers(fixture);
    std::vector<std::vector<float>> bank = bank_of(checks::at(fixture, "block_residual_in"));
    std::vector<float> h = checks::at(fixture, "in").f32();
    const std::vector<float> entered = h;
    checks::fixture_layer_forward(layers, checks::fixture_config(), layer, "", bank, h);
    const auto result = compare(h, checks::at(fixture, "out").data, allowed);
    EXPECT_TRUE(result) << name << " " << result.why;
    const std::vector<std::vector<float>> want = bank_of(checks::at(fixture, "block_residual_out"));
    ASSERT_EQ(bank.size(), want.size()) << name;
    for (std::size_t e = 0; e < bank.size(); ++e) {
      EXPECT_TRUE(checks::same_bits(bank[e], want[e])) << name << " bank entry " << e;
    }
    // A planted fault: the restart at a boundary forgotten (and made where there is none).
    for (std::size_t i = 0; i < h.size(); ++i) h[i] += entered[i];
    EXPECT_FALSE(compare(h, checks::at(fixture, "out").data, allowed)) << name;
  }
}

// The 13-layer model: a flat array of float32 and a table of names.
class ReferenceK3 {
 public:
  explicit ReferenceK3(const std::filesystem::path& folder)
      : config_(checks::fixture_config()), layers_(read(folder)) {}

  // An empty sequence of up to `most` tokens.
  engine::model::CarriedState start(std::int64_t most, engine::base::RamBudget& budget) const {
    return {config_, most, budget};
  }

  // Logits [T,V]; of the next tokens of a sequence where one is carried.
  std::vector<float> logits(const std::vector<std::int32_t>& ids,
                            engine::model::CarriedState* carried = nullptr) const {
    const auto hidden = static_cast<std::size_t>(config_.hidden);
    const std::span<const float> table = layers_.vector("embed_tokens_weight");
    std::vector<float> h;
    for (const std::int32_t id : ids) {
      const auto row = table.subspan(static_cast<std::size_t>(id) * hidden, hidden);
      h.insert(h.end(), row.begin(), row.end());
    }
    std::vector<std::vector<float>> bank;
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      checks::fixture_layer_forward(layers_, config_, layer, fmt::format("layers_{}_", layer), bank,
                                    h, carried);
    }
    if (carried != nullptr) carried->advance(static_cast<std::int64_t>(ids.size()));
    std::vector<const float*> sources;
    for (const auto& entry : bank) sources.push_back(entry.data());
    sources.push_back(h.data());
    std::vector<float> mixed(h.size()), normed(h.size()), inv(ids.size());
    engine::ops::attn_res_forward(sources, layers_.vector("output_attn_res_norm_weight"),
                                  layers_.vector("output_attn_res_proj_weight"), 1e-5f, mixed);
    engine::ops::rmsnorm_forward(mixed, layers_.vector("norm_weight"), 1e-5f, normed, inv);
    std::vector<float> out(ids.size() * static_cast<std::size_t>(config_.vocabulary));
    engine::ops::matmul_forward(normed, layers_.matrix("lm_head_weight"), out,
                                static_cast<std::int64_t>(ids.size()));
    return out;
  }

  // The lowest id on ties.
  std::vector<std::int32_t> argmax(const std::vector<float>& logits) const {
    std::vector<std::int32_t> ids;
    for (auto row = logits.begin(); row != logits.end(); row += config_.vocabulary) {
      ids.push_back(
          static_cast<std::int32_t>(std::max_element(row, row + config_.vocabulary) - row));
    }
    return ids;
  }

 private:
  static NamedTensors read(const std::filesystem::path& folder) {
    const checks::JsonFile table_file(folder / "tiny_k3.json");
    const nlohmann::json& table = table_file.root();
    const std::filesystem::path path = folder / "tiny_k3.regenerated.bin";
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path.string() + ": cannot be opened");
    std::vector<float> values(table_file.get<std::size_t>("/total_floats"));
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    if (!file) throw std::runtime_error(path.string() + ": is cut short");
    NamedTensors tensors;
    for (const auto& [name, entry] : table.at("tensors").items()) {
      const auto begin = values.begin() + entry.at("offset").get<std::ptrdiff_t>();
      tensors[name] = {entry.at("shape").get<std::vector<std::int64_t>>(),
                       {begin, begin + entry.at("numel").get<std::ptrdiff_t>()}};
    }
    return tensors;
  }

  engine::model::Config config_;
  FixtureLayers layers_;
};

TEST(ReferenceModel, TeacherForcingAndGreedy) {
  CHECKS_NEED(folder, checks::reference_fixtures());
  // A folder that is there and lacks one of these files is broken, not absent.
  const ReferenceK3 model(folder);
  const checks::JsonFile file(folder / "ref_k3.json");
  const nlohmann::json& reference = file.root();
  const auto full = reference.at("full_ids").get<std::vector<std::int32_t>>();
  const std::vector<float> logits = model.logits(full);
  EXPECT_EQ(model.argmax(logits), reference.at("tf_pred").get<std::vector<std::int32_t>>());
  std::vector<float> got;
  std::vector<double> want;
  for (std::size_t t = 0; t < full.size(); ++t) {
    for (std::size_t j = 0; j < 8; ++j) {
      got.push_back(logits[t * 256 + j]);
      want.push_back(reference.at("logits_head").at(t).at(j));
    }
  }
  // The file gives six decimals of logits of a float32 program, 13 layers deep.
  const auto close = compare(got, want, [](double w) { return 1e-4 + 1e-4 * std::abs(w); });
  EXPECT_TRUE(close) << close.why;

  auto ids = reference.at("prompt_ids").get<std::vector<std::int32_t>>();
  while (ids.size() < full.size()) ids.push_back(model.argmax(model.logits(ids)).back());
  EXPECT_EQ(ids, full);
}

// The same twenty tokens, each from the state that those before it left.
TEST(ReferenceModel, GreedyWithCarriedState) {
  CHECKS_NEED(folder, checks::reference_fixtures());
  const ReferenceK3 model(folder);
  const checks::JsonFile file(folder / "ref_k3.json");
  const auto full = file.root().at("full_ids").get<std::vector<std::int32_t>>();
  auto ids = file.root().at("prompt_ids").get<std::vector<std::int32_t>>();
  engine::base::RamBudget budget(std::uint64_t{1} << 30);
  engine::model::CarriedState carried = model.start(std::ssize(full), budget);
  std::vector<std::int32_t> next = ids;
  std::vector<float> all;
  while (!next.empty()) {
    const std::vector<float> logits = model.logits(next, &carried);
    all.insert(all.end(), logits.begin(), logits.end());
    next.clear();
    if (ids.size() == full.size()) break;
    next = {model.argmax(logits).back()};
    ids.push_back(next[0]);
  }
  EXPECT_EQ(ids, full);
  const auto same = checks::same_bits(all, model.logits(full));
  EXPECT_TRUE(same) << same.why;
}

}  // namespace
