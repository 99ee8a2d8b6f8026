#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora status RUN [--json]
void add_status_command(CLI::App& app);

}  // namespace engine::cli
