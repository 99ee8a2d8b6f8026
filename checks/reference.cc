#include "checks/reference.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "checks/json_file.h"
#include "engine/base/dtype.h"

namespace checks {
namespace {

using nlohmann::json;

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Lookup below_root(const std::filesystem::path& root, const std::string& below,
                  const std::string& without) {
  const std::filesystem::path path = root / below;
  if (is_there(path)) return {path, "", false};
  if (!is_there(root)) return {std::nullopt, without, false};
  return {std::nullopt, fmt::format("the reference data in {} lack {}", root.string(), below),
          true};
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

Lookup reference_data(const std::string& below) {
  if (const char* root = std::getenv("LAZYLORA_REFERENCE")) {
    return below_root(root, below,
                      fmt::format("no reference data: $LAZYLORA_REFERENCE names {}, which is not "
                                  "there",
                                  root));
  }
  return below_root(source_root() / ".." / "shared" / "reference", below,
                    "no reference data: set $LAZYLORA_REFERENCE, or put them into "
                    "../shared/reference beside the checkout");
}

Lookup reference_fixtures() {
  if (const char* root = std::getenv("LAZYLORA_REF_FIXTURES")) {
    return below_root(root, ".",
                      fmt::format("no fixtures of the C reference: $LAZYLORA_REF_FIXTURES names "
                                  "{}, which is not there",
                                  root));
  }
  return reference_data("upstream");
}

NamedTensors read_safetensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot be opened");
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  std::error_code ignored;
  const std::uintmax_t size = std::filesystem::file_size(path, ignored);
  if (!file || length > size - sizeof(length)) {
    throw std::runtime_error(fmt::format("{}: no safetensors file: a header of {} bytes in {}",
                                         path.string(), length, size));
  }
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  NamedTensors tensors;
  tensors.source = path.string();
  std::string name;
  try {
    const json header = json::parse(text);
    for (const auto& [key, entry] : header.items()) {
      name = key;
      if (name == "__metadata__") continue;
      const std::int64_t begin = entry.at("data_offsets").at(0);
      const std::int64_t end = entry.at("data_offsets").at(1);
      if (begin < 0 || end < begin || static_cast<std::uintmax_t>(end) > size) {
        throw std::runtime_error(fmt::format("data_offsets [{}, {}]", begin, end));
      }
      std::vector<char> bytes(static_cast<std::size_t>(end - begin));
      file.seekg(static_cast<std::streamoff>(8 + length) + begin);
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      if (!file) throw std::runtime_error("is cut short");
      tensors[name] = {entry.at("shape").get<std::vector<std::int64_t>>(),
                       widened(entry.at("dtype"), bytes)};
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format(
        "{}: {}: {}", path.string(), name.empty() ? "the header" : "tensor " + name, error.what()));
  }
  return tensors;
}

NamedTensors read_fixture_json(const std::filesystem::path& path) {
  NamedTensors tensors;
  tensors.source = path.string();
  const JsonFile file(path);
  for (const auto& [name, entry] : file.root().items()) {
    if (entry.is_number()) {
      tensors[name] = {{}, {entry.get<double>()}};
    } else if (entry.is_object() && entry.contains("data") && entry.contains("shape")) {
      const std::string place = "/" + name;
      tensors[name] = {file.get<std::vector<std::int64_t>>(place + "/shape"),
                       file.get<std::vector<double>>(place + "/data")};
    }
  }
  return tensors;
}

const NamedTensor& at(const NamedTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    throw std::runtime_error(fmt::format("{}: has no tensor {}", tensors.source, name));
  }
  return found->second;
}

}  // namespace checks
