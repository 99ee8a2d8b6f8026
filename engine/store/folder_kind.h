#pragma once

#include <filesystem>

namespace engine::store {

enum class FolderKind { kRun, kDataSet };

// A folder that is plainly of another kind than the wanted one, by a file that no other kind has. A folder of none is
// passed: its reader says what it lacks.
// Errors    Error naming the folder, both kinds, and what takes it as it is
void require_kind(const std::filesystem::path& folder, FolderKind wanted);

}  // namespace engine::store
