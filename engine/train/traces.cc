#include "engine/train/traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/data/line_reader.h"
#include "engine/store/at_path.h"
#include "engine/train/breadcrumb.h"
#include "engine/train/log.h"
#include "engine/train/manifest.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Logged {
  std::int64_t step = 0;     // of the last step_end
  std::int64_t written = 0;  // of the last checkpoint; 0: none
  std::int64_t passed = 0;   // of the last checkpoint with a line behind its own
};

Logged read_log(const fs::path& log) {
  Logged logged;
  if (!store::is_there(log)) return logged;
  data::LineReader lines(log, kMostLineBytes);
  while (const auto read = lines.next()) {
    const Json line = Json::parse(read->text, nullptr, false);
    if (!line.is_object() || !line.contains("phase") || !line.contains("step")) continue;
    if (!line["step"].is_number_integer()) continue;
    logged.passed = logged.written;
    if (line["phase"] == "step_end") logged.step = line["step"];
    if (line["phase"] == "checkpoint") logged.written = line["step"];
  }
  return logged;
}

}  // namespace

Traces read_traces(const fs::path& run) {
  const Logged logged = read_log(run / "log.jsonl");
  Traces traces{logged.step, ""};
  std::int64_t behind = 0;
  for (const PastStart& start : read_starts(run)) behind = std::max(behind, start.behind_step);
  // A checkpoint's line is written before the checkpoint gets its name: alone, at the log's end, it shows
  // nothing. What comes behind it was begun when the name was there.
  const std::optional<Whereabouts> where = read_breadcrumb(run);
  const bool gone_on = where && logged.written > 0 &&
                       (where->step > logged.written ||
                        (where->step == logged.written && where->phase == "evaluation"));
  if (store::is_there(run / "adapter.safetensors")) {
    traces.saved = "adapter.safetensors, which a finished run leaves, is";
  } else if (behind > 0) {
    traces.saved = fmt::format("a start went on behind step {}", behind);
  } else if (gone_on || logged.passed > 0) {
    traces.saved =
        fmt::format("one was written behind step {}", gone_on ? logged.written : logged.passed);
  } else if (where && where->ending == Ending::kAsked && where->step > 0) {
    traces.saved = fmt::format("one was written when it was asked to stop in step {}", where->step);
  }
  return traces;
}

}  // namespace engine::train
