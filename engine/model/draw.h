#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/model/recipes.h"

namespace engine::model {

// Bytes [offset, offset + out.size()) of a tensor, a function of (seed, its name) and of the recipe
// alone: integer arithmetic and correctly rounded float operations, no library function, so the same
// on every machine, and the same whatever parts it is drawn in.
//
// Shape     offset: a multiple of kDrawStep
// Threads   as parallel.h says; no byte depends on them
inline constexpr std::uint64_t kDrawStep = 16;  // bytes; of every dtype whole fours of random words
void draw(const Recipe& recipe, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out);

}  // namespace engine::model
