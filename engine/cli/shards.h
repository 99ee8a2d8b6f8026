#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora shards MODEL [--digests FILE [--cache FILE]] [--write-digests FILE]
//                       [--scan] [--strict] [--json]
// Errors    Error if the checkpoint does not hold, after everything that was found is printed
void add_shards_command(CLI::App& app);

}  // namespace engine::cli
