#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/model/recipes.h"

namespace engine::model {

// The bytes of a tensor, a function of (seed, its name) and of the recipe alone: integer arithmetic
// and correctly rounded float operations, no library function, so the same on every machine.
//
// Shape     out: exactly recipe.spec.bytes()
// Threads   as parallel.h says; no byte depends on them
void draw(const Recipe& recipe, std::uint64_t seed, std::span<std::byte> out);

}  // namespace engine::model
