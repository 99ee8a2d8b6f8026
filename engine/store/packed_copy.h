#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/pack_index.h"
#include "engine/store/shard_reader.h"

namespace engine::store {

inline constexpr const char* kPackFile = "pack.safetensors";
inline constexpr const char* kPackIndex = "pack.json";
inline constexpr const char* kPackVerified = "verified";
// Names of the tensors that are none of the checkpoint's: zeros up to the next block.
inline constexpr std::string_view kPadding = "padding.";

// A second copy of some tensors of a checkpoint, for a faster disk, as write_pack made it. Opening
// compares everything but the bytes of the tensors; these were compared when `verified` was written,
// and require_verified() says whether both copies are still the files that were compared then.
class PackedCopy {
 public:
  // Errors    Error naming file, tensor and both values: a name, dtype, shape or place that index,
  //           copy and checkpoint do not agree on, a tensor too many or too few, padding of a block
  //           or more, another header, size or configuration; those of ShardReader and
  //           read_pack_index
  PackedCopy(const std::filesystem::path& folder, const ShardReader& checkpoint,
             const std::string& config_sha256, const ReadSettings& settings = {});

  const ShardReader& reader() const { return reader_; }
  const PackIndex& index() const { return index_; }

  // Where a tensor of the checkpoint lies in the copy, its shard being checkpoint.files().size():
  // the number behind the checkpoint's own. Nothing if it is not in the copy.
  const TensorEntry* find(std::string_view name) const;

  // Bytes [skip, skip + bytes) of a tensor of the checkpoint.
  struct Piece {
    const TensorEntry* tensor = nullptr;
    std::uint64_t skip = 0;
    std::uint64_t bytes = 0;
  };
  // What the bytes [offset, offset + bytes) of the copy were copied from, in their order.
  std::vector<Piece> sources(std::uint64_t offset, std::uint64_t bytes) const;

  // Of both copies: path, size, modification time and header of every file, and the index.
  const std::string& verification() const { return verification_; }
  // Errors    Error naming the file that is not as it was when the copies were compared, and both
  //           states; or that they never were
  void require_verified() const;

 private:
  std::filesystem::path folder_;
  PackIndex index_;
  ShardReader reader_;
  std::vector<TensorEntry> by_name_;        // in the copy, sorted by name
  std::vector<const TensorEntry*> source_;  // of reader_.entries(); null: padding
  std::string verification_;
};

}  // namespace engine::store
