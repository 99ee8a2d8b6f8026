#pragma once

#include <span>
#include <string>

#include "engine/cli/command_tree.h"

namespace engine::cli {

// Scripts that complete commands, options and the words an option takes; else files.
std::string bash_completions(std::span<const CommandFact> tree);
std::string zsh_completions(std::span<const CommandFact> tree);
std::string fish_completions(std::span<const CommandFact> tree);

}  // namespace engine::cli
