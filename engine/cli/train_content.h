#pragma once

#include <functional>
#include <string>

#include "engine/cli/common.h"
#include "engine/cli/progress.h"
#include "engine/store/scale_scan.h"

namespace engine::cli {

// Every scale byte of the model, before the first day of work: an overflowing group is refused now,
// and the groups under 255 stand in the manifest and in the first line of the log.
store::ScaleScan scan_scales(const store::ShardReader& shards, bool strict, ProgressLine& progress);

// What `lazylora shards` says of the content, before a run depends on it: every tensor of the
// checkpoint, and of the packed copy if there is one (`pack` not empty), against `digests`; or, where
// `cache` says that these files were, not again. Returns the SHA-256 of `digests`; nothing is verified
// if that is empty, nor returned. What was found is said to `note`.
std::string verify_content(const std::string& digests, const std::string& cache,
                           const std::string& pack, const OpenModel& open,
                           const std::function<void(const std::string&)>& note);

}  // namespace engine::cli
