#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora forward --model DIR --ids FILE [--adapter DIR] [--dump FILE.h5|DIR] [--json]
void add_forward_command(CLI::App& app);

}  // namespace engine::cli
