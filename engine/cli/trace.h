#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// `lazylora trace` and `lazylora trace export`.
void add_trace_command(CLI::App& app);

}  // namespace engine::cli
