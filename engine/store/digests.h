#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/store/finding.h"
#include "engine/store/shard_reader.h"

namespace engine::store {

// A header says where a tensor lies, not what is in it: a flipped bit in an expert, or two tensors
// of one shape that have changed places, is a sound file. A digest manifest is what tells:
//   {"format": "lazylora digests 1", "config_sha256": "...",
//    "shards":  [{"file", "bytes", "header_sha256"}, ...],
//    "tensors": [{"name", "shard", "offset", "bytes", "sha256"}, ...]}        one row a line

// Told how many bytes were read since the last call.
using DigestProgress = std::function<void(std::uint64_t bytes)>;

// Reads every tensor and writes the manifest. `config_sha256` is that of config.json.
// Cost      one pass over the checkpoint
// Errors    Error from reading or writing
void write_digests(const std::filesystem::path& path, const ShardReader& reader,
                   const std::string& config_sha256, const DigestProgress& progress = {});

// Compares the checkpoint with a manifest: first what the headers say, then, only if that agrees,
// every tensor's bytes. Each difference is a finding with tensor, file and offset.
// Errors    Error if the manifest is no manifest, or a read fails
std::vector<Finding> verify_digests(const std::filesystem::path& path, const ShardReader& reader,
                                    const std::string& config_sha256,
                                    const DigestProgress& progress = {});

// A verification that held, as text: manifest, config, and of every shard its path, size,
// modification time and header digest. As long as this text is the same, reading it all again would
// find the same, unless somebody sets modification times back.
std::string verification_key(const std::filesystem::path& manifest, const ShardReader& reader,
                             const std::string& config_sha256);
// Whether `cache` holds exactly that text. No such file is no.
// Errors    Error if it is a file of another kind, which would be written over
bool verification_is_cached(const std::filesystem::path& cache, const std::string& key);

}  // namespace engine::store
