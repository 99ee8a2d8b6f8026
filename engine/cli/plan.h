#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora plan MODEL ...
void add_plan_command(CLI::App& app);

}  // namespace engine::cli
