#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

void add_eval_command(CLI::App& app);

}  // namespace engine::cli
