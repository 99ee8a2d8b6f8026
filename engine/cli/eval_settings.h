#pragma once

#include <string>

#include "engine/cli/common.h"
#include "engine/measure/preregistration.h"

namespace engine::cli {

// --chunk, --stride, --bos and --seed, of `eval` and of `preregister`.
struct EvalSettingOptions {
  measure::EvalSettings given;
  CLI::Option *chunk = nullptr, *stride = nullptr, *bos = nullptr, *seed = nullptr;
};

void add_eval_settings(CLI::App& command, EvalSettingOptions& options);

// What the command line says: a stride that was not given is the chunk.
// Errors    bad usage: a stride beyond the chunk
measure::EvalSettings settings_of(const EvalSettingOptions& options);

// Those of a registration, which no flag may change afterwards.
// Errors    Error naming `registration`, the setting and both values
void require_registered(const EvalSettingOptions& options, const measure::EvalSettings& registered,
                        const std::string& registration);

}  // namespace engine::cli
