#include "checks/reference.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "engine/base/dtype.h"

namespace checks {
namespace {

using nlohmann::json;

std::optional<std::filesystem::path> existing(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? std::optional(path) : std::nullopt;
}

template <class T>
void append(std::vector<double>& out, const std::vector<char>& bytes) {
  const std::size_t count = bytes.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out.push_back(static_cast<double>(value));
  }
}

std::vector<double> widened(const std::string& dtype, const std::vector<char>& bytes) {
  std::vector<double> out;
  if (dtype == "F64") {
    append<double>(out, bytes);
  } else if (dtype == "F32") {
    append<float>(out, bytes);
  } else if (dtype == "I32") {
    append<std::int32_t>(out, bytes);
  } else if (dtype == "U8") {
    append<std::uint8_t>(out, bytes);
  } else if (dtype == "BF16") {
    append<std::uint16_t>(out, bytes);
    for (double& v : out) v = engine::base::bf16_to_float(static_cast<std::uint16_t>(v));
  } else {
    throw std::runtime_error("dtype " + dtype);
  }
  return out;
}

}  // namespace

std::filesystem::path source_root() { return LAZYLORA_SOURCE_ROOT; }

std::optional<std::filesystem::path> reference_data(const std::string& below) {
  if (const char* root = std::getenv("LAZYLORA_REFERENCE")) {
    return existing(std::filesystem::path(root) / below);
  }
  return existing(source_root() / ".." / "shared" / "reference" / below);
}

std::optional<std::filesystem::path> reference_fixtures() {
  if (const char* root = std::getenv("LAZYLORA_REF_FIXTURES")) return existing(root);
  return reference_data("upstream");
}

NamedTensors read_safetensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  if (!file || length > (std::uint64_t{1} << 30))
    throw std::runtime_error(path.string() + ": header");
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const json header = json::parse(text);
  NamedTensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::int64_t begin = entry.at("data_offsets").at(0);
    const std::int64_t end = entry.at("data_offsets").at(1);
    std::vector<char> bytes(static_cast<std::size_t>(end - begin));
    file.seekg(static_cast<std::streamoff>(8 + length) + begin);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file) throw std::runtime_error(fmt::format("{}: {} is cut short", path.string(), name));
    tensors[name] = {entry.at("shape").get<std::vector<std::int64_t>>(),
                     widened(entry.at("dtype"), bytes)};
  }
  return tensors;
}

NamedTensors read_fixture_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + ": cannot be opened");
  NamedTensors tensors;
  const json fixture = json::parse(file);
  for (const auto& [name, entry] : fixture.items()) {
    if (entry.is_number()) {
      tensors[name] = {{}, {entry.get<double>()}};
    } else if (entry.is_object() && entry.contains("data") && entry.contains("shape")) {
      tensors[name] = {entry.at("shape").get<std::vector<std::int64_t>>(),
                       entry.at("data").get<std::vector<double>>()};
    }
  }
  return tensors;
}

const NamedTensor& at(const NamedTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw std::runtime_error("no tensor named " + name);
  return found->second;
}

}  // namespace checks
