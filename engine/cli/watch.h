#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora watch RUN [limits]
void add_watch_command(CLI::App& app);

}  // namespace engine::cli
