#include "engine/store/digests.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/at_path.h"
#include "engine/store/digest_manifest.h"
#include "engine/store/durable.h"

namespace engine::store {
namespace {

constexpr std::uint64_t kBlockBytes = 4 << 20;
constexpr std::uint64_t kMaxCacheBytes = 16 << 20;
constexpr std::string_view kVerified = "lazylora verified";  // how every cache begins

std::string name_of(const File& file) { return file.path().filename().string(); }

// A file name may hold any bytes; JSON holds UTF-8.
std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class TensorHasher {
 public:
  TensorHasher(const ShardReader& reader, const DigestProgress& progress)
      : reader_(reader), progress_(progress), block_(kBlockBytes) {}

  std::string hash(const TensorEntry& entry) {
    base::Sha256 hash;
    for (std::uint64_t done = 0; done < entry.bytes;) {
      stop_if_wished();
      const auto part =
          std::span(block_).first(std::min<std::uint64_t>(kBlockBytes, entry.bytes - done));
      reader_.read(entry.shard, entry.offset + done, part);
      hash.update(part);
      done += part.size();
      if (progress_) progress_(part.size());
    }
    return hash.hex();
  }

 private:
  const ShardReader& reader_;
  const DigestProgress& progress_;
  std::vector<std::byte> block_;
};

class Verifier {
 public:
  Verifier(const std::filesystem::path& path, const ShardReader& reader)
      : path_(path.string()), reader_(reader), wanted_(reader.entries().size()) {
    for (std::size_t i = 0; i < reader.files().size(); ++i) {
      shards_.emplace(name_of(reader.files()[i]), i);
    }
  }

  void shard(const ManifestRow& row) {
    const auto found = shards_.find(row.file);
    if (found == shards_.end()) {
      report(path_, "", std::nullopt, fmt::format("the manifest's file {} is not there", row.file));
      return;
    }
    const File& file = reader_.files()[found->second];
    if (file.size() != row.bytes) {
      report(file.path().string(), "", std::nullopt,
             fmt::format("has {} bytes, the manifest says {}", file.size(), row.bytes));
    }
    const std::string& header = reader_.header_sha256(static_cast<std::int32_t>(found->second));
    if (header != row.sha256) {
      report(file.path().string(), "", 0,
             fmt::format("header SHA-256 is {}, the manifest says {}", header, row.sha256));
    }
  }

  void tensor(const ManifestRow& row) {
    const TensorEntry* entry = reader_.find_if_any(row.name);
    if (entry == nullptr) {
      report(path_, row.name, std::nullopt,
             fmt::format("stands in the manifest, but in no header ({} at byte {})", row.file,
                         row.offset));
      return;
    }
    const File& file = reader_.file_of(*entry);
    std::string& wanted = wanted_[static_cast<std::size_t>(entry - reader_.entries().data())];
    if (!wanted.empty()) report(path_, row.name, std::nullopt, "stands in the manifest twice");
    if (row.file != name_of(file) || row.offset != entry->offset || row.bytes != entry->bytes) {
      report(file.path().string(), row.name, entry->offset,
             fmt::format("{} bytes lie here, the manifest says {} bytes in {} at byte {}",
                         entry->bytes, row.bytes, row.file, row.offset));
    }
    wanted = row.sha256;
  }

  void config(const std::string& got, const std::string& wanted) {
    if (got == wanted) return;
    report((reader_.folder() / "config.json").string(), "", std::nullopt,
           fmt::format("SHA-256 is {}, the manifest says {}", got, wanted));
  }

  void check_complete() {
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const TensorEntry& entry = reader_.entries()[i];
      if (!wanted_[i].empty()) continue;
      report(reader_.file_of(entry).path().string(), std::string(entry.name), entry.offset,
             "is not in the manifest");
    }
  }

