#include "engine/store/at_path.h"

#include <system_error>

#include "engine/base/error.h"

namespace engine::store {
namespace {

namespace fs = std::filesystem;

void require_done(const fs::path& path, const std::error_code& failed) {
  if (failed) throw base::Error("{}: {}", path.string(), failed.message());
}

}  // namespace

fs::file_type type_at(const fs::path& path) {
  std::error_code failed;
  const fs::file_type type = fs::status(path, failed).type();
  // Where nothing stands a code is set as well: the type tells the two apart.
  if (type == fs::file_type::none) require_done(path, failed);
  return type;
}

bool is_there(const fs::path& path) { return type_at(path) != fs::file_type::not_found; }
bool is_folder(const fs::path& path) { return type_at(path) == fs::file_type::directory; }
bool is_file(const fs::path& path) { return type_at(path) == fs::file_type::regular; }

bool is_empty(const fs::path& path) {
  std::error_code failed;
  const bool empty = fs::is_empty(path, failed);
  require_done(path, failed);
  return empty;
}

std::uint64_t file_bytes(const fs::path& file) {
  std::error_code failed;
  const std::uintmax_t bytes = fs::file_size(file, failed);
  require_done(file, failed);
  return bytes;
}

std::uint64_t free_bytes(const fs::path& path) {
  std::error_code failed;
  const fs::space_info space = fs::space(path, failed);
  require_done(path, failed);
  return space.available;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    paths.push_back(at->path());
  }
  require_done(folder, failed);
  return paths;
}

fs::path absolute_path(const fs::path& path) {
  std::error_code failed;
  fs::path whole = fs::absolute(path, failed);
  require_done(path, failed);
  return whole;
}

fs::path canonical_path(const fs::path& path) {
  std::error_code failed;
  fs::path whole = fs::canonical(path, failed);
  require_done(path, failed);
  return whole;
}

fs::path working_folder() {
  std::error_code failed;
  fs::path folder = fs::current_path(failed);
  require_done("the working folder", failed);
  return folder;
}

void enter_folder(const fs::path& folder) {
  std::error_code failed;
  fs::current_path(folder, failed);
  require_done(folder, failed);
}

void create_folders(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  require_done(folder, failed);
}

void remove_all(const fs::path& path) {
  std::error_code failed;
  fs::remove_all(path, failed);
  require_done(path, failed);
}

void rename(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::rename(from, to, failed);
  if (failed) {
    throw base::Error("{}: cannot be renamed to {}: {}", from.string(), to.string(),
                      failed.message());
  }
}

void resize_file(const fs::path& file, std::uint64_t bytes) {
  std::error_code failed;
  fs::resize_file(file, bytes, failed);
  require_done(file, failed);
}

void set_permissions(const fs::path& path, fs::perms permissions) {
  std::error_code failed;
  fs::permissions(path, permissions, failed);
  require_done(path, failed);
}

}  // namespace engine::store
