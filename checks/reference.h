#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace checks {

// Reference data made by independent programs is looked for at $LAZYLORA_REFERENCE, else in
// ../shared/reference beside the checkout; never copied into the project.
// Returns nothing if `below` (for instance "upstream/ops") is not there.
std::optional<std::filesystem::path> reference_data(const std::string& below);

// The op fixtures of the C reference: reference_data("upstream"), or $LAZYLORA_REF_FIXTURES, a
// clone of its tests/fixtures.
std::optional<std::filesystem::path> reference_fixtures();

// The root of this checkout (where CMakeLists.txt stands), for fixtures/.
std::filesystem::path source_root();

// Skips a test, with its reason printed and counted, when the data is not there.
#define CHECKS_NEED(variable, lookup)                      \
  const auto variable##_found = (lookup);                  \
  if (!variable##_found)                                   \
    GTEST_SKIP() << "reference data not found (" #lookup   \
                    "): set LAZYLORA_"                     \
                    "REFERENCE or clone beside ../shared"; \
  const std::filesystem::path variable = *variable##_found

// A tensor file of the reference data, every dtype widened to double. `ints` holds I32 tensors as
// well.
struct NamedTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> data;
  std::vector<float> f32() const { return {data.begin(), data.end()}; }
  std::vector<std::int32_t> i32() const { return {data.begin(), data.end()}; }
};
using NamedTensors = std::map<std::string, NamedTensor>;

// Errors    std::runtime_error
NamedTensors read_safetensors(const std::filesystem::path& path);

// {"name": {"shape": [...], "data": [...]}, "scalar": 1.0, ...} of the C reference's op fixtures:
// arrays and scalars (shape []), other values are passed over.
NamedTensors read_fixture_json(const std::filesystem::path& path);

// The tensor of that name. Errors: std::runtime_error naming it
const NamedTensor& at(const NamedTensors& tensors, const std::string& name);

}  // namespace checks