  void check_contents(const DigestProgress& progress) {
    TensorHasher hasher(reader_, progress);
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const TensorEntry& entry = reader_.entries()[i];
      const std::string got = hasher.hash(entry);
      if (got == wanted_[i]) continue;
      report(reader_.file_of(entry).path().string(), std::string(entry.name), entry.offset,
             fmt::format("the SHA-256 of its {} bytes is {}, the manifest says {}", entry.bytes,
                         got, wanted_[i]));
    }
  }

  std::vector<Finding> findings;

 private:
  void report(const std::string& file, const std::string& tensor,
              std::optional<std::uint64_t> offset, const std::string& message) {
    add(findings, {Severity::kError, file, tensor, offset, message});
  }

  const std::string path_;
  const ShardReader& reader_;
  std::vector<std::string> wanted_;  // [entry]
  std::map<std::string, std::size_t> shards_;
};

}  // namespace

void write_digests(const std::filesystem::path& path, const ShardReader& reader,
                   const std::string& config_sha256, const DigestProgress& progress) {
  DurableFile out(path);
  std::string text;
  const auto flush = [&](std::size_t at_least) {
    if (text.size() < at_least) return;
    out.write(std::as_bytes(std::span(text)));
    text.clear();
  };
  text += fmt::format("{{\"format\": \"{}\",\n\"config_sha256\": \"{}\",\n\"shards\": [",
                      kManifestFormat, config_sha256);
  for (std::size_t i = 0; i < reader.files().size(); ++i) {
    const File& file = reader.files()[i];
    text += fmt::format("{}\n{{\"file\": {}, \"bytes\": {}, \"header_sha256\": \"{}\"}}",
                        i == 0 ? "" : ",", json_string(name_of(file)), file.size(),
                        reader.header_sha256(static_cast<std::int32_t>(i)));
  }
  text += "\n],\n\"tensors\": [";
  TensorHasher hasher(reader, progress);
  for (std::size_t i = 0; i < reader.entries().size(); ++i) {
    const TensorEntry& entry = reader.entries()[i];
    text += fmt::format(
        "{}\n{{\"name\": {}, \"shard\": {}, \"offset\": {}, \"bytes\": {}, \"sha256\": \"{}\"}}",
        i == 0 ? "" : ",", json_string(entry.name), json_string(name_of(reader.file_of(entry))),
        entry.offset, entry.bytes, hasher.hash(entry));
    flush(kBlockBytes);
  }
  text += "\n]}\n";
  flush(0);
  out.commit();
}

std::vector<Finding> verify_digests(const std::filesystem::path& path, const ShardReader& reader,
                                    const std::string& config_sha256,
                                    const DigestProgress& progress) {
  Verifier verifier(path, reader);
  const std::string config = read_manifest(
      path, [&](const ManifestRow& row) { verifier.shard(row); },
      [&](const ManifestRow& row) { verifier.tensor(row); });
  verifier.config(config_sha256, config);
  verifier.check_complete();
  if (verifier.findings.empty()) verifier.check_contents(progress);
  return std::move(verifier.findings);
}

std::string verification_key(const std::filesystem::path& manifest, const ShardReader& reader,
                             const std::string& config_sha256) {
  std::string key = fmt::format("{} 1\nmanifest {}\nconfig {}\n", kVerified,
                                base::sha256_hex_of_file(manifest), config_sha256);
  for (std::size_t i = 0; i < reader.files().size(); ++i) {
    const File& file = reader.files()[i];
    key += fmt::format("{} bytes {} modified_ns {} header {}\n",
                       json_string(canonical_path(file.path()).string()), file.size(),
                       file.modified_ns(), reader.header_sha256(static_cast<std::int32_t>(i)));
  }
  return key;
}

bool verification_is_cached(const std::filesystem::path& cache, const std::string& key) {
  std::error_code ignored;
  if (!std::filesystem::exists(cache, ignored)) return false;
  const std::string text = read_text(cache, kMaxCacheBytes);
  if (!text.starts_with(kVerified)) {
    throw base::Error("{}: does not begin with \"{}\": another file, which is not written over",
                      cache.string(), kVerified);
  }
  return text == key;
}

}  // namespace engine::store
