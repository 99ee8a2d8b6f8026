#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// `lazylora analyze`.
void add_analyze_command(CLI::App& app);

}  // namespace engine::cli
