#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// `lazylora reference bash|zsh|fish|man`: completions and manual on standard output. Not in --help:
// it is for who installs the program. After all other commands.
void add_reference_command(CLI::App& app);

}  // namespace engine::cli
