// The trace on disk: its bytes, what is refused of them, and what an export leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "checks/measure/toy_trace.h"
#include "checks/reference.h"
#include "checks/scratch_folder.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/f16.h"
#include "engine/base/sha256.h"
#include "engine/measure/routing_trace.h"

namespace {

namespace measure = engine::measure;
namespace fs = std::filesystem;
using checks::read_bytes;
using checks::ScratchFolder;
using checks::toy_layers;
using checks::write_bytes;
using engine::base::Error;
using measure::LayerRouting;
using measure::RoutingTrace;
using testing::AllOf;
using testing::HasSubstr;

// The records as FORMATS of LazyLoRA say, byte by byte.
std::string little(std::int64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFF);
  return text;
}

// The f16 of the weights that the toys have.
std::int64_t half_bits(float weight) {
  if (weight == 0.0f) return 0;
  return weight == 0.25f ? 0x3400 : weight == 0.5f ? 0x3800 : weight == 1.0f ? 0x3C00 : 0x4000;
}

std::string record_of(const LayerRouting& routing) {
  std::string bytes = little(routing.layer, 4) + little(6, 4) + little(2, 4);
  for (const std::int32_t expert : routing.index) bytes += little(expert, 2);
  for (const float weight : routing.weight) bytes += little(half_bits(weight), 2);
  return bytes;
}

std::string toy_records() {
  std::string bytes;
  for (const LayerRouting& layer : toy_layers()) bytes += record_of(layer);
  return bytes;
}

std::string refusal(const fs::path& path, std::int64_t experts = 0) {
  try {
    const RoutingTrace trace(path, experts);
    for (std::size_t i = 0; i < trace.layers().size(); ++i) trace.read(i);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(F16, EveryValueComesBackAndTiesGoToEven) {
  using engine::base::f16_to_float;
  using engine::base::float_to_f16;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
      continue;
    }
    ASSERT_EQ(float_to_f16(value), half);
    const float above = f16_to_float(static_cast<std::uint16_t>(bits + 1));
    if ((bits & 0x7FFF) >= 0x7BFF) continue;  // the largest has no neighbour, infinity none
    // Halfway to the neighbour away from zero: the even one; a little to either side: the nearer.
    const float middle = (value + above) / 2.0f;
    ASSERT_EQ(float_to_f16(middle), (bits & 1) != 0 ? half + 1 : half) << bits;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, value)), half) << bits;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, above)), half + 1) << bits;
  }
  EXPECT_EQ(float_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
}

TEST(RoutingTrace, BytesAreLazyLorasRecords) {
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "toy");
  EXPECT_EQ(read_bytes(scratch / "toy" / "trace.bin"), toy_records());
  const RoutingTrace trace(scratch / "toy");
  EXPECT_EQ(trace.shape().documents, (std::vector<std::int64_t>{0, 4, 6}));
  EXPECT_EQ(trace.shape().experts, 4);
  EXPECT_EQ(trace.layers(), (std::vector<std::int64_t>{1, 2, 4}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(trace.read(i).index, toy_layers()[i].index);
    EXPECT_EQ(trace.read(i).weight, toy_layers()[i].weight);
  }
}

TEST(RoutingTrace, RecordsAloneAreOneText) {
  const ScratchFolder scratch;
  write_bytes(scratch / "records", toy_records());
  const RoutingTrace trace(scratch / "records", 4);
  EXPECT_EQ(trace.shape().documents, (std::vector<std::int64_t>{0, 6}));
  EXPECT_THAT(refusal(scratch / "records"), HasSubstr("has to be given"));
  EXPECT_THAT(refusal(scratch / "records", 3),
              AllOf(HasSubstr("layer 1"), HasSubstr("expert 3"), HasSubstr("0 ... 2")));
}

