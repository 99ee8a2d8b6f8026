#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora train --model DIR (--ids FILE... or --data SET) --out RUN --steps N [settings] [--resume]
void add_train_command(CLI::App& app);

}  // namespace engine::cli
