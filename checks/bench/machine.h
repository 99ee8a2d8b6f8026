#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace checks::bench {

// What the processor can do at most, measured in the same process and the same moment as what is
// compared with it.

// Independent chains of fma in registers, the instruction set's widest ones: chain c = 0 ... 11 starts
// with 1 + c, 4000 times chain = 0.999 chain + 0.001. Returns one lane's sum of them, in order.
float run_fma_chains(std::string_view instruction_set);
// The same, with every 0.001 loaded from the first-level cache: as fast, on a core of one's own.
float run_loading_chains(std::string_view instruction_set);
// How many floating-point operations a run of them is, two an fma and lane.
double fma_chain_flops(std::string_view instruction_set);

// Reads every byte once, in order; with a prefetch a little ahead, or leaving that to the processor.
void read_all(std::span<const std::byte> bytes, bool with_prefetch);

}  // namespace checks::bench
