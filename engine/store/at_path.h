#pragma once

#include <filesystem>
#include <system_error>

#include "engine/base/error.h"

namespace engine::store {

// What stands at a path, links followed. A question that the system does not answer (a name too long, a
// loop of links, a folder that may not be read) is an Error with the path and the system's reason, where
// std::filesystem would throw in its own words.

// Errors    Error naming the path and the reason, here and below
inline std::filesystem::file_type type_at(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::file_type type = std::filesystem::status(path, failed).type();
  // Where nothing stands a code is set as well: the type tells the two apart.
  if (type == std::filesystem::file_type::none) {
    throw base::Error("{}: {}", path.string(), failed.message());
  }
  return type;
}

inline bool is_there(const std::filesystem::path& path) {
  return type_at(path) != std::filesystem::file_type::not_found;
}

inline bool is_folder(const std::filesystem::path& path) {
  return type_at(path) == std::filesystem::file_type::directory;
}

// Of a file or folder that is there.
inline bool is_empty(const std::filesystem::path& path) {
  std::error_code failed;
  const bool empty = std::filesystem::is_empty(path, failed);
  if (failed) throw base::Error("{}: {}", path.string(), failed.message());
  return empty;
}

}  // namespace engine::store
