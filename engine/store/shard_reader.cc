#include "engine/store/shard_reader.h"

#include <atomic>
#include <cassert>
#include <iterator>
#include <utility>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/store/shard_table.h"

namespace engine::store {

struct ShardReader::State {
  ShardTable table;
  ReadSettings settings;
  bool directly = false;  // asked for
  std::atomic<std::uint64_t> bytes_read = 0;
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
ShardReader::ShardReader(const std::filesystem::path& folder, std::vector<Finding>& findings)
    : state_(std::make_unique<State>()) {
  state_->table = scan_folder(folder, {}, findings);
}
ShardReader::~ShardReader() = default;
ShardReader::ShardReader(ShardReader&& other) noexcept = default;

const std::filesystem::path& ShardReader::folder() const { return state_->table.folder; }
std::span<const TensorEntry> ShardReader::entries() const { return state_->table.entries; }
std::span<const File> ShardReader::files() const { return state_->table.files; }
const File& ShardReader::file_of(const TensorEntry& entry) const {
  return state_->table.files[static_cast<std::size_t>(entry.shard)];
}
const std::string& ShardReader::header_sha256(std::int32_t shard) const {
  return state_->table.header_sha256[static_cast<std::size_t>(shard)];
}

const TensorEntry& ShardReader::find(std::string_view name) const {
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
  Throttle* throttle = state_->settings.throttle.get();
  if (throttle != nullptr) throttle->wait_until(throttle->reserve(out.size()));
  state_->table.files[static_cast<std::size_t>(shard)].read(offset, out);
  state_->bytes_read += out.size();
}

std::span<std::byte> ShardReader::read_within(std::int32_t shard, std::uint64_t offset,
                                              std::size_t bytes, std::span<std::byte> room) const {
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
  const auto behind = std::ranges::upper_bound(
      state_->table.entries, std::pair(shard, offset), {},
      [](const TensorEntry& entry) { return std::pair(entry.shard, entry.offset); });
  return behind == state_->table.entries.begin() ? "" : std::prev(behind)->name;
}

void ShardReader::count_read(std::uint64_t bytes) const { state_->bytes_read += bytes; }

std::uint64_t ShardReader::bytes_read() const { return state_->bytes_read; }

std::uint64_t ShardReader::reads_retried() const {
  std::uint64_t sum = 0;
  for (const File& file : state_->table.files) sum += file.reads_retried();
  return sum;
}

std::vector<Finding> inspect_shards(const std::filesystem::path& folder) {
  std::vector<Finding> findings;
  scan_folder(folder, {}, findings);
  return findings;
}

}  // namespace engine::store
