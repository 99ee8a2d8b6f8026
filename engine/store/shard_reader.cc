#include "engine/store/shard_reader.h"

#include <atomic>
#include <cassert>
#include <iterator>
#include <utility>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/store/packed_copy.h"
#include "engine/store/shard_table.h"

namespace engine::store {

struct ShardReader::State {
  ShardTable table;
  ReadSettings settings;
  bool directly = false;                      // asked for
  std::atomic<std::uint64_t> bytes_read = 0;  // not those of the copy
  std::unique_ptr<PackedCopy> copy;
  std::atomic<bool> lost = false;
  std::function<void(const std::string&)> tell_lost;

  // Whether the copy could be read. Every error of it is the end of it: it may be gone, cut short or
  // written over, and the checkpoint has the same bytes.
  template <class Read>
  bool read_copy(const Read& read) {
    if (lost) return false;
    try {
      read(copy->reader());
      return true;
    } catch (const base::Error& error) {
      if (!lost.exchange(true) && tell_lost) tell(error.what());
      return false;
    }
  }
  // A warning that cannot be given (a closed stderr) does not end the step that goes on without it.
  void tell(const std::string& why) const noexcept {
    try {
      tell_lost(why);
    } catch (...) {
    }
  }
};

ShardReader::ShardReader(const std::filesystem::path& folder, const ReadSettings& settings)
    : state_(std::make_unique<State>()) {
  std::vector<Finding> findings;
  state_->table = scan_folder(folder, settings, findings);
  throw_first_error(findings);
  state_->settings = settings;
  std::uint64_t total = 0;
  for (const File& file : state_->table.files) total += file.size();
  state_->directly = settings.direct == DirectReads::kAlways ||
                     (settings.direct == DirectReads::kLarge && total > base::default_ram_bytes());
  if (state_->directly) {
    for (File& file : state_->table.files) file.read_directly();
  }
}
ShardReader::ShardReader(const std::filesystem::path& folder, std::vector<Finding>& findings,
                         const ReadSettings& settings)
    : state_(std::make_unique<State>()) {
  state_->table = scan_folder(folder, settings, findings);
}
ShardReader::~ShardReader() = default;
ShardReader::ShardReader(ShardReader&& other) noexcept = default;

void ShardReader::use(std::unique_ptr<PackedCopy> copy,
                      std::function<void(const std::string&)> lost) {
  state_->copy = std::move(copy);
  state_->tell_lost = std::move(lost);
}
bool ShardReader::is_copy(std::int32_t shard) const {
  return static_cast<std::size_t>(shard) == state_->table.files.size();
}
bool ShardReader::copy_is_lost() const { return state_->lost; }
const File& ShardReader::file(std::int32_t shard) const {
  if (is_copy(shard)) return state_->copy->reader().file(0);
  return state_->table.files[static_cast<std::size_t>(shard)];
}

// From the checkpoint: what the copy would have there.
void ShardReader::read_sources(std::uint64_t offset, std::span<std::byte> out) const {
  for (const PackedCopy::Piece& piece : state_->copy->sources(offset, out.size())) {
    const std::span<std::byte> part = out.first(piece.bytes);
    try {
      file_of(*piece.tensor).read(piece.tensor->offset + piece.skip, part);
    } catch (const base::Error& error) {
      throw base::Error("{} (tensor {})", error.what(), piece.tensor->name);
    }
    state_->bytes_read += part.size();
    out = out.subspan(part.size());
  }
}

const std::filesystem::path& ShardReader::folder() const { return state_->table.folder; }
std::span<const TensorEntry> ShardReader::entries() const { return state_->table.entries; }
std::span<const File> ShardReader::files() const { return state_->table.files; }
const File& ShardReader::file_of(const TensorEntry& entry) const { return file(entry.shard); }
const std::string& ShardReader::header_sha256(std::int32_t shard) const {
  return state_->table.header_sha256[static_cast<std::size_t>(shard)];
}

const TensorEntry& ShardReader::find(std::string_view name) const {
  const TensorEntry* packed = state_->copy ? state_->copy->find(name) : nullptr;
  if (packed != nullptr) return *packed;
  const TensorEntry* entry = find_if_any(name);
  if (entry == nullptr) {
    throw base::Error("{}: no tensor {} in its {} files", folder().string(), name, files().size());
  }
  if (entry->foreign_dtype != nullptr) {
    throw base::Error("{}: tensor {} has dtype {}, not U8, BF16, F16 or F32",
                      file_of(*entry).path().string(), name, entry->foreign_dtype);
  }
  return *entry;
}

const TensorEntry* ShardReader::find_if_any(std::string_view name) const {
  return state_->table.find(name);
}

bool ShardReader::may_be_lost(std::string_view name) const {
  return state_->table.may_be_lost(name);
}

void ShardReader::read(const TensorEntry& entry, std::span<std::byte> out) const {
  assert(out.size() == entry.bytes);
  try {
    read(entry.shard, entry.offset, out);
  } catch (const base::Error& error) {
    throw base::Error("{} (tensor {})", error.what(), entry.name);
  }
}

void ShardReader::read(std::int32_t shard, std::uint64_t offset, std::span<std::byte> out) const {
  if (is_copy(shard)) {
    const auto from = [&](const ShardReader& copy) { copy.read(0, offset, out); };
    if (!state_->read_copy(from)) read_sources(offset, out);
    return;
  }
  Throttle* throttle = state_->settings.throttle.get();
  if (throttle != nullptr) throttle->wait_until(throttle->reserve(out.size()));
  state_->table.files[static_cast<std::size_t>(shard)].read(offset, out);
  state_->bytes_read += out.size();
}

std::span<std::byte> ShardReader::read_within(std::int32_t shard, std::uint64_t offset,
                                              std::size_t bytes, std::span<std::byte> room) const {
  if (is_copy(shard)) {
    const std::span<std::byte> wanted = room.subspan(offset % kBlock, bytes);
    const auto from = [&](const ShardReader& copy) { copy.read_within(0, offset, bytes, room); };
    if (!state_->read_copy(from)) read_sources(offset, wanted);
    return wanted;
  }
  const File& file = state_->table.files[static_cast<std::size_t>(shard)];
  try {
    const std::span<std::byte> found = file.read_within(offset, bytes, room);
    state_->bytes_read += bytes;
    return found;
  } catch (const base::Error& error) {
    throw base::Error("{} (tensor {})", error.what(), name_at(shard, offset));
  }
}

const ReadSettings& ShardReader::settings() const { return state_->settings; }

std::string ShardReader::how_read() const {
  if (!state_->directly) return "buffered";
  for (const File& file : state_->table.files) {
    const std::string why = file.why_buffered();
    if (!why.empty()) return "buffered: " + why;
  }
  return "direct";
}

std::string_view ShardReader::name_at(std::int32_t shard, std::uint64_t offset) const {
  if (is_copy(shard)) return state_->copy->reader().name_at(0, offset);
  const auto behind = std::ranges::upper_bound(
      state_->table.entries, std::pair(shard, offset), {},
      [](const TensorEntry& entry) { return std::pair(entry.shard, entry.offset); });
  return behind == state_->table.entries.begin() ? "" : std::prev(behind)->name;
}

void ShardReader::count_read(std::int32_t shard, std::uint64_t bytes) const {
  if (is_copy(shard)) return state_->copy->reader().count_read(0, bytes);
  state_->bytes_read += bytes;
}

std::uint64_t ShardReader::bytes_read() const { return state_->bytes_read + bytes_from_copy(); }

std::uint64_t ShardReader::bytes_from_copy() const {
  return state_->copy ? state_->copy->reader().bytes_read() : 0;
}

std::uint64_t ShardReader::reads_retried() const {
  std::uint64_t sum = state_->copy ? state_->copy->reader().reads_retried() : 0;
  for (const File& file : state_->table.files) sum += file.reads_retried();
  return sum;
}

std::vector<Finding> inspect_shards(const std::filesystem::path& folder) {
  std::vector<Finding> findings;
  scan_folder(folder, {}, findings);
  return findings;
}

}  // namespace engine::store
