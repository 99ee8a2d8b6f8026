#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora tokenize [FILE] --model DIR [--markup] [--decode]
void add_tokenize_command(CLI::App& app);

}  // namespace engine::cli
