#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora export ADAPTER --model DIR --format peft|peft-per-expert|peft-fused|gguf --out OUT
// lazylora export ADAPTER --model DIR --verify OUT
void add_export_command(CLI::App& app);

}  // namespace engine::cli
