#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace checks::bench {

// What the processor can do at most, measured in the same process and the same moment as what is
// compared with it.

// Independent chains of fma in registers, the instruction set's widest ones; returns how many
// floating-point operations that was, two an fma and lane.
double run_fma_chains(std::string_view instruction_set);

// Reads every byte once, in order, with a prefetch a little ahead.
void read_all(std::span<const std::byte> bytes);

}  // namespace checks::bench