TEST(RoutingTrace, TheSameBytesTwiceAndNothingWrittenOver) {
  const ScratchFolder scratch;
  for (const char* name : {"a", "b"}) checks::write_toy_trace(scratch / name);
  for (const char* file : {"trace.bin", "trace.json"}) {
    EXPECT_EQ(read_bytes(scratch / "a" / file), read_bytes(scratch / "b" / file)) << file;
  }
  EXPECT_THAT([&] { checks::write_toy_trace(scratch / "a"); },
              testing::ThrowsMessage<Error>(HasSubstr("is there already")));
  fs::create_directory(scratch / "empty");
  EXPECT_THROW(checks::write_toy_trace(scratch / "empty"), Error);
  fs::create_symlink("nowhere", scratch / "link");
  EXPECT_THROW(checks::write_toy_trace(scratch / "link"), Error);
}

TEST(RoutingTrace, AFullDiskLeavesNothing) {
  const ScratchFolder scratch;
  {
    const checks::FileSizeLimit limit(100);
    EXPECT_THROW(checks::write_toy_trace(scratch / "toy"), Error);
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(RoutingTrace, WeightsThatAreNoF16AreRefusedWhenWritten) {
  const ScratchFolder scratch;
  const auto written = [&](float weight) {
    std::vector<LayerRouting> layers = toy_layers();
    layers[1].weight[4] = layers[1].weight[5] = weight;
    checks::write_toy_trace(scratch / "toy", true, false, layers);
  };
  for (const float weight : {-0.1f, 7e4f, 1e-9f, std::nanf(""), INFINITY}) {
    EXPECT_THAT([&] { written(weight); },
                testing::ThrowsMessage<Error>(AllOf(HasSubstr("layer 2"), HasSubstr("token 2"))))
        << weight;
    EXPECT_TRUE(fs::is_empty(scratch.path()));
  }
}

void exported(const fs::path& from, const fs::path& out) {
  engine::base::RamBudget budget(10'000'000);
  measure::export_trace(from, out, budget);
}

struct Fault {
  const char* name;
  std::function<void(std::string&)> make;
  std::vector<const char*> says;
};

void put(std::string& bytes, std::size_t at, std::int64_t value, int width) {
  bytes.replace(at, static_cast<std::size_t>(width), little(value, width));
}

// A record of the toy takes 12 + 24 + 24 = 60 bytes: experts at 12, weights at 36.
const std::vector<Fault> kFaults = {
    {"Empty", [](std::string& b) { b.clear(); }, {"no record"}},
    {"CutInAHeader", [](std::string& b) { b.resize(125); }, {"byte 120", "5 bytes", "12"}},
    {"CutInTheWeights", [](std::string& b) { b.resize(179); }, {"byte 120", "48", "47"}},
    {"BytesBehind", [](std::string& b) { b += "more"; }, {"byte 180", "4 bytes"}},
    {"LayerTwice", [](std::string& b) { put(b, 60, 1, 4); }, {"byte 60", "layer 1 behind layer 1"}},
    {"LayerBack", [](std::string& b) { put(b, 120, 0, 4); }, {"byte 120", "0 behind layer 2"}},
    {"LayerNegative", [](std::string& b) { put(b, 0, -1, 4); }, {"byte 0", "layer -1"}},
    {"LayerHuge", [](std::string& b) { put(b, 120, 65536, 4); }, {"byte 120", "layer 65536"}},
    {"NoTokens", [](std::string& b) { put(b, 4, 0, 4); }, {"byte 0", "n 0"}},
    {"HugeTokens", [](std::string& b) { put(b, 4, 0x7FFFFFFF, 4); }, {"17179869176", "168"}},
    {"NegativeTokens", [](std::string& b) { put(b, 4, -6, 4); }, {"n -6"}},
    {"NoneChosen", [](std::string& b) { put(b, 8, 0, 4); }, {"k 0"}},
    {"MoreThanThereAre", [](std::string& b) { put(b, 8, 5, 4); }, {"k 5", "4 experts"}},
    {"OtherTokens", [](std::string& b) { put(b, 64, 3, 4); }, {"byte 60", "n 3", "n 6"}},
    {"OtherChosen", [](std::string& b) { put(b, 68, 1, 4); }, {"byte 60", "k 1", "k 2"}},
    {"NegativeExpert", [](std::string& b) { put(b, 12, -1, 2); }, {"layer 1", "expert -1"}},
    {"ExpertTooHigh", [](std::string& b) { put(b, 74, 4, 2); }, {"layer 2, token 0", "expert 4"}},
    {"ExpertTwice", [](std::string& b) { put(b, 14, 0, 2); }, {"token 0", "expert 0", "twice"}},
    {"WeightNan", [](std::string& b) { put(b, 36, 0x7E00, 2); }, {"token 0", "weight nan"}},
    {"WeightInfinite", [](std::string& b) { put(b, 36, 0x7C00, 2); }, {"weight inf"}},
    {"WeightNegative", [](std::string& b) { put(b, 38, 0xB800, 2); }, {"place 1", "weight -0.5"}},
    {"NoWeight", [](std::string& b) { put(b, 36, 0, 4); }, {"token 0", "sum to 0"}},
};

TEST(RoutingTrace, OneWrongFieldOfTheRecords) {
  const ScratchFolder scratch;
  write_bytes(scratch / "right", toy_records());
  ASSERT_EQ(refusal(scratch / "right", 4), "");
  for (const Fault& fault : kFaults) {
    std::string bytes = toy_records();
    fault.make(bytes);
    write_bytes(scratch / "wrong", bytes);
    const std::string why = refusal(scratch / "wrong", 4);
    EXPECT_THAT(why, HasSubstr((scratch / "wrong").string())) << fault.name;
    for (const char* text : fault.says) EXPECT_THAT(why, HasSubstr(text)) << fault.name;
  }
}

struct TextFault {
  const char* from;
  const char* to;
  std::vector<const char*> says;
};

const std::vector<TextFault> kManifestFaults = {
    {"\"format\"", "\"formal\"", {"is_kda", "n_tokens"}},  // replaced below: see the test
    {"lazylora trace 1", "lazylora trace 2", {"lazylora trace 2", "lazylora trace 1"}},
    {"\"experts\": 4", "\"experts\": 0", {"experts is 0"}},
    {"\"experts\": 4", "\"experts\": 40000", {"experts is 40000", "32767"}},
    {"\"experts\": 4", "\"experts\": 4.0", {"experts is 4.0"}},
    {"\"experts\": 4", "\"experts\": \"4\"", {"experts is \"4\""}},
    {"\"experts\": 4", "\"experts\": 18446744073709551615", {"experts is 18446744073709551615"}},
    {"\"experts\": 4", "\"experts\": 4, \"experts\": 4", {"\"experts\"", "twice"}},
    {"\"experts\": 4", "\"exports\": 4", {"exports"}},
    {"\"n_tokens\": 6", "\"n_tokens\": 7", {"documents 6", "n_tokens 7"}},
    {"\"n_tokens\": 4", "\"n_tokens\": 5", {"documents 7", "n_tokens 6"}},
    {"\"n\": 6", "\"n\": 5", {"layers[0]", "n 5", "n 6"}},
    {"\"k\": 2", "\"k\": 1", {"layers[0]", "k 1", "k 2"}},
    {"\"layer\": 2", "\"layer\": 3", {"layers[1]", "layer 3", "layer 2"}},
    {"\"unique_experts\": 4", "\"unique_experts\": 3", {"layer 1", "4 distinct", "3"}},
    {"\"is_kda\": true", "\"is_kda\": 1", {"is_kda is 1"}},
    {"\"bytes\": 180", "\"bytes\": 181", {"180 bytes", "181 bytes"}},
    {"\"loss\": 1.25", "\"loss\": \"low\"", {"loss is \"low\""}},
    {"_requested\": 5", "_requested\": 4", {"layers[2]", "layer 4", "layers_requested is 4"}},
    {"\"float32\"", "\"float16\"", {"compute_dtype is \"float16\"", "one of float32, torch"}},
    {"cccc\"", "ccc\"", {"config_sha256", "64 hex digits"}},
    {"dddd\"", "dddD\"", {"headers_sha256", "64 hex digits"}},
    {"\"ids\": [\n  3,", "\"ids\": [\n  2,", {"documents[0]", "ids_sha256"}},
    {"\"ids\": [\n  3,", "\"ids\": [\n  -3,", {"ids[0]", "-3"}},
    {"\"ids\": [\n  3,", "\"ids\": [", {"ids 5", "n_tokens 6"}},
    {"\"trace.bin\"", "\"../trace.bin\"", {"../trace.bin"}},
    {"\"layers\": [", "\"layers\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", {"deeper"}},
};

TEST(TraceManifest, OneWrongField) {
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "toy");
  const std::string right = read_bytes(scratch / "toy" / "trace.json");
  ASSERT_EQ(refusal(scratch / "toy"), "");
  for (const TextFault& fault : kManifestFaults) {
    std::string text = right;
    const std::size_t at = text.find(fault.from);
    ASSERT_NE(at, std::string::npos) << fault.from;
    text.replace(at, std::string(fault.from).size(), fault.to);
    write_bytes(scratch / "toy" / "trace.json", text);
    const std::string why = refusal(scratch / "toy");
    if (std::string(fault.to) == "\"formal\"") {
      // Without a format it is read as LazyLoRA's, which does not say how many experts there are.
      EXPECT_THAT(why, HasSubstr("has to be given"));
      continue;
    }
    EXPECT_THAT(why, HasSubstr("trace.")) << fault.to;
    for (const char* said : fault.says) EXPECT_THAT(why, HasSubstr(said)) << fault.to;
  }
  for (const char* text : {"", "{", "[]", "null", "{}", "{\"format\":1}"}) {
    write_bytes(scratch / "toy" / "trace.json", text);
    EXPECT_NE(refusal(scratch / "toy"), "") << text;
  }
  write_bytes(scratch / "toy" / "trace.json", right);
  EXPECT_THAT(refusal(scratch / "toy", 5), AllOf(HasSubstr("4 experts"), HasSubstr("5 were")));
  // A flipped bit that leaves a sound trace: the digest sees it.
  std::string bytes = toy_records();
  bytes[37] ^= 1;
  write_bytes(scratch / "toy" / "trace.bin", bytes);
  EXPECT_THAT(refusal(scratch / "toy"), HasSubstr(engine::base::sha256_hex(bytes)));
}

TEST(TraceManifest, ListedFilesAreThere) {
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "toy", true, true);
  ASSERT_EQ(refusal(scratch / "toy"), "");
  std::string bytes = read_bytes(scratch / "toy" / "trace.h5");
  bytes.back() ^= 1;
  write_bytes(scratch / "toy" / "trace.h5", bytes);
  EXPECT_THAT(refusal(scratch / "toy"),
              AllOf(HasSubstr("trace.h5: "), HasSubstr(engine::base::sha256_hex(bytes))));
  fs::remove(scratch / "toy" / "trace.h5");
  EXPECT_THAT(refusal(scratch / "toy"),
              HasSubstr(fmt::format("trace.json: files: trace.h5 has {} bytes, and is not there",
                                    bytes.size())));
}

