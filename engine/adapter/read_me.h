#pragma once

#include <span>
#include <string>

#include "engine/adapter/export.h"

namespace engine::adapter {

// README.md of an export: what it is, what no config can say (how the experts' adapters are meant),
// and how to see that a loader has applied it.
std::string read_me(const ExportSettings& settings, const NativeAdapter& native,
                    std::span<const Module> modules);

}  // namespace engine::adapter
