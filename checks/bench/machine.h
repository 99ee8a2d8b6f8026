#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace checks::bench {

// What the processor can do at most, measured in the same process and the same moment as what is
// compared with it.

// Independent chains of fma in registers, the instruction set's widest ones.
void run_fma_chains(std::string_view instruction_set);
// How many floating-point operations a run of them is, two an fma and lane.
double fma_chain_flops(std::string_view instruction_set);

// Reads every byte once, in order, with a prefetch a little ahead.
void read_all(std::span<const std::byte> bytes);

}  // namespace checks::bench
