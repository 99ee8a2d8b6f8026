#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "checks/reference.h"
#include "checks/scratch_folder.h"
#include "engine/adapter/native.h"
#include "engine/base/error.h"
#include "engine/store/safetensors_writer.h"

namespace {

using checks::read_bytes;
using checks::ScratchFolder;
using checks::write_bytes;
using engine::adapter::NativeAdapter;
using engine::adapter::NativeMetadata;
using engine::adapter::NativeTensor;
using engine::adapter::read_native_adapter;
using engine::base::Dtype;
using engine::base::Error;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Two adapters of rank two: 3 -> 4 and 5 -> 1.
struct Sample {
  std::vector<float> values;
  std::vector<NativeTensor> tensors;
  NativeMetadata metadata{2, 8.5, {"q", "expert_down"}, {{"run", "toy"}}};

  Sample() : values(6 + 8 + 10 + 2) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1f * static_cast<float>(i) - 1;
    std::span<const float> left(values);
    const auto add = [&](const char* name, std::int64_t rows, std::int64_t cols) {
      const std::size_t count = static_cast<std::size_t>(rows * cols);
      tensors.push_back({name, {rows, cols}, left.first(count)});
      left = left.subspan(count);
    };
    add("layers.0.q.lora_A", 2, 3);
    add("layers.0.q.lora_B", 4, 2);
    add("layers.10.expert_down.lora_A", 2, 5);
    add("layers.10.expert_down.lora_B", 1, 2);
  }
};

// The message with which reading a file of this content is refused, "accepted" if it is not.
std::string refusal(const std::vector<engine::store::TensorSpec>& specs,
                    const std::map<std::string, std::string>& metadata) {
  const ScratchFolder scratch;
  engine::store::SafetensorsWriter writer(scratch / "a.safetensors", specs, metadata);
  for (const auto& spec : specs) writer.write(spec.name, std::vector<std::byte>(spec.bytes()));
  writer.finish();
  try {
    read_native_adapter(scratch / "a.safetensors");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr((scratch / "a.safetensors").string()));
    return error.what();
  }
  return "accepted";
}

const std::map<std::string, std::string> kMetadata = {{"r", "2"}, {"alpha", "4"}, {"targets", "q"}};
const std::vector<engine::store::TensorSpec> kPair = {{"layers.0.q.lora_A", Dtype::kF32, {2, 3}},
                                                      {"layers.0.q.lora_B", Dtype::kF32, {4, 2}}};

std::string refusal_with(const std::string& key, const std::string& value) {
  auto metadata = kMetadata;
  metadata[key] = value;
  return refusal(kPair, metadata);
}

std::string refusal_without(const std::string& key) {
  auto metadata = kMetadata;
  metadata.erase(key);
  return refusal(kPair, metadata);
}

TEST(NativeAdapter, ReadsWhatWasWritten) {
  const ScratchFolder scratch;
  const Sample sample;
  engine::adapter::write_native_adapter(scratch / "a.safetensors", sample.tensors, sample.metadata);
  const NativeAdapter read = read_native_adapter(scratch / "a.safetensors");
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.alpha, 8.5);
  EXPECT_THAT(read.targets, ElementsAre("q", "expert_down"));
  EXPECT_EQ(read.more, sample.metadata.more);
  EXPECT_EQ(read.storage, sample.values);
  ASSERT_EQ(read.tensors.size(), sample.tensors.size());
  for (const NativeTensor& tensor : sample.tensors) {
    const NativeTensor* found = read.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(found->values, tensor.values));
  }
  EXPECT_EQ(read.find("layers.1.q.lora_A"), nullptr);
}

// Made by another program, without a list of targets.
TEST(NativeAdapter, ReadsTheReferenceAdapter) {
  CHECKS_NEED(path, checks::reference_data("grad/tiny_g1/adapters.safetensors"));
  const NativeAdapter read = read_native_adapter(path);
  EXPECT_EQ(read.rank, 4);
  EXPECT_EQ(read.alpha, 8.0);
  EXPECT_EQ(read.tensors.size(), 202u);
  EXPECT_THAT(read.targets,
              testing::UnorderedElementsAre("q", "v", "dense_gate", "dense_up", "dense_down",
                                            "shared_gate", "shared_up", "shared_down",
                                            "expert_gate", "expert_up", "expert_down"));
  for (const auto& [name, tensor] : checks::read_safetensors(path)) {
    const NativeTensor* found = read.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(found->values, tensor.f32())) << name;
  }
}

