#include "checks/fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "checks/store/header_faults.h"
#include "checks/store/shard_files.h"
#include "engine/adapter/native.h"
#include "engine/base/error.h"
#include "engine/data/ids.h"
#include "engine/measure/ots_proof.h"
#include "engine/model/config.h"
#include "engine/store/activation_store.h"
#include "engine/store/digest_manifest.h"
#include "engine/store/pack_index.h"
#include "engine/store/safetensors_header.h"
#include "engine/store/shard_reader.h"
#include "engine/train/manifest.h"
#include "engine/train/snapshot.h"

namespace checks {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::uint8_t>;

void require(bool holds, const char* promise) {
  if (!holds) throw std::logic_error(promise);
}

// A file that lives in memory, so that a million inputs leave no trace on a disk.
class MemoryFile {
 public:
  explicit MemoryFile(Bytes bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    require(descriptor_ >= 0, "memfd_create works");
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t written = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
      require(written > 0, "memory can be written");
      done += static_cast<std::size_t>(written);
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  fs::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// One folder a process, emptied for every input.
class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() /
              ("lazylora_fuzz_" + std::to_string(::getpid()) + "_" + std::to_string(next_++))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const fs::path& name, Bytes bytes) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  const fs::path& path() const { return path_; }

 private:
  inline static int next_ = 0;
  fs::path path_;
};

std::string text_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

// A header without findings tiles its file and has every name once.
void safetensors_file(Bytes bytes) {
  const MemoryFile input(bytes);
  const engine::store::File file(input.path());
  std::vector<engine::store::Finding> findings;
  const engine::store::ShardHeader header = engine::store::read_header(file, findings);
  engine::store::throw_first_error(findings);
  std::uint64_t end = 0;
  for (const auto& tensor : header.tensors) {
    if (end == 0) end = tensor.offset;
    require(tensor.offset == end, "tensors lie side by side");
    end = tensor.offset + tensor.bytes;
    require(end <= bytes.size(), "tensors lie in the file");
    std::uint64_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= static_cast<std::uint64_t>(extent);
    require(!tensor.dtype || tensor.bytes == count * static_cast<std::uint64_t>(
                                                         engine::base::size_of(*tensor.dtype)),
            "bytes are what the shape takes");
  }
  require(header.tensors.empty() || end == bytes.size(), "tensors fill the file");
}

void config(Bytes bytes) {
  const engine::model::Config read = engine::model::parse_config(text_of(bytes), "config.json");
  require(std::ssize(read.is_mla) == read.layers, "every layer has a kind");
  require(read.chosen >= 1 && read.chosen <= read.experts, "top-k is within the experts");
  require(read.latent % 32 == 0 && read.inner % 32 == 0, "expert widths are whole groups");
  require(std::isfinite(read.rms_norm_eps) && read.rms_norm_eps > 0.0f, "epsilon is positive");
  require(read.kda_inner() > 0 && read.mla_query() > 0 && read.shared_inner() > 0, "widths");
}

// The index beside the shard that it is about: two tensors of 24 and 8 bytes.
void index(Bytes bytes) {
  static const Folder folder;
  static const std::string shard = safetensors(kHeader, 32);
  folder.write("model.safetensors",
               {reinterpret_cast<const std::uint8_t*>(shard.data()), shard.size()});
  folder.write("model.safetensors.index.json", bytes);
  engine::store::throw_first_error(engine::store::inspect_shards(folder.path()));
}

void digests(Bytes bytes) {
  const MemoryFile input(bytes);
  const auto row = [](const engine::store::ManifestRow& read) {
    require(!read.sha256.empty() || !read.name.empty() || !read.file.empty(), "rows say something");
  };
  engine::store::read_manifest(input.path(), row, row);
}

void adapter(Bytes bytes) {
  const MemoryFile input(bytes);
  const engine::adapter::NativeAdapter read = engine::adapter::read_native_adapter(input.path());
  require(read.rank > 0 && read.alpha > 0.0, "rank and alpha are positive");
  require(!read.tensors.empty() && read.tensors.size() % 2 == 0, "A and B come in pairs");
  for (const auto& tensor : read.tensors) {
    require(tensor.shape.size() == 2, "tensors are matrices");
    require(std::ssize(tensor.values) == tensor.shape[0] * tensor.shape[1], "values are all there");
    require(read.find(tensor.name) == &tensor, "a name finds its tensor");
  }
}

// The first byte says which file of a run the others are.
void run_folder(Bytes bytes) {
  static const Folder folder;
  static const std::array<const char*, 4> kFiles = {
      "manifest.json", "checkpoints/step_00005/state.json",
      "checkpoints/step_00005/adapter.safetensors", "checkpoints/step_00005/moments.safetensors"};
  if (bytes.empty()) throw engine::base::Error("no bytes");
  fs::remove_all(folder.path());
  folder.write(kFiles[bytes[0] % kFiles.size()], bytes.subspan(1));
  const auto manifest = engine::train::read_manifest(folder.path());
  const engine::train::FoundSnapshot found = engine::train::find_newest(folder.path());
  require(!found.newest, "a checkpoint of one file is not whole");
  if (!manifest) throw engine::base::Error("no manifest");
}

// The index of a packed copy, by itself: whether it is that of its files is PackedCopy's to say.
void pack(Bytes bytes) {
  const MemoryFile input(bytes);
  for (const auto& tensor : engine::store::read_pack_index(input.path()).tensors) {
    for (const std::int64_t extent : tensor.shape) require(extent >= 0, "extents are no fewer");
  }
}

void ots(Bytes bytes) {
  const MemoryFile input(bytes);
  const engine::measure::OtsProof proof = engine::measure::read_ots_proof(input.path());
  require(proof.sha256_hex.size() == 64, "the digest is a SHA-256");
  require(proof.blocks.size() + proof.pending.size() + static_cast<std::size_t>(proof.others) > 0,
          "every branch ends in an attestation");
  for (const auto& block : proof.blocks) {
    require(block.merkle_root.size() <= 4096, "a message has its bound");
    require(block.offset < bytes.size(), "attestations lie in the file");
  }
  for (const std::string& address : proof.pending) {
    require(!address.empty() && address.find_first_of(" \n\x1b") == std::string::npos,
            "an address may be printed");
  }
}

void ids(Bytes bytes) {
  constexpr std::int64_t kVocabulary = 1000;
  for (const std::int32_t id : engine::data::parse_ids(text_of(bytes), kVocabulary, "ids")) {
    require(id >= 0 && id < kVocabulary, "ids lie in the vocabulary");
  }
}

// Bytes as writes and reads of records: whatever their order and sizes, a record comes back as it was
// written last, and a read of another size is refused.
void activations(Bytes bytes) {
  static const char* const kKinds[] = {"h", "r", "route", "routed"};
  engine::store::ActivationStore store(fs::temp_directory_path());
  std::map<std::pair<int, int>, std::vector<std::byte>> written;
  for (std::size_t i = 0; i + 3 <= bytes.size(); i += 3) {
    const int kind = bytes[i] % 4;
    const int layer = bytes[i] / 4 % 8;
    const std::size_t size = bytes[i + 1] * (bytes[i + 2] % 5U);
    const auto found = written.find({kind, layer});
    if (bytes[i] < 128) {
      const std::vector<std::byte> record(size, std::byte{bytes[i + 2]});
      if (found != written.end() && found->second.size() != size) continue;
      store.write(kKinds[kind], layer, record);
      written[{kind, layer}] = record;
      continue;
    }
    std::vector<std::byte> back(size);
    bool refused = false;
    try {
      store.read(kKinds[kind], layer, back);
    } catch (const engine::base::Error&) {
      refused = true;
    }
    require(refused == (found == written.end() || found->second.size() != size),
            "a record is refused exactly if it is not there or of another size");
    require(refused || back == found->second, "a record comes back as it was written");
  }
}

template <void (*Read)(Bytes)>
bool accepts(Bytes bytes) {
  try {
    Read(bytes);
    return true;
  } catch (const engine::base::Error&) {
    return false;
  }
}

constexpr FuzzTarget kTargets[] = {
    {"safetensors", accepts<safetensors_file>},
    {"config", accepts<config>},
    {"index", accepts<index>},
    {"digests", accepts<digests>},
    {"adapter", accepts<adapter>},
    {"run", accepts<run_folder>},
    {"pack", accepts<pack>},
    {"ots", accepts<ots>},
    {"ids", accepts<ids>},
    {"activations", accepts<activations>},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

const FuzzTarget& fuzz_target(std::string_view name) {
  for (const FuzzTarget& target : kTargets) {
    if (target.name == name) return target;
  }
  throw std::logic_error("no fuzz target " + std::string(name));
}

}  // namespace checks
