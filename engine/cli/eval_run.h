#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/measure/eval_results.h"

namespace engine::cli {

// What an evaluation takes from a run folder.
struct RunFolder {
  measure::EvalRun facts;
  std::filesystem::path adapter;       // the finished run's
  std::vector<std::string> ids_files;  // as at the first start
  std::string model_folder;            // as at the first start
  std::string preregistration_sha256;  // empty: none
  std::int64_t first_start_unix_ns = 0;
};

// Errors    Error naming file and place: a run that is not finished, a log whose chain is broken or
//           whose last checkpoint has another adapter than the run
RunFolder read_run(const std::filesystem::path& run);

}  // namespace engine::cli
