#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "checks/adapter/exports.h"
#include "checks/engine_run.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "oracle/safetensors.h"

namespace {

using checks::AdapterCase;
using checks::difference;
using checks::RawTensors;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

using Proof = AdapterCase;

const std::string kLayer = "base_model.model.language_model.model.layers.5.";
const std::string kExpert = kLayer + "block_sparse_moe.experts.";

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// The file of a folder with a fault in it, and its digest stated as an exporter with that fault would
// state it; the rest of the folder is as it was.
void damage(const fs::path& folder, const std::function<void(RawTensors&)>& change) {
  const fs::path file = folder / "adapter_model.safetensors";
  RawTensors tensors = checks::read_raw(file);
  change(tensors);
  checks::write_raw(file, tensors);
  json keys = json::parse(checks::read_bytes(folder / "expected_keys.json"));
  keys["file_sha256"] = engine::base::sha256_hex(checks::read_bytes(file));
  checks::write_bytes(folder / "expected_keys.json", keys.dump());
}

// What somebody who writes an exporter would get wrong. Each is refused by the proof, and each but
// the last two is another change of the model by the check's own loader as well.
TEST_F(Proof, PlantedFaults) {
  const fs::path folder = exported("each", {"--format", "peft-per-expert"});
  const std::string whole = checks::read_bytes(folder / "adapter_model.safetensors");
  const std::string config = checks::read_bytes(folder / "adapter_config.json");
  const std::string keys_file = checks::read_bytes(folder / "expected_keys.json");
  const auto refused = [&](const std::function<void(RawTensors&)>& change) {
    damage(folder, change);
    const std::string message = verify(folder);
    std::string loaded;
    try {
      loaded = difference(checks::peft_deltas(folder, shared_->frozen), shared_->native);
    } catch (const std::exception& error) {
      loaded = error.what();
    }
    EXPECT_NE(loaded, "") << message;
    checks::write_bytes(folder / "adapter_model.safetensors", whole);
    checks::write_bytes(folder / "expected_keys.json", keys_file);
    return message;
  };
  // Written again without a change, it holds: it is the faults that are refused.
  damage(folder, [](RawTensors&) {});
  ASSERT_EQ(verify(folder), "");
  ASSERT_EQ(difference(checks::peft_deltas(folder, shared_->frozen), shared_->native), "");

  const std::string b = kLayer + "self_attn.q_proj.lora_B.weight";
  const std::string a = kLayer + "self_attn.q_proj.lora_A.weight";
  EXPECT_THAT(refused([&](RawTensors& tensors) {
                auto& tensor = tensors.at(b);
                const std::vector<float> values = floats(tensor.bytes);
                const std::size_t rows = static_cast<std::size_t>(tensor.spec.shape[0]);
                const std::size_t cols = static_cast<std::size_t>(tensor.spec.shape[1]);
                std::vector<float> transposed;
                for (std::size_t k = 0; k < cols; ++k) {
                  for (std::size_t o = 0; o < rows; ++o) transposed.push_back(values[o * cols + k]);
                }
                tensor.bytes = bytes_of(transposed);
              }),
              AllOf(HasSubstr(b), HasSubstr("layers.5.q.lora_B")))
      << "B transposed under the right shape";
  EXPECT_THAT(refused([&](RawTensors& tensors) {
                std::swap(tensors.at(b).spec.shape[0], tensors.at(b).spec.shape[1]);
              }),
              AllOf(HasSubstr(b), HasSubstr("is wanted")))
      << "B transposed, its shape too";
  EXPECT_THAT(refused([&](RawTensors& tensors) {
                for (auto& [name, tensor] : tensors) {
                  if (!name.ends_with("lora_B.weight")) continue;
                  std::vector<float> values = floats(tensor.bytes);
                  for (float& value : values) value *= 7.0f / 3.0f;
                  tensor.bytes = bytes_of(values);
                }
              }),
              HasSubstr("lora_B"))
      << "the scale in B and in the config";
  EXPECT_THAT(refused([&](RawTensors& tensors) {
                // Every expert's values are the same: only the keys can tell.
                for (const char* matrix : {"A", "B"}) {
                  const auto key = [&](int e) {
                    return fmt::format("{}{}.w1.lora_{}.weight", kExpert, e, matrix);
                  };
                  for (int e = 16; e > 0; --e) tensors[key(e)] = tensors.at(key(e - 1));
                  tensors.erase(key(0));
                }
              }),
              HasSubstr("experts.16.w1"))
      << "experts counted from one";
  EXPECT_THAT(refused([&](RawTensors& tensors) {
                for (int e = 0; e < 15; ++e) {
                  tensors.at(fmt::format("{}{}.w2.lora_A.weight", kExpert, e)) =
                      tensors.at(fmt::format("{}{}.w2.lora_A.weight",
                                             "base_model.model.language_model.model.layers.6."
                                             "block_sparse_moe.experts.",
                                             e));
                }
              }),
              HasSubstr("experts.0.w2"))
      << "the experts of the layer behind";
  EXPECT_THAT(refused([&](RawTensors& tensors) {
                tensors.erase(fmt::format("{}3.w3.lora_B.weight", kExpert));
              }),
              AllOf(HasSubstr("no B"), HasSubstr("experts.w3 of expert 3")))
      << "one tensor missing";
  EXPECT_THAT(refused([&](RawTensors& tensors) { tensors.erase(a); }),
              AllOf(HasSubstr("no A"), HasSubstr("layers.5.self_attn.q_proj")))
      << "one tensor missing, not an expert's";
  EXPECT_THAT(refused([&](RawTensors& tensors) {
                std::swap(tensors.at(kExpert + "3.w1.lora_A.weight").bytes,
                          tensors.at(kExpert + "3.w3.lora_A.weight").bytes);
              }),
              HasSubstr("w1"))
      << "gate and up exchanged";
  EXPECT_THAT(refused([&](RawTensors& tensors) {
                std::vector<float> values = floats(tensors.at(a).bytes);
                values[17] = std::nextafter(values[17], 1.0f);
                tensors.at(a).bytes = bytes_of(values);
              }),
              AllOf(HasSubstr("value 17"), HasSubstr("layers.5.q.lora_A")))
      << "one bit";

  // alpha instead of alpha/r, and alpha/r in place of alpha.
  for (const double wrong : {21.0, 7.0 / 3.0}) {
    json changed = json::parse(config);
    changed["lora_alpha"] = wrong;
    checks::write_bytes(folder / "adapter_config.json", changed.dump());
    EXPECT_THAT(verify(folder), HasSubstr("alpha/r = 7/3 = 2.333"));
    EXPECT_NE(difference(checks::peft_deltas(folder, shared_->frozen), shared_->native), "");
  }
  checks::write_bytes(folder / "adapter_config.json", config);

  // Another adapter's export is not this one's.
  json keys = json::parse(checks::read_bytes(folder / "expected_keys.json"));
  keys["keys"] = keys.at("keys").get<int>() - 1;
  checks::write_bytes(folder / "expected_keys.json", keys.dump());
  EXPECT_THAT(verify(folder), HasSubstr("expected_keys.json"));
}

// Experts that were trained apart have no native form.
TEST_F(Proof, ExpertsThatDifferAreNotImported) {
  const fs::path folder = exported("each", {"--format", "peft-per-expert"});
  damage(folder, [&](RawTensors& tensors) {
    auto& tensor = tensors.at(kExpert + "7.w1.lora_B.weight");
    std::vector<float> values = floats(tensor.bytes);
    values[2] += 1.0f;
    tensor.bytes = bytes_of(values);
  });
  EXPECT_THAT(import(folder, "back"), AllOf(HasSubstr("experts.7.w1"), HasSubstr("one for all")));
  EXPECT_FALSE(fs::exists(scratch_ / "back"));
}

TEST_F(Proof, AValueThatIsNotFiniteIsNamedByItsPlace) {
  const fs::path folder = exported("nan", {"--format", "peft"});
  const std::string name = kExpert + "w1.lora_B.weight";
  std::size_t last = 0;
  damage(folder, [&](RawTensors& tensors) {
    ASSERT_TRUE(tensors.contains(name));
    auto& tensor = tensors.at(name);
    std::vector<float> values = floats(tensor.bytes);
    last = values.size() - 1;
    values[last] = -std::numeric_limits<float>::infinity();
    tensor.bytes = bytes_of(values);
  });
  EXPECT_THAT(import(folder, "back"),
              AllOf(HasSubstr((folder / "adapter_model.safetensors").string()),
                    HasSubstr(fmt::format("tensor {}: element {} is -inf", name, last))));
  EXPECT_FALSE(fs::exists(scratch_ / "back"));
}

// H10 (huggingface/transformers#27397, huggingface/peft#1599): cut by one byte, empty, no tensors.
TEST_F(Proof, H10_CutOrEmpty) {
  const fs::path peft = exported("peft", {"--format", "peft"}) / "adapter_model.safetensors";
  const fs::path gguf = exported("gguf", {"--format", "gguf"}) / "adapter.gguf";
  for (const fs::path& file : {peft, gguf}) {
    const std::string whole = checks::read_bytes(file);
    for (const std::string& bytes :
         {whole.substr(0, whole.size() - 1), whole.substr(0, whole.size() / 2), whole.substr(0, 40),
          whole.substr(0, 3), std::string(), whole + '\0'}) {
      checks::write_bytes(file, bytes);
      EXPECT_THAT(import(file.parent_path(), "back"),
                  AllOf(HasSubstr(file.string()), testing::Not(HasSubstr("usage"))));
      EXPECT_THAT(verify(file.parent_path()), HasSubstr(file.string()));
    }
    EXPECT_FALSE(fs::exists(scratch_ / "back"));
    checks::write_bytes(file, whole);
    EXPECT_EQ(verify(file.parent_path()), "");
  }
  checks::write_raw(peft, {});
  EXPECT_THAT(import(peft.parent_path(), "back"), HasSubstr("without tensors"));
  // An export of nothing is refused as early as its native file.
  checks::write_bytes(scratch_ / "empty.safetensors", "");
  EXPECT_THAT(refusal({"--format", "peft"}, scratch_ / "empty.safetensors"),
              HasSubstr("empty.safetensors"));
}

// What an import would otherwise copy in good faith: a damaged value, and the adapter of another
// checkpoint whose shapes fit.
TEST_F(Proof, ImportAsksForTheBytesAndTheCheckpoint) {
  const fs::path folder = exported("guarded", {"--format", "peft"});
  const std::string right = checks::read_bytes(folder / "adapter_model.safetensors");
  std::string damaged = right;
  damaged[damaged.size() - 4] = static_cast<char>(damaged[damaged.size() - 4] ^ 1);
  checks::write_bytes(folder / "adapter_model.safetensors", damaged);
  EXPECT_THAT(import(folder, "damaged"), AllOf(HasSubstr("SHA-256"), HasSubstr("expected_keys")));
  checks::write_bytes(folder / "adapter_model.safetensors", right);

  const std::string said = checks::read_bytes(folder / "expected_keys.json");
  json other = json::parse(said);
  other["made_for"]["headers_sha256"] = std::string(64, '0');
  checks::write_bytes(folder / "expected_keys.json", other.dump());
  EXPECT_THAT(import(folder, "foreign"), HasSubstr("is for another checkpoint"));
  checks::write_bytes(folder / "expected_keys.json", said);
  // Half the change, by a field beside the tensors.
  const std::string config = checks::read_bytes(folder / "adapter_config.json");
  json halved = json::parse(config);
  halved["lora_alpha"] = halved.at("lora_alpha").get<double>() / 2;
  checks::write_bytes(folder / "adapter_config.json", halved.dump());
  EXPECT_THAT(import(folder, "halved"), AllOf(HasSubstr("expected_keys.json: says alpha"),
                                              HasSubstr("adapter_model.safetensors has")));
  checks::write_bytes(folder / "adapter_config.json", config);
  EXPECT_EQ(import(folder, "right"), "");
  EXPECT_EQ(checks::read_bytes(scratch_ / "right"), checks::read_bytes(shared_->adapter));
  // A folder of another program says neither: taken, with a word on standard error.
  fs::remove(folder / "expected_keys.json");
  EXPECT_EQ(import(folder, "unsaid"), "");
}

// H14 (sgl-project/sglang#25528, #27381): what a loader needs to prove that it used every key.
TEST_F(Proof, H14_KeysAndProbeTellWhetherItWasApplied) {
  const fs::path out = scratch_ / "probed";
  ASSERT_EQ(checks::adapter_command({"export", shared_->adapter.string(), "--model",
                                     shared_->model.string(), "--out", out.string(), "--format",
                                     "peft", "--probe-tokens", "6", "--probe-seed", "3"}),
            "");
  // The digest by its stated rule, over the keys as another reader finds them.
  std::vector<std::string> lines;
  const oracle::SafeTensors exported(out / "adapter_model.safetensors");
  for (const auto& [name, info] : exported.tensors()) {
    lines.push_back(fmt::format("{} {} {}\n", name, info.dtype, fmt::join(info.shape, "x")));
  }
  const auto digest = [&] {
    std::sort(lines.begin(), lines.end());
    return engine::base::sha256_hex(fmt::format("{}", fmt::join(lines, "")));
  };
  const json keys = json::parse(checks::read_bytes(out / "expected_keys.json"));
  EXPECT_EQ(keys.at("keys"), lines.size());
  EXPECT_EQ(keys.at("sha256"), digest());
  lines.pop_back();
  EXPECT_NE(keys.at("sha256"), digest()) << "a dropped key must show";

  // The probe's logits are those of the engine with the adapter, and without it.
  const json probe = json::parse(checks::read_bytes(out / "probe.json"));
  const std::vector<std::int32_t> ids = probe.at("ids");
  ASSERT_EQ(ids.size(), 6u);
  checks::Engine engine(shared_->model);
  const auto batch = checks::forward_batch(ids);
  const auto set = checks::random_adapter_set(engine, 3, 7.0, 5);
  const checks::EngineRun with = checks::run_forward(engine, batch, set.get());
  const checks::EngineRun without = checks::run_forward(engine, batch, nullptr);
  const auto sha256 = [](const std::vector<float>& logits) {
    engine::base::Sha256 hash;
    hash.update_values(std::span<const float>(logits));
    return hash.hex();
  };
  EXPECT_EQ(probe.at("adapted_logits_sha256"), sha256(with.logits));
  EXPECT_EQ(probe.at("base_logits_sha256"), sha256(without.logits));
  // The stated criterion tells a loader that applied it from one that did not, or doubled it.
  const auto s = [&](const std::vector<float>& logits) {
    double dot = 0.0, square = 0.0;
    for (const json& row : probe.at("logits")) {
      const std::size_t at = logits.size() - static_cast<std::size_t>(engine.config().vocabulary) +
                             row.at("id").get<std::size_t>();
      const double change = row.at("adapted").get<double>() - row.at("base").get<double>();
      EXPECT_EQ(change, row.at("change").get<double>());
      EXPECT_NE(change, 0.0);
      dot += (logits[at] - row.at("base").get<double>()) * change;
      square += change * change;
    }
    return dot / square;
  };
  EXPECT_EQ(s(with.logits), 1.0);
  EXPECT_EQ(s(without.logits), 0.0);
  const auto none = checks::random_adapter_set(engine, 3, 1e-30, 5);
  EXPECT_LT(s(checks::run_forward(engine, batch, none.get()).logits), 0.5);
  EXPECT_EQ(verify(out), "");
}

}  // namespace
