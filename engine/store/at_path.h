#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace engine::store {

// What stands at a path and what is done with it, where std::filesystem would throw in its own words. A request
// that the system refuses (a name too long, a loop of links, a folder that may not be read) is an Error with the
// path and the system's reason, here and below. The library asks in no other way, but for those who ask by an
// error code and go on.

// Links followed.
std::filesystem::file_type type_at(const std::filesystem::path& path);
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);

// Of a file or folder that is there.
bool is_empty(const std::filesystem::path& path);
std::uint64_t file_bytes(const std::filesystem::path& file);
// For a user without privileges, on the disk of what is there.
std::uint64_t free_bytes(const std::filesystem::path& path);
// Paths of what stands in the folder.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder);

std::filesystem::path absolute_path(const std::filesystem::path& path);
// The one path without links to what is there.
std::filesystem::path canonical_path(const std::filesystem::path& path);
std::filesystem::path working_folder();
void enter_folder(const std::filesystem::path& folder);
// With those above it; one that is there is left as it is.
void create_folders(const std::filesystem::path& folder);
void remove_all(const std::filesystem::path& path);
void rename(const std::filesystem::path& from, const std::filesystem::path& to);
void resize_file(const std::filesystem::path& file, std::uint64_t bytes);
void set_permissions(const std::filesystem::path& path, std::filesystem::perms permissions);

}  // namespace engine::store
