#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace engine::store {

// kError: the checkpoint is not used. kWarning and kNote: it is, and somebody should know.
enum class Severity : std::uint8_t { kError, kWarning, kNote };

// One thing found in a checkpoint.
struct Finding {
  Severity severity = Severity::kError;
  std::string file;
  std::string tensor;                   // empty: the file as a whole
  std::optional<std::uint64_t> offset;  // from the start of the file
  std::string message;                  // with the two values that disagree
};

// "FILE: tensor NAME: at byte OFFSET: message", control characters escaped: names come from
// outside.
std::string describe(const Finding& finding);

// A finding from an Error's message, which names the file in front itself.
Finding finding_of(const std::string& file, std::string_view message);

std::size_t count(std::span<const Finding> findings, Severity severity);

// So many are held and listed: a file may have millions, and each takes more memory than its place there.
inline constexpr std::size_t kMostFindings = 10'000;
// `more` behind the others; of what is beyond kMostFindings one that says so, as grave as the gravest.
void add(std::vector<Finding>& findings, Finding more);

// Errors    Error with the first finding of severity kError, how many there are besides, and what lists them
void throw_first_error(std::span<const Finding> findings,
                       std::string_view lists = "; `lazylora shards` lists them");

}  // namespace engine::store
