#include <bit>
#include <cmath>

#include "checks/adapter/exports.h"
#include "engine/adapter/delta_proof.h"
#include "engine/adapter/export.h"
#include "engine/adapter/native.h"
#include "engine/cli/adapter_modules.h"
#include "oracle/safetensors.h"

namespace {

using checks::AdapterCase;
using checks::Deltas;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

using Export = AdapterCase;

// Files are written, read and compared in pieces of 65,536 values; no matrix of the tiny model's own
// adapter has so many.
TEST_F(Export, MatricesLongerThanAPiece) {
  constexpr std::int64_t kRank = 1100;
  const fs::path adapter = scratch_ / "long.safetensors";
  engine::adapter::NativeAdapter native = engine::adapter::read_native_adapter(shared_->adapter);
  std::erase_if(native.tensors, [](const auto& tensor) {
    return tensor.name.find(".q.lora_") == std::string::npos;
  });
  ASSERT_FALSE(native.tensors.empty());
  native.targets = {"q"};
  native.rank = kRank;
  std::vector<std::vector<float>> values(native.tensors.size());
  float next = 1.0f;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto& tensor = native.tensors[i];
    tensor.shape[tensor.name.ends_with("A") ? 0 : 1] = kRank;
    values[i].resize(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]));
    ASSERT_GT(values[i].size(), std::size_t{1} << 16) << tensor.name;
    for (float& value : values[i]) value = next = std::nextafter(next, 2.0f);  // no two alike
    tensor.values = values[i];
  }
  engine::adapter::write_native_adapter(adapter, native.tensors, native);

  for (const char* format : {"peft", "gguf"}) {
    const fs::path out = scratch_ / format;
    ASSERT_EQ(
        checks::adapter_command({"export", adapter.string(), "--model", shared_->model.string(),
                                 "--out", out.string(), "--format", format, "--probe-tokens", "0"}),
        "");
    ASSERT_EQ(import(out, std::string(format) + "_back"), "");
    EXPECT_TRUE(checks::read_bytes(scratch_ / (std::string(format) + "_back")) ==
                checks::read_bytes(adapter))
        << format;
  }
  // The round trip alone would not see a piece that both ways put in the same wrong place.
  const oracle::SafeTensors written(scratch_ / "peft" / "adapter_model.safetensors");
  const oracle::SafeTensors wanted(adapter);
  EXPECT_EQ(written.bytes("base_model.model.language_model.model.layers.5.self_attn.q_proj."
                          "lora_A.weight"),
            wanted.bytes("layers.5.q.lora_A"));
}

// In the first matrix, last value.
TEST_F(Export, ValuesThatTheFileCannotCarryAreRefused) {
  engine::adapter::NativeAdapter native = engine::adapter::read_native_adapter(shared_->adapter);
  std::vector<float> values(native.tensors[0].values.begin(), native.tensors[0].values.end());
  native.tensors[0].values = values;
  const fs::path adapter = scratch_ / "edge.safetensors";
  const auto write = [&](std::uint32_t bits) {
    values.back() = std::bit_cast<float>(bits);
    engine::adapter::write_native_adapter(adapter, native.tensors, native);
  };
  // Half a unit above the largest bfloat16, 0x7F7F, is rounded to even, which is infinity.
  for (const std::uint32_t sign : {0u, 0x80000000u}) {
    for (const std::uint32_t bits : {0x7F7F8000u, 0x7F7FFFFFu}) {
      write(sign | bits);
      for (const char* format : {"peft", "gguf"}) {
        EXPECT_THAT(refusal({"--format", format, "--dtype", "bf16"}, adapter),
                    AllOf(HasSubstr(native.tensors[0].name), HasSubstr("BF16 cannot carry")));
      }
    }
  }
  // The largest that bfloat16 has room for, and that float32 has.
  for (const auto& [bits, dtype] : {std::pair{0x7F7F7FFFu, "bf16"}, {0x7F7FFFFFu, "f32"}}) {
    write(bits);
    EXPECT_EQ(
        checks::adapter_command({"export", adapter.string(), "--model", shared_->model.string(),
                                 "--out", (scratch_ / dtype).string(), "--format", "peft",
                                 "--dtype", dtype, "--probe-tokens", "0"}),
        "");
  }
  // A file that holds one is refused when it is read; what comes otherwise, when it is written.
  const checks::Engine engine(shared_->model);
  const engine::cli::AdapterModules modules(engine.config(), engine.model.shards());
  for (const std::uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u}) {
    values.back() = std::bit_cast<float>(bits);
    for (const auto dtype : {engine::base::Dtype::kF32, engine::base::Dtype::kBf16}) {
      engine::adapter::ExportSettings settings;
      settings.dtype = dtype;
      try {
        write_export(scratch_.path(), native, modules.base(), modules.base().modules, settings);
        ADD_FAILURE() << values.back() << " was written";
      } catch (const engine::base::Error& error) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr(native.tensors[0].name),
                          HasSubstr(engine::base::name_of(dtype)), HasSubstr("cannot carry")));
      }
      EXPECT_FALSE(fs::exists(scratch_ / "adapter_config.json"));
    }
  }
}

// From the bits, apart from the rounding of the engine.
bool is_bfloat16(float value) { return (std::bit_cast<std::uint32_t>(value) & 0xFFFFu) == 0; }

double norm_of_difference(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

// What the proof says of rounding to bfloat16, against the changes themselves in double.
TEST_F(Export, ReportsWhatRoundingDoes) {
  const fs::path folder = exported("bf16", {"--format", "peft-per-expert", "--dtype", "bf16"});
  checks::Engine engine(shared_->model);
  const engine::cli::AdapterModules modules(engine.config(), engine.model.shards());
  const engine::adapter::NativeAdapter native =
      engine::adapter::read_native_adapter(shared_->adapter);
  const engine::adapter::DeltaProof proof = prove_delta(
      engine::adapter::open_exported(folder, modules.base()), native, modules.base().modules);

  std::int64_t rounded = 0;
  for (const auto& tensor : native.tensors) {
    rounded += std::ranges::count_if(tensor.values, [](float v) { return !is_bfloat16(v); });
  }
  EXPECT_GT(rounded, 1000);
  EXPECT_EQ(proof.rounded, rounded);

  const Deltas after = checks::peft_deltas(folder, shared_->frozen);
  double worst = 0.0;
  std::string worst_module;
  for (const auto& [module, delta] : shared_->native) {
    const double change = norm_of_difference(after.at(module), delta) /
                          norm_of_difference(delta, std::vector<double>(delta.size()));
    if (change > worst) {
      worst = change;
      worst_module = module;
    }
  }
  // Both are double sums of terms that cancel to 1e-3: about thirteen digits are left of sixteen.
  EXPECT_NEAR(proof.worst, worst, 1e-10 * worst);
  // Of routed experts the proof names all, the changes name the first.
  if (const std::size_t at = worst_module.find(".experts."); at != std::string::npos) {
    worst_module.erase(at + 8, worst_module.rfind('.') - at - 8);
  }
  EXPECT_EQ(proof.worst_module, worst_module);
  EXPECT_EQ(proof.matrices, static_cast<std::int64_t>(shared_->native.size()));

  const engine::adapter::DeltaProof exact = prove_delta(
      engine::adapter::open_exported(exported("f32", {"--format", "peft"}), modules.base()), native,
      modules.base().modules);
  EXPECT_EQ(exact.rounded, 0);
  EXPECT_EQ(exact.worst, 0.0);
}

}  // namespace
