#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/store/finding.h"
#include "engine/store/packed_copy.h"
#include "engine/store/shard_reader.h"

namespace engine::store {

// Tensors of a checkpoint that are read as one.
using PackRun = std::vector<const TensorEntry*>;

// Told how many bytes were read since the last call.
using PackProgress = std::function<void(std::uint64_t bytes)>;

// Of a room for tensors piece by piece; a larger one saves calls.
inline constexpr std::size_t kPackRoomBytes = std::size_t{4} << 20;

// Bytes of the file that write_pack makes, without its header.
std::uint64_t packed_bytes(std::span<const PackRun> runs);

// Writes pack.safetensors and pack.json into `folder`. Each run begins at a multiple of kBlock, as the
// data does, so that to read it directly transfers no other run's bytes; its tensors lie side by side,
// the wider types first, so that each is aligned to its own type and a run is one read. In between
// stand tensors named "padding.N", of zeros: the format knows no gaps.
//
// Shape     room: kPackRoomBytes, beginning on a block border
// Cost      one pass over the tensors
// Errors    Error from reading or writing
void write_pack(const std::filesystem::path& folder, const ShardReader& checkpoint,
                const std::string& config_sha256, std::vector<PackRun> runs,
                std::span<std::byte> room, const PackProgress& progress = {});

enum class PackCheck : std::uint8_t {
  kCopy,  // the copy, against its index
  kBoth,  // the checkpoint as well
};

// Compares the bytes of every tensor with the SHA-256 that the index has of it; of the padding, with
// zero. Each difference is a finding with file, tensor and offset.
// Errors    Error if a read fails
std::vector<Finding> verify_pack(const PackedCopy& copy, const ShardReader& checkpoint,
                                 PackCheck what, std::span<std::byte> room,
                                 const PackProgress& progress = {});

// Compares the index's digests with those of a digest manifest (digests.h). A tensor of which they
// differ, or that the manifest has not, is a finding with both values.
// Errors    those of read_manifest
std::vector<Finding> compare_digests(const PackedCopy& copy, const std::filesystem::path& manifest);

// Notes in the folder that both copies, as they are now, were found equal.
void remember_verified(const std::filesystem::path& folder, const PackedCopy& copy);

}  // namespace engine::store
