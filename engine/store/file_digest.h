#pragma once

#include <string>

#include "engine/store/file.h"

namespace engine::store {

// SHA-256 of a file as it is open, a MiB at a time: of the bytes that are read from it otherwise, also
// if its name leads to another file meanwhile.
// Errors    Error from reading
std::string sha256_hex_of(const File& file);

}  // namespace engine::store
