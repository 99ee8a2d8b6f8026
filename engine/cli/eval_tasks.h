#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/data/tokenizer.h"
#include "engine/measure/eval_units.h"

namespace engine::cli {

struct TaskFiles {
  std::vector<std::string> texts, ids, sets;
};

// The tasks "text:NAME" for every text (a folder of `lazylora data corpus` is all of its texts), "ids"
// for all files of ids together and "set:NAME" for every set, NAME the file's own name, in that order.
// Cost      memory in `held`
// Errors    Error naming the file; two tasks of one name; a set made with another tokenizer
std::vector<measure::EvalTask> open_tasks(const TaskFiles& files, const data::Tokenizer& tokenizer,
                                          const measure::ChunkSettings& settings,
                                          base::RamBudget& budget, base::Charge& held);

}  // namespace engine::cli
