#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace engine::data {

// The token ids of one sequence, as text: integers separated by commas, spaces, tabs or newlines.
// Errors    Error naming `where`, how many ids stand before, the byte, the text, and the vocabulary
//           if the id is not in [0, vocabulary)
std::vector<std::int32_t> parse_ids(std::string_view text, std::int64_t vocabulary,
                                    const std::string& where);

// The same from a file.
std::vector<std::int32_t> read_ids(const std::filesystem::path& path, std::int64_t vocabulary);

}  // namespace engine::data