TEST(TraceManifest, IdsStandThereOnlyIfAskedFor) {
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "with", true);
  checks::write_toy_trace(scratch / "without", false);
  const auto with = measure::read_trace_manifest(scratch / "with" / "trace.json");
  const auto without = measure::read_trace_manifest(scratch / "without" / "trace.json");
  EXPECT_EQ(with.ids, (std::vector<std::int32_t>{3, 1, 4, 1, 5, 9}));
  EXPECT_TRUE(without.ids.empty());
  // int32 3 1 4 1, little-endian.
  const std::string ids = little(3, 4) + little(1, 4) + little(4, 4) + little(1, 4);
  EXPECT_EQ(without.documents[0].ids_sha256, engine::base::sha256_hex(ids));
  EXPECT_EQ(with.documents[0].ids_sha256, without.documents[0].ids_sha256);
}

TEST(TraceExport, WithholdsIdsAndTag) {
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "toy", true, true);
  exported(scratch / "toy", scratch / "out");
  EXPECT_EQ(read_bytes(scratch / "out" / "trace.bin"), toy_records());
  EXPECT_FALSE(fs::exists(scratch / "out" / "trace.h5"));
  checks::write_toy_trace(scratch / "withheld", false);
  std::string without = read_bytes(scratch / "withheld" / "trace.json");
  const std::string tag = "\"tag\": \"toy\"";
  ASSERT_NE(without.find(tag), std::string::npos);
  without.replace(without.find(tag), tag.size(), "\"tag\": null");
  EXPECT_EQ(read_bytes(scratch / "out" / "trace.json"), without);
  EXPECT_THROW(exported(scratch / "toy", scratch / "out"), Error);
  EXPECT_THROW(exported(scratch / "toy" / "trace.bin", scratch / "other"), Error);
  // What is not sound is not passed on.
  std::string bytes = toy_records();
  bytes[37] ^= 1;
  write_bytes(scratch / "toy" / "trace.bin", bytes);
  EXPECT_THROW(exported(scratch / "toy", scratch / "other"), Error);
  EXPECT_FALSE(fs::exists(scratch / "other"));
}

