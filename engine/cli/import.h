#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora import SRC --model DIR --out ADAPTER
void add_import_command(CLI::App& app);

}  // namespace engine::cli
