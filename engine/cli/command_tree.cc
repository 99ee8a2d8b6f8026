#include "engine/cli/command_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <sstream>
#include <string_view>
#include <utility>

namespace engine::cli {
namespace {

// "TEXT:{chat,plain}": the value's name, and the words it may be.
void read_type(const std::string& type, OptionFact& fact) {
  fact.value = type.substr(0, type.find(':'));
  const std::size_t open = type.find('{');
  if (open == std::string::npos) return;
  std::istringstream words(type.substr(open + 1, type.find('}', open) - open - 1));
  for (std::string word; std::getline(words, word, ',');) fact.choices.push_back(word);
}

OptionFact fact_of(const CLI::Option& option) {
  OptionFact fact;
  for (const std::string& name : option.get_snames()) fact.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) fact.names.push_back("--" + name);
  fact.positional = option.get_name(true);
  fact.description = option.get_description();
  fact.standard = option.get_default_str();
  fact.required = option.get_required();
  if (option.get_items_expected_max() > 0) read_type(option.get_type_name(), fact);
  return fact;
}

// An option group is a subcommand without a name.
void add(const CLI::App& app, const std::string& path, std::vector<CommandFact>& tree) {
  const std::size_t at = tree.size();
  tree.push_back({path, app.get_description(), {}, {}});
  const auto take_options = [&](const CLI::App& from) {
    for (const CLI::Option* option : from.get_options()) {
      if (!option->get_group().empty()) tree[at].options.push_back(fact_of(*option));
    }
  };
  take_options(app);
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    if (sub->get_name().empty()) take_options(*sub);
  }
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {
    if (sub->get_name().empty() || sub->get_group().empty()) continue;
    tree[at].subcommands.push_back(sub->get_name());
    add(*sub, path + "/" + sub->get_name(), tree);
  }
}

// Letters to put in, leave out or change to make one of the other; two that changed places are one.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(last, row);
  }
  return last[b.size()];
}

// Those of the least distance, if that is no more than half of the word.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& names) {
  std::size_t least = word.size() / 2;
  for (const std::string& name : names) least = std::min(least, distance(word, name));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (distance(word, name) == least) found.push_back(name);
  }
  return found;
}

}  // namespace

std::string unknown_command(const CLI::App& app, std::span<const char* const> words) {
  const CLI::App* at = &app;
  for (const std::string_view word : words) {
    if (at->get_require_subcommand_min() == 0 || word.starts_with('-')) return "";
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* sub : at->get_subcommands(nullptr)) {
      if (sub->get_name().empty()) continue;
      if (!sub->get_group().empty()) names.push_back(sub->get_name());  // not of the hidden ones
      if (sub->get_name() == word) next = sub;
    }
    if (next == nullptr) {
      const std::vector<std::string> near = nearest(word, names);
      return fmt::format("there is no command '{}'{}; there are {}", word,
                         near.empty() ? "" : fmt::format(" (nearest: {})", fmt::join(near, ", ")),
                         fmt::join(names, ", "));
    }
    at = next;
  }
  return "";
}

std::vector<CommandFact> command_tree(const CLI::App& app) {
  std::vector<CommandFact> tree;
  add(app, "", tree);
  return tree;
}

}  // namespace engine::cli