// H10 (huggingface/transformers#27397, huggingface/peft#1599): a file cut by one byte, an empty file, no tensors.
TEST(NativeAdapter, H10CutOrEmpty) {
  const ScratchFolder scratch;
  const Sample sample;
  engine::adapter::write_native_adapter(scratch / "a", sample.tensors, sample.metadata);
  const std::string whole = read_bytes(scratch / "a");
  const auto read_as = [&](const std::string& bytes) {
    write_bytes(scratch / "cut", bytes);
    return read_native_adapter(scratch / "cut");
  };
  EXPECT_NO_THROW(read_as(whole));
  EXPECT_THROW(read_as(whole.substr(0, whole.size() - 1)), Error);
  EXPECT_THROW(read_as(whole + '\0'), Error);
  EXPECT_THROW(read_as(whole.substr(0, 100)), Error);
  EXPECT_THROW(read_as(""), Error);
  EXPECT_THROW(read_native_adapter(scratch / "absent"), Error);
  EXPECT_THAT(refusal({}, kMetadata), HasSubstr("without tensors"));
}

TEST(NativeAdapter, AValueThatIsNotFiniteIsNamedByItsPlace) {
  const ScratchFolder scratch;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& [value, named] : {std::pair(std::numeric_limits<float>::quiet_NaN(), "nan"),
                                     std::pair(kInfinity, "inf"), std::pair(-kInfinity, "-inf")}) {
    Sample sample;
    sample.values[6 + 7] = value;  // the last of layers.0.q.lora_B
    engine::adapter::write_native_adapter(scratch / "a", sample.tensors, sample.metadata);
    try {
      read_native_adapter(scratch / "a");
      ADD_FAILURE() << named << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(),
                fmt::format("{}: tensor layers.0.q.lora_B: element 7 is {}, not finite",
                            (scratch / "a").string(), named));
    }
  }
  // Of a tensor that is read piece by piece.
  const std::vector<float> piece{0.0f, kInfinity};
  try {
    engine::adapter::require_finite("f", "t", 65536, piece);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "f: tensor t: element 65537 is inf, not finite");
  }
  EXPECT_NO_THROW(engine::adapter::require_finite("f", "t", 65536, std::span(piece).first(1)));
  Sample largest;
  largest.values[0] = -std::numeric_limits<float>::max();
  largest.values[1] = std::numeric_limits<float>::denorm_min();
  engine::adapter::write_native_adapter(scratch / "a", largest.tensors, largest.metadata);
  EXPECT_NO_THROW(read_native_adapter(scratch / "a"));
}

TEST(NativeAdapter, PlantedFaults) {
  ASSERT_EQ(refusal(kPair, kMetadata), "accepted");
  EXPECT_THAT(refusal_without("r"), HasSubstr("no \"r\""));
  EXPECT_THAT(refusal_without("alpha"), HasSubstr("no \"alpha\""));
  for (const char* wrong : {"0", "-2", "2.0", " 2", "2x", "", "99999999999999999999"}) {
    EXPECT_THAT(refusal_with("r", wrong), HasSubstr("not a positive number")) << wrong;
  }
  for (const char* wrong : {"0", "-4", "nan", "inf", "4,0", ""}) {
    EXPECT_THAT(refusal_with("alpha", wrong), HasSubstr("not a positive number")) << wrong;
  }
  EXPECT_THAT(refusal_with("r", "4"),
              AllOf(HasSubstr("lora_A"), HasSubstr("[2,3]"), HasSubstr("r 4")));
  EXPECT_THAT(refusal_with("targets", "v"), HasSubstr("is of no target in \"v\""));
  EXPECT_THAT(refusal_with("targets", ""), HasSubstr("is of no target"));

  const auto with = [](std::size_t at, auto change) {
    auto specs = kPair;
    change(specs[at]);
    return refusal(specs, kMetadata);
  };
  using Spec = engine::store::TensorSpec;
  EXPECT_THAT(with(1, [](Spec& b) { b.shape = {2, 4}; }), HasSubstr("[out,2] is wanted"));
  EXPECT_THAT(with(0, [](Spec& a) { a.shape = {2, 3, 1}; }), HasSubstr("[2,in] is wanted"));
  EXPECT_THAT(with(0, [](Spec& a) { a.shape = {2, 0}; }), HasSubstr("[2,in] is wanted"));
  EXPECT_THAT(with(1, [](Spec& b) { b.dtype = Dtype::kBf16; }), HasSubstr("is BF16"));
  EXPECT_THAT(with(1, [](Spec& b) { b.name = "layers.1.q.lora_B"; }),
              HasSubstr("there is layers.0.q.lora_A, but no layers.0.q.lora_B"));
  for (const char* name :
       {"layers.00.q.lora_A", "layers..q.lora_A", "layers.0.q.lora_C", "layers.0.lora_A",
        "layers.0..lora_A", "0.q.lora_A", "layers.0.Q.lora_A", "layers.0.q.lora_A.weight",
        "base_model.model.layers.0.q.lora_A", "layers.-1.q.lora_A"}) {
    EXPECT_THAT(with(0, [&](Spec& a) { a.name = name; }), HasSubstr("is not named")) << name;
  }
}

}  // namespace
