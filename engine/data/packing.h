#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace engine::data {

// How documents share sequences; no document is divided.
//   kInOrder    a document goes into the sequence at hand, or begins the next one
//   kFirstFit   into the first sequence that has room; fuller, and documents change places
enum class Packing { kInOrder, kFirstFit };

// [sequence][document]: indices of `lengths`, in each sequence rising; the lengths of a sequence
// are `room` together at most, and no length is more.
//
// Cost      O(n log n): the first sequence with room is found in a tree of the most room there is
std::vector<std::vector<std::int64_t>> pack(std::span<const std::int64_t> lengths,
                                            std::int64_t room, Packing packing);

}  // namespace engine::data
