#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// `lazylora generate`: continues a text or a sequence of ids.
void add_generate_command(CLI::App& app);

}  // namespace engine::cli
