#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checks/reference.h"
#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/store/safetensors_header.h"
#include "engine/store/safetensors_writer.h"

namespace {

using checks::read_bytes;
using checks::ScratchFolder;
using engine::base::Dtype;
using engine::base::Error;
using engine::store::SafetensorsWriter;
using engine::store::TensorSpec;

const std::vector<TensorSpec> kSpecs = {{"second.by.name", Dtype::kF32, {2, 3}},
                                        {"empty", Dtype::kBf16, {0, 4}},
                                        {"a \"quoted\" \u00fc", Dtype::kU8, {5}},
                                        {"scalar", Dtype::kF32, {}}};

// Bytes 1, 2, 3, ... through all tensors.
void write_all(SafetensorsWriter& writer) {
  int next = 1;
  for (const TensorSpec& spec : kSpecs) {
    std::vector<std::byte> bytes(spec.bytes());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(next++);
    writer.write(spec.name, bytes);
  }
}

std::string written(const std::map<std::string, std::string>& metadata) {
  const ScratchFolder scratch;
  SafetensorsWriter writer(scratch / "file.safetensors", kSpecs, metadata);
  write_all(writer);
  writer.finish();
  std::string bytes = read_bytes(scratch / "file.safetensors");
  EXPECT_EQ(writer.size(), bytes.size());
  return bytes;
}

// The rules of the format, from its description; empty if the bytes keep them.
std::string fault_in(const std::string& bytes) {
  if (bytes.size() < 8) return "no length";
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<std::uint8_t>(bytes[i]);
  if (length > bytes.size() - 8) return "length beyond the file";
  if (length % 8 != 0) return "header is not padded";
  const std::string header = bytes.substr(8, length);
  const std::size_t end = header.find_last_not_of(' ');
  if (header[0] != '{' || header[end] != '}') return "padding is not trailing spaces";
  const auto json = nlohmann::ordered_json::parse(header);
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : json.items()) {
    if (name == "__metadata__") continue;
    if (tensor.at("data_offsets").at(0) != offset) return "gap or overlap before " + name;
    offset = tensor.at("data_offsets").at(1);
  }
  return offset == bytes.size() - 8 - length ? "" : "data ends elsewhere";
}

TEST(SafetensorsWriter, KeepsTheRulesOfTheFormat) {
  EXPECT_EQ(fault_in(written({})), "");
  for (int i = 0; i < 8; ++i) EXPECT_EQ(fault_in(written({{"k", std::string(i, 'v')}})), "");
}

TEST(SafetensorsWriter, OrderNamesShapesAndBytes) {
  const ScratchFolder scratch;
  const std::string bytes = written({{"r", "4"}, {"say", "\"hello\"\n"}});
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  EXPECT_EQ(header.size(), kSpecs.size() + 1);
  EXPECT_EQ(header.at("__metadata__").at("say"), "\"hello\"\n");
  auto item = ++header.begin();
  for (const TensorSpec& spec : kSpecs) {
    EXPECT_EQ(item.key(), spec.name);
    EXPECT_EQ(item.value().at("dtype"), engine::base::name_of(spec.dtype));
    EXPECT_EQ(item.value().at("shape").get<std::vector<std::int64_t>>(), spec.shape);
    ++item;
  }
  const std::string data = bytes.substr(8 + length);
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(static_cast<std::uint8_t>(data[i]), i + 1);
  }
}

TEST(SafetensorsWriter, NoMetadataKeyWithoutMetadata) {
  EXPECT_EQ(written({}).find("__metadata__"), std::string::npos);
}

// Our own strict reader and the checks' independent one find what was written.
TEST(SafetensorsWriter, ReadersAgree) {
  const ScratchFolder scratch;
  const std::vector<float> values = {1.5f, -0.0f, 3e-39f, 1e38f};
  SafetensorsWriter writer(scratch / "f.safetensors", {{"values", Dtype::kF32, {4, 1}}});
  writer.write("values", std::as_bytes(std::span(values)));
  writer.finish();

  std::vector<engine::store::Finding> findings;
  const engine::store::File file(scratch / "f.safetensors");
  const auto header = engine::store::read_header(file, findings);
  EXPECT_TRUE(findings.empty());
  ASSERT_EQ(header.tensors.size(), 1u);
  EXPECT_EQ(header.tensors[0].offset % 8, 0u);
  const auto read = checks::read_safetensors(scratch / "f.safetensors");
  EXPECT_EQ(checks::at(read, "values").f32(), values);
}

TEST(SafetensorsWriter, UnfinishedLeavesNothing) {
  const ScratchFolder scratch;
  {
    SafetensorsWriter writer(scratch / "f.safetensors", kSpecs);
    write_all(writer);
    EXPECT_FALSE(std::filesystem::exists(scratch / "f.safetensors"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(SafetensorsWriter, FullDiskNamesFileAndBytesAndLeavesNothing) {
  const ScratchFolder scratch;
  std::filesystem::create_symlink("/dev/full", scratch / "f.safetensors.lazylora-tmp");
  try {
    SafetensorsWriter writer(scratch / "f.safetensors", kSpecs);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr((scratch / "f.safetensors").string()),
                               testing::HasSubstr("8 bytes not written: No space left")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(SafetensorsWriter, MetadataThatIsNotUtf8IsRefused) {
  const ScratchFolder scratch;
  EXPECT_THROW(SafetensorsWriter(scratch / "f", kSpecs, {{"name", "\xff"}}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(SafetensorsWriter, PlantedFaults) {
  const std::string good = written({});
  ASSERT_EQ(fault_in(good), "");
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), sizeof(length));
  const auto with_header = [&](const std::string& header) {
    std::string bytes(8, '\0');
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
    return bytes + header + good.substr(8 + length);
  };
  const std::string header = good.substr(8, length);
  ASSERT_EQ(with_header(header), good);
  EXPECT_NE(fault_in(with_header(header + ' ')), "");                   // padded to nine
  EXPECT_NE(fault_in(with_header(std::string(8, ' ') + header)), "");   // in front
  EXPECT_NE(fault_in(with_header(header + std::string(8, '\0'))), "");  // with zeros
  EXPECT_NE(fault_in(good.substr(0, good.size() - 1)), "");             // cut
  EXPECT_NE(fault_in(good + 'x'), "");                                  // trailing byte
  std::string reversed = good;
  std::reverse(reversed.begin(), reversed.begin() + 8);  // big-endian length
  EXPECT_NE(fault_in(reversed), "");
  std::string from_file_start = header;  // offsets from the start of the file, not of the data
  const std::size_t at = from_file_start.find("[0,24]");
  ASSERT_NE(at, std::string::npos);
  EXPECT_NE(fault_in(with_header(from_file_start.replace(at, 6, "[8,32]"))), "");
}

}  // namespace
