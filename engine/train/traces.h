#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace engine::train {

// What a run folder says of how far its run has got, its checkpoints aside. A kill leaves any of it
// behind the truth, never ahead of it: `saved` is a proof that a checkpoint was whole, not a guess.
struct Traces {
  std::int64_t step = 0;  // the last one whose end is in log.jsonl; 0: none
  std::string saved;      // what shows that there was a whole checkpoint; empty: nothing does
};

// Lines that are no JSON, a last one that a kill cut among them, say nothing.
// Errors    Error naming manifest.json and its field; a line of the log that is longer than any
Traces read_traces(const std::filesystem::path& run);

}  // namespace engine::train
