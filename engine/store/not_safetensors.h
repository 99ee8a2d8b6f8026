#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace engine::store {

// What a file that starts with `start` (1 KiB is enough) is, if it is text: a Git-LFS pointer with
// its oid and size, an HTML page, another text. Nothing if it may be safetensors: a real length
// field holds zero bytes, a text does not.
std::optional<std::string> kind_of_text(std::string_view start);

}  // namespace engine::store
