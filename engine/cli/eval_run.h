#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/cli/eval_tasks.h"
#include "engine/measure/eval_results.h"

namespace engine::cli {

// What an evaluation takes from a run folder.
struct RunFolder {
  measure::EvalRun facts;
  std::filesystem::path adapter;  // the finished run's
  // As at the first start: files of ids, or the folder of a set.
  std::vector<std::string> ids_files;
  std::string set_folder;
  std::string model_folder;            // as at the first start
  std::string preregistration_sha256;  // empty: none
  std::int64_t first_start_unix_ns = 0;
  bool start_is_timed = false;  // timings.jsonl has the first line's clock, which is not before it
};

// Errors    Error naming file and place: a run that is not finished or contradicts itself (require_finished), a
//           first start after the log's first line, timings of a line that the log does not have; of a run
//           with a registration, no checkpoint's state behind its last step
RunFolder read_run(const std::filesystem::path& run);

// The run's training data, before all other files of its kind.
void add_training_data(const RunFolder& run, TaskFiles& files);
// That the files still hold what the run was trained on.
// Errors    Error naming them and both digests
void require_trained_on(const RunFolder& run, const std::vector<measure::EvalTask>& tasks);

}  // namespace engine::cli
