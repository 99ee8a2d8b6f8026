#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora disk DIR [--bytes N] [--json]
// Errors    Error if DIR is no folder or cannot hold what is written and read; nothing stays behind
void add_disk_command(CLI::App& app);

}  // namespace engine::cli
