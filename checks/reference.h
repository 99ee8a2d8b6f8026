#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace checks {

// A path if it is there, else why not, in words for a reader.
struct Lookup : std::optional<std::filesystem::path> {
  std::string why;
  // The reference data are there, but not this part of them: a failure, no skip.
  bool incomplete = false;
};

// Reference data made by independent programs is looked for at $LAZYLORA_REFERENCE, else in
// ../shared/reference beside the checkout; never copied into the project. `below` is for instance
// "upstream/ops".
Lookup reference_data(const std::string& below);

// The op fixtures of the C reference: reference_data("upstream"), or $LAZYLORA_REF_FIXTURES, a
// clone of its tests/fixtures.
Lookup reference_fixtures();

// The root of this checkout (where CMakeLists.txt stands), for fixtures/.
std::filesystem::path source_root();

// Skips a test, with its reason printed and counted, when there is no reference data at all; fails
// it when only this part is missing.
#define CHECKS_NEED(variable, lookup)                              \
  const checks::Lookup variable##_found = (lookup);                \
  if (variable##_found.incomplete) FAIL() << variable##_found.why; \
  if (!variable##_found) GTEST_SKIP() << variable##_found.why;     \
  const std::filesystem::path variable = *variable##_found

// A tensor file of the reference data, every dtype widened to double. `ints` holds I32 tensors as
// well.
struct NamedTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> data;
  std::vector<float> f32() const { return {data.begin(), data.end()}; }
  std::vector<std::int32_t> i32() const { return {data.begin(), data.end()}; }
};
struct NamedTensors : std::map<std::string, NamedTensor> {
  using map::map;
  std::string source;  // the file they were read from
};

// Errors    std::runtime_error naming the file and what is wrong with it
NamedTensors read_safetensors(const std::filesystem::path& path);

// {"name": {"shape": [...], "data": [...]}, "scalar": 1.0, ...} of the C reference's op fixtures:
// arrays and scalars (shape []), other values are passed over. Errors as above
NamedTensors read_fixture_json(const std::filesystem::path& path);

// The tensor of that name. Errors: std::runtime_error naming it and the file
const NamedTensor& at(const NamedTensors& tensors, const std::string& name);

}  // namespace checks