// LazyLoRA's own manifest, with records of its shape made here: its trace.bin is not there.
std::string records_with_distinct(const measure::TraceManifest& manifest) {
  std::string bytes;
  for (const measure::TracedLayer& row : manifest.layers) {
    bytes += little(row.layer, 4) + little(row.tokens, 4) + little(row.chosen, 4);
    const std::int64_t count = row.tokens * row.chosen;
    for (std::int64_t i = 0; i < count; ++i) bytes += little(i % row.distinct, 2);
    for (std::int64_t i = 0; i < count; ++i) bytes += little(0x2C00, 2);
  }
  return bytes;
}

TEST(TraceExport, OfLazyLorasFolder) {
  CHECKS_NEED(folder, checks::reference_data("lazylora/traces/zh_paragraph_L93_2026-09-06"));
  const ScratchFolder scratch;
  fs::create_directory(scratch / "theirs");
  const std::string text = read_bytes(folder / "trace.json");
  write_bytes(scratch / "theirs" / "trace.json", text);
  const auto manifest = measure::read_trace_manifest(folder / "trace.json");
  ASSERT_EQ(manifest.ids.size(), 111u);
  write_bytes(scratch / "theirs" / "trace.bin", records_with_distinct(manifest));
  EXPECT_EQ(refusal(scratch / "theirs", 896), "");
  EXPECT_THAT(refusal(scratch / "theirs"), HasSubstr("has to be given"));
  exported(scratch / "theirs", scratch / "out");
  EXPECT_EQ(refusal(scratch / "out", 896), "");
  const std::string exported = read_bytes(scratch / "out" / "trace.json");
  const auto json = nlohmann::json::parse(text);
  EXPECT_THAT(exported, testing::Not(HasSubstr(json.at("text").get<std::string>())));
  EXPECT_THAT(exported, HasSubstr(engine::base::sha256_hex(json.at("text").get<std::string>())));
  EXPECT_TRUE(nlohmann::json::parse(exported).at("ids").is_null());
  for (const char* absent : {"model_dir", "created", "cpu", "seconds"}) {
    EXPECT_THAT(exported, testing::Not(HasSubstr(absent)));
  }
  EXPECT_EQ(read_bytes(scratch / "out" / "trace.bin"), read_bytes(scratch / "theirs/trace.bin"));
}

TEST(RoutingTrace, PlantedFaults) {
  const std::string right = toy_records();
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "toy");
  const std::string written = read_bytes(scratch / "toy" / "trace.bin");
  ASSERT_EQ(written, right);
  // Weights and experts of a token side by side, experts in ascending order, layers backwards.
  std::string interleaved = right;
  for (std::size_t i = 0; i < 12; ++i) {
    interleaved.replace(12 + 4 * i, 2, right.substr(12 + 2 * i, 2));
    interleaved.replace(14 + 4 * i, 2, right.substr(36 + 2 * i, 2));
  }
  EXPECT_NE(written, interleaved);
  std::vector<LayerRouting> sorted = toy_layers();
  std::sort(sorted[0].index.begin() + 2, sorted[0].index.begin() + 4);
  EXPECT_NE(written, record_of(sorted[0]) + record_of(sorted[1]) + record_of(sorted[2]));
  EXPECT_NE(written,
            record_of(toy_layers()[2]) + record_of(toy_layers()[1]) + record_of(toy_layers()[0]));
  // bf16 in place of f16: one half would be 0x3F00.
  EXPECT_NE(engine::base::float_to_bf16(0.5f), half_bits(0.5f));
}

}  // namespace
