#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora pack MODEL OUT [--verify]
void add_pack_command(CLI::App& app);

}  // namespace engine::cli
