#include "engine/store/finding.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace engine::store {

std::string describe(const Finding& finding) {
  std::string text = finding.file + ": ";
  if (!finding.tensor.empty()) text += fmt::format("tensor {}: ", finding.tensor);
  if (finding.offset) text += fmt::format("at byte {}: ", *finding.offset);
  text += finding.message;
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      escaped += fmt::format("\\x{:02x}", byte);
    } else {
      escaped += c;
    }
  }
  return escaped;
}

Finding finding_of(const std::string& file, std::string_view message) {
  if (message.starts_with(file + ": ")) message.remove_prefix(file.size() + 2);
  return {Severity::kError, file, "", std::nullopt, std::string(message)};
}

std::size_t count(std::span<const Finding> findings, Severity severity) {
  return static_cast<std::size_t>(std::ranges::count(findings, severity, &Finding::severity));
}

void add(std::vector<Finding>& findings, Finding more) {
  if (findings.size() < kMostFindings) {
    findings.push_back(std::move(more));
  } else if (findings.size() == kMostFindings) {
    findings.push_back(
        {more.severity, more.file, "", std::nullopt,
         fmt::format("more than {} findings; those behind are not listed", kMostFindings)});
  } else if (more.severity == Severity::kError) {
    findings.back().severity = Severity::kError;
  }
}

void throw_first_error(std::span<const Finding> findings, std::string_view lists) {
  const auto first = std::ranges::find(findings, Severity::kError, &Finding::severity);
  if (first == findings.end()) return;
  const std::size_t others = count(findings, Severity::kError) - 1;
  if (others == 0) throw base::Error("{}", describe(*first));
  throw base::Error("{} (and {} more{})", describe(*first), others, lists);
}

}  // namespace engine::store
