#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/store/file.h"
#include "engine/store/finding.h"

namespace engine::store {

// The extents of a tensor, outermost first; compares equal to any vector of the same numbers.
class Shape : public std::span<const std::int64_t> {
 public:
  using span::span;
  friend bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a, b); }
};

// One tensor of a checkpoint: bytes [offset, offset + bytes) of a shard. Half a million of these
// are held for the released model, so name and shape are views into the reader's tables.
struct TensorEntry {
  std::string_view name;
  Shape shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
  std::int32_t shard = 0;  // index into ShardReader::files()
  base::Dtype dtype = base::Dtype::kU8;
  // Set for a dtype that is legal in a file but that no tensor of the model may have ("I64"): then
  // `dtype` says nothing, and find() refuses the tensor.
  const char* foreign_dtype = nullptr;
};

class PackedCopy;

// A checkpoint folder: every *.safetensors in it (in file-name order), headers read and checked,
// tensors found by name. model.safetensors.index.json, if there is one, must agree with what the
// headers say. Reads may come from several threads at once.
class ShardReader {
 public:
  // Errors    Error with the first finding of inspect_shards (and how many more there are)
  explicit ShardReader(const std::filesystem::path& folder, const ReadSettings& settings = {});
  // As much as can be read: what does not hold goes into `findings` (those of inspect_shards), and
  // its tensors are not there.
  // Errors    Error only if the folder itself cannot be listed
  ShardReader(const std::filesystem::path& folder, std::vector<Finding>& findings,
              const ReadSettings& settings = {});
  ~ShardReader();
  ShardReader(ShardReader&& other) noexcept;

  const std::filesystem::path& folder() const;
  std::span<const TensorEntry> entries() const;  // in (shard, offset) order
  std::span<const File> files() const;
  const File& file_of(const TensorEntry& entry) const;
  // SHA-256 of a shard's length field and header.
  const std::string& header_sha256(std::int32_t shard) const;

  // From now on find() answers with places in `copy` (see PackedCopy::find) for the tensors that it
  // has, and what lies there is read from it; once it cannot be read, and then for good, from where it
  // was copied from. Everything else speaks of the checkpoint as before. `lost` is told why, once, by
  // the thread that noticed.
  void use(std::unique_ptr<PackedCopy> copy, std::function<void(const std::string& why)> lost);
  // Whether a shard number is the copy's, and whether the copy is no longer read.
  bool is_copy(std::int32_t shard) const;
  bool copy_is_lost() const;
  // Of a shard, or the copy.
  const File& file(std::int32_t shard) const;

  // Errors    Error naming the tensor if there is none of that name or its dtype is a foreign one
  const TensorEntry& find(std::string_view name) const;
  // Nothing if there is none of that name; foreign dtypes are returned.
  const TensorEntry* find_if_any(std::string_view name) const;
  // Whether a tensor that is not there may be in a shard that is missing or could not be read.
  bool may_be_lost(std::string_view name) const;

  // All bytes of a tensor; `out` has exactly that size.
  // Errors    Error naming file, tensor, offset, and bytes got and wanted
  void read(const TensorEntry& entry, std::span<std::byte> out) const;
  // Any range of a shard, for several tensors in one read.
  void read(std::int32_t shard, std::uint64_t offset, std::span<std::byte> out) const;

  // As File::read_within.
  std::span<std::byte> read_within(std::int32_t shard, std::uint64_t offset, std::size_t bytes,
                                   std::span<std::byte> room) const;

  const ReadSettings& settings() const;
  // "direct", or "buffered", with the reason if it should be direct; the first of several.
  std::string how_read() const;
  // The tensor whose bytes begin at or before this place, for messages.
  std::string_view name_at(std::int32_t shard, std::uint64_t offset) const;
  // Bytes that came without read(): a ReadQueue's.
  void count_read(std::int32_t shard, std::uint64_t bytes) const;

  // Bytes that read() has delivered so far, headers not counted; and those of them that came from the
  // copy.
  std::uint64_t bytes_read() const;
  std::uint64_t bytes_from_copy() const;
  // Times that a file had to be opened again because its device dropped off.
  std::uint64_t reads_retried() const;

 private:
  void read_sources(std::uint64_t offset, std::span<std::byte> out) const;

  struct State;
  std::unique_ptr<State> state_;
};

// Everything that is wrong with the shards and the index of a folder, not only the first thing.
// Errors    Error only if the folder itself cannot be listed
std::vector<Finding> inspect_shards(const std::filesystem::path& folder);

}  // namespace engine::store
