#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/budget.h"

namespace engine::data {

// The token ids of one sequence, as text: integers separated by spaces, tabs or newlines, and by one
// comma at most; two have lost the id between them.
// Errors    Error naming `where`, how many ids stand before, the byte, the text, and the vocabulary
//           if the id is not in [0, vocabulary)
std::vector<std::int32_t> parse_ids(std::string_view text, std::int64_t vocabulary,
                                    const std::string& where);

// What an id takes in all: itself, and as token and target of a sequence.
inline constexpr std::int64_t kBytesAnId = 12;

// The same from a file, read block by block. With a budget, reading ends as soon as the ids so far
// would take more than all of it, and what they take is reserved there.
// Errors    also Error if the file cannot be read, is no regular file, or holds too many ids
std::vector<std::int32_t> read_ids(const std::filesystem::path& path, std::int64_t vocabulary,
                                   base::RamBudget* budget = nullptr);

}  // namespace engine::data
