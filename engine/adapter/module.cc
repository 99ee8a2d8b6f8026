#include "engine/adapter/module.h"

#include <fmt/format.h>

#include <charconv>

namespace engine::adapter {

std::string Module::native(char matrix) const {
  return fmt::format("layers.{}.{}.lora_{}", layer, target, matrix);
}

std::string Module::path(std::int64_t expert) const {
  return fmt::format("{}.{}.{}", parent, expert, leaf);
}

ModuleIndex::ModuleIndex(std::span<const Module> modules) : modules_(modules) {
  for (std::size_t i = 0; i < modules.size(); ++i) by_path_.emplace(modules[i].path(), i);
}

std::optional<ModuleIndex::Place> ModuleIndex::find(std::string_view path) const {
  if (const auto found = by_path_.find(std::string(path)); found != by_path_.end()) {
    return Place{found->second, -1};
  }
  const std::size_t leaf = path.rfind('.');
  if (leaf == std::string_view::npos || leaf == 0) return std::nullopt;
  const std::size_t number = path.rfind('.', leaf - 1);
  if (number == std::string_view::npos) return std::nullopt;
  const std::string_view digits = path.substr(number + 1, leaf - number - 1);
  const auto found =
      by_path_.find(std::string(path.substr(0, number)) + std::string(path.substr(leaf)));
  if (found == by_path_.end() || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  std::int64_t expert = -1;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), expert);
  if (failed != std::errc() || end != digits.data() + digits.size() || expert < 0 ||
      expert >= modules_[found->second].experts) {
    return std::nullopt;
  }
  return Place{found->second, expert};
}

}  // namespace engine::adapter
