#include "engine/store/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <string_view>

#include "engine/base/sha256.h"
#include "engine/store/digest_manifest.h"
#include "engine/store/durable.h"
#include "engine/store/safetensors_writer.h"

namespace engine::store {
namespace {

std::uint64_t bytes_of(const PackRun& run) {
  std::uint64_t bytes = 0;
  for (const TensorEntry* tensor : run) bytes += tensor->bytes;
  return bytes;
}

std::uint64_t padding_behind(std::uint64_t bytes) { return (kBlock - bytes % kBlock) % kBlock; }

// Calls `take` with the tensor's bytes, piece by piece; at least once.
template <class Take>
void for_each_piece(const ShardReader& reader, const TensorEntry& tensor, std::span<std::byte> room,
                    const Take& take) {
  // A piece that begins anywhere in a block touches one block more than it is long.
  const std::uint64_t most = room.size() - 2 * kBlock;
  std::uint64_t done = 0;
  do {
    stop_if_wished();
    const std::uint64_t bytes = std::min(most, tensor.bytes - done);
    take(std::span<const std::byte>(
        reader.read_within(tensor.shard, tensor.offset + done, bytes, room)));
    done += bytes;
  } while (done < tensor.bytes);
}

std::vector<TensorSpec> specs_of(std::span<const PackRun> runs) {
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const TensorEntry* tensor : runs[i]) {
      specs.push_back(
          {std::string(tensor->name), tensor->dtype, {tensor->shape.begin(), tensor->shape.end()}});
    }
    const auto padding = static_cast<std::int64_t>(padding_behind(bytes_of(runs[i])));
    if (padding == 0) continue;
    specs.push_back({fmt::format("{}{}", kPadding, i), base::Dtype::kU8, {padding}});
  }
  return specs;
}

}  // namespace

std::uint64_t packed_bytes(std::span<const PackRun> runs) {
  std::uint64_t bytes = 0;
  for (const PackRun& run : runs) bytes += bytes_of(run) + padding_behind(bytes_of(run));
  return bytes;
}

void write_pack(const std::filesystem::path& folder, const ShardReader& checkpoint,
                const std::string& config_sha256, std::vector<PackRun> runs,
                std::span<std::byte> room, const PackProgress& progress) {
  PackIndex index{config_sha256, shards_of(checkpoint), {}, {}};
  for (PackRun& run : runs) {
    std::ranges::stable_sort(run, std::ranges::greater(), [](const TensorEntry* tensor) {
      assert(tensor->foreign_dtype == nullptr);
      return base::size_of(tensor->dtype);
    });
  }
  SafetensorsWriter writer(folder / kPackFile, specs_of(runs), {}, kBlock);
  const std::vector<std::byte> zeros(kBlock);
  for (const PackRun& run : runs) {
    for (const TensorEntry* tensor : run) {
      base::Sha256 hash;
      for_each_piece(checkpoint, *tensor, room, [&](std::span<const std::byte> piece) {
        hash.update(piece);
        writer.append(piece);
        if (progress) progress(piece.size());
      });
      index.tensors.push_back({std::string(tensor->name),
                               tensor->dtype,
                               {tensor->shape.begin(), tensor->shape.end()},
                               checkpoint.file_of(*tensor).path().filename().string(),
                               tensor->offset,
                               hash.hex()});
    }
    const std::uint64_t padding = padding_behind(bytes_of(run));
    if (padding > 0) writer.append(std::span(zeros).first(padding));
  }
  writer.finish();
  index.copy = shards_of(ShardReader(folder)).front();
  write_pack_index(folder / kPackIndex, index);
}

std::vector<Finding> verify_pack(const PackedCopy& copy, const ShardReader& checkpoint,
                                 PackCheck what, std::span<std::byte> room,
                                 const PackProgress& progress) {
  std::vector<Finding> findings;
  const auto compare = [&](const ShardReader& reader, const TensorEntry& tensor,
                           const std::string& wanted) {
    base::Sha256 hash;
    for_each_piece(reader, tensor, room, [&](std::span<const std::byte> piece) {
      hash.update(piece);
      if (progress) progress(piece.size());
    });
    const std::string got = hash.hex();
    if (got == wanted) return;
    findings.push_back({Severity::kError, reader.file_of(tensor).path().string(),
                        std::string(tensor.name), tensor.offset,
                        fmt::format("the SHA-256 of its {} bytes is {}, {} says {}", tensor.bytes,
                                    got, kPackIndex, wanted)});
  };
  for (const PackIndex::Tensor& row : copy.index().tensors) {
    compare(copy.reader(), copy.reader().find(row.name), row.sha256);
    if (what == PackCheck::kBoth) compare(checkpoint, checkpoint.find(row.name), row.sha256);
  }
  for (const TensorEntry& entry : copy.reader().entries()) {
    if (!entry.name.starts_with(kPadding) || entry.bytes == 0) continue;
    // One piece: a PackedCopy has no padding of a block or more.
    for_each_piece(copy.reader(), entry, room, [&](std::span<const std::byte> piece) {
      if (progress) progress(piece.size());
      const auto other =
          std::ranges::find_if(piece, [](std::byte byte) { return byte != std::byte{0}; });
      if (other == piece.end()) return;
      findings.push_back(
          {Severity::kError, copy.reader().file_of(entry).path().string(), std::string(entry.name),
           entry.offset + static_cast<std::uint64_t>(other - piece.begin()),
           fmt::format("is {:#04x}, padding is 0x00", std::to_integer<unsigned>(*other))});
    });
  }
  return findings;
}

std::vector<Finding> compare_digests(const PackedCopy& copy,
                                     const std::filesystem::path& manifest) {
  std::map<std::string_view, std::string_view> left;
  for (const PackIndex::Tensor& row : copy.index().tensors) left.emplace(row.name, row.sha256);
  const std::string index = (copy.reader().folder() / kPackIndex).string();
  std::vector<Finding> findings;
  read_manifest(
      manifest, [](const ManifestRow&) {},
      [&](const ManifestRow& row) {
        const auto found = left.find(row.name);
        if (found == left.end()) return;
        if (found->second != row.sha256) {
          findings.push_back({Severity::kError, index, row.name, std::nullopt,
                              fmt::format("SHA-256 is {}, {} says {}", found->second,
                                          manifest.string(), row.sha256)});
        }
        left.erase(found);
      });
  for (const auto& [name, sha256] : left) {
    findings.push_back(
        {Severity::kError, index, std::string(name), std::nullopt,
         fmt::format("SHA-256 is {}, {} has no such tensor", sha256, manifest.string())});
  }
  return findings;
}

void remember_verified(const std::filesystem::path& folder, const PackedCopy& copy) {
  write_file_durably(folder / kPackVerified, std::string_view(copy.verification()));
}

}  // namespace engine::store
