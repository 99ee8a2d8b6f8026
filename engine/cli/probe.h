#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/adapter/exported.h"
#include "engine/cli/common.h"

namespace engine::cli {

struct ProbeSettings {
  std::int64_t tokens = 8;
  std::uint64_t seed = 1;
};

// FOLDER/probe.json: ids drawn from a seed, and the logits behind the last of them, without and with
// the adapter as the exported file holds it. Two forward passes; a function of checkpoint, file and
// settings alone.
// Errors    Error if the budget cannot hold the passes, or the disk's reasons
void write_probe(const std::filesystem::path& folder, const adapter::Exported& exported,
                 const adapter::Base& base, const OpenModel& open, const ProbeSettings& settings,
                 const std::filesystem::path& scratch);

}  // namespace engine::cli
