#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora make-model OUT --shape tiny|small|medium --seed N
void add_make_model_command(CLI::App& app);

}  // namespace engine::cli
