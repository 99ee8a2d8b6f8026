#include "engine/cli/reference.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "engine/cli/command_tree.h"
#include "engine/cli/common.h"
#include "engine/cli/completions.h"
#include "engine/cli/man_page.h"

namespace engine::cli {
namespace {

std::string made(const std::string& form, const std::vector<CommandFact>& tree) {
  if (form == "bash") return bash_completions(tree);
  if (form == "zsh") return zsh_completions(tree);
  if (form == "fish") return fish_completions(tree);
  return man_page(tree, kExitCodes);
}

}  // namespace

void add_reference_command(CLI::App& app) {
  auto form = std::make_shared<std::string>();
  CLI::App& command =
      *app.add_subcommand("reference", "completions of a shell, or the manual page");
  command.group("");
  command.add_option("FORM", *form, "bash, zsh, fish or man")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  command.callback([form, &app] { say("{}", made(*form, command_tree(app))); });
}

}  // namespace engine::cli
