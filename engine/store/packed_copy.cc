#include "engine/store/packed_copy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <sstream>

#include "engine/base/error.h"
#include "engine/store/digests.h"

namespace engine::store {
namespace {

using base::Error;

constexpr std::uint64_t kMaxVerifiedBytes = 16 << 20;

bool is_padding(const TensorEntry& entry) { return entry.name.starts_with(kPadding); }

// "BF16 [64,32]"
template <class Tensor>
std::string kind_of(const Tensor& tensor) {
  return fmt::format("{} [{}]", base::name_of(tensor.dtype), fmt::join(tensor.shape, ","));
}

// The tensor of that row, which has to be what the row says.
const TensorEntry& find_as(const ShardReader& reader, const PackIndex::Tensor& row,
                           const std::string& index) {
  const TensorEntry* entry = reader.find_if_any(row.name);
  if (entry == nullptr) {
    throw Error("{}: tensor {}: stands in the index as {}, but is not in {}", index, row.name,
                kind_of(row), reader.folder().string());
  }
  if (entry->foreign_dtype != nullptr || entry->dtype != row.dtype || entry->shape != row.shape) {
    throw Error("{}: tensor {}: is {}, {} says {}", reader.file_of(*entry).path().string(),
                row.name, entry->foreign_dtype != nullptr ? entry->foreign_dtype : kind_of(*entry),
                index, kind_of(row));
  }
  return *entry;
}

void require_same_files(const std::filesystem::path& folder,
                        const std::vector<PackIndex::Shard>& found,
                        const std::vector<PackIndex::Shard>& wanted, const std::string& index) {
  for (std::size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    const PackIndex::Shard &is = found[i], &was = wanted[i];
    const auto same = [&](const char* what, const auto& value, const auto& stated) {
      if (value == stated) return;
      throw Error("{}: {} is {}, {} says {}", (folder / is.file).string(), what, value, index,
                  stated);
    };
    same("number of bytes", is.bytes, was.bytes);
    same("header SHA-256", is.header_sha256, was.header_sha256);
    same("name of the file", is.file, was.file);
  }
  if (found.size() == wanted.size()) return;
  throw Error("{}: has {} shards, {} says {}", folder.string(), found.size(), index, wanted.size());
}

}  // namespace

PackedCopy::PackedCopy(const std::filesystem::path& folder, const ShardReader& checkpoint,
                       const std::string& config_sha256, const ReadSettings& settings)
    : folder_(folder),
      index_(read_pack_index(folder / kPackIndex)),
      reader_(folder, settings),
      source_(reader_.entries().size()) {
  const std::string index = (folder / kPackIndex).string();
  if (index_.config_sha256 != config_sha256) {
    throw Error("{}: config.json has the SHA-256 {}, {} says {}", checkpoint.folder().string(),
                config_sha256, index, index_.config_sha256);
  }
  for (const PackIndex::Tensor& row : index_.tensors) {
    const TensorEntry& source = find_as(checkpoint, row, index);
    const std::string shard = checkpoint.file_of(source).path().filename().string();
    if (shard != row.shard || source.offset != row.offset) {
      throw Error("{}: tensor {}: lies in {} at byte {}, {} says in {} at byte {}",
                  checkpoint.file_of(source).path().string(), row.name, shard, source.offset, index,
                  row.shard, row.offset);
    }
    const TensorEntry& place = find_as(reader_, row, index);
    const TensorEntry*& from = source_[static_cast<std::size_t>(&place - reader_.entries().data())];
    if (from != nullptr) throw Error("{}: tensor {}: stands in the index twice", index, row.name);
    from = &source;
    by_name_.push_back(place);
    by_name_.back().shard = static_cast<std::int32_t>(checkpoint.files().size());
  }
  for (std::size_t i = 0; i < source_.size(); ++i) {
    const TensorEntry& entry = reader_.entries()[i];
    if (source_[i] != nullptr) continue;
    if (is_padding(entry)) {
      if (entry.bytes < kBlock) continue;
      throw Error("{}: tensor {}: has {} bytes, padding has less than {}",
                  reader_.file_of(entry).path().string(), entry.name, entry.bytes, kBlock);
    }
    throw Error("{}: tensor {}: is {} at byte {}, but does not stand in {}",
                reader_.file_of(entry).path().string(), entry.name, kind_of(entry), entry.offset,
                index);
  }
  require_same_files(folder, shards_of(reader_), {index_.copy}, index);
  require_same_files(checkpoint.folder(), shards_of(checkpoint), index_.checkpoint, index);
  std::ranges::sort(by_name_, {}, &TensorEntry::name);
  for (const ShardReader* reader : {&checkpoint, static_cast<const ShardReader*>(&reader_)}) {
    verification_ += verification_key(folder / kPackIndex, *reader, config_sha256);
  }
}

const TensorEntry* PackedCopy::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(by_name_, name, {}, &TensorEntry::name);
  return at == by_name_.end() || at->name != name ? nullptr : &*at;
}

std::vector<PackedCopy::Piece> PackedCopy::sources(std::uint64_t offset,
                                                   std::uint64_t bytes) const {
  const std::span<const TensorEntry> entries = reader_.entries();
  const auto behind = std::ranges::upper_bound(entries, offset, {}, &TensorEntry::offset);
  assert(behind != entries.begin());
  std::vector<Piece> pieces;
  for (auto at = std::prev(behind); bytes > 0; ++at) {
    if (at->bytes == 0) continue;  // padding too may be of none
    const TensorEntry* tensor = source_[static_cast<std::size_t>(at - entries.begin())];
    assert(tensor != nullptr);
    const std::uint64_t skip = offset - at->offset;
    const std::uint64_t taken = std::min(bytes, at->bytes - skip);
    pieces.push_back({tensor, skip, taken});
    offset += taken;
    bytes -= taken;
  }
  return pieces;
}

void PackedCopy::require_verified() const {
  const std::filesystem::path path = folder_ / kPackVerified;
  constexpr const char* kHow = "`lazylora pack MODEL OUT --verify` compares both copies";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error("{}: is not there, so nothing says that the copy is the checkpoint's; {}",
                path.string(), kHow);
  }
  std::istringstream then(read_text(path, kMaxVerifiedBytes)), now(verification_);
  const auto next = [](std::istringstream& text) {
    std::string line;
    if (!std::getline(text, line)) line = "(no more)";
    return line;
  };
  for (int number = 1; then || now; ++number) {
    const std::string was = next(then), is = next(now);
    if (was == is) continue;
    throw Error("{}: line {}: was compared as {}, but is {} now; {}", path.string(), number, was,
                is, kHow);
  }
}

}  // namespace engine::store
