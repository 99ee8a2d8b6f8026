#include "engine/cli/command_tree.h"

#include <sstream>

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

}  // namespace

std::vector<CommandFact> command_tree(const CLI::App& app) {
  std::vector<CommandFact> tree;
  add(app, "", tree);
  return tree;
}

}  // namespace engine::cli
