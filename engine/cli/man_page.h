#pragma once

#include <span>
#include <string>

#include "engine/cli/command_tree.h"

namespace engine::cli {

// lazylora(1): every command with its options.
std::string man_page(std::span<const CommandFact> tree, const std::string& exit_codes);

}  // namespace engine::cli
