#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "engine/store/scratch_file.h"

namespace engine::store {

// What the forward sweep leaves for the backward sweep, on disk: records named by (kind, layer).
class ActivationStore {
 public:
  // Errors    Error, as ScratchFile
  explicit ActivationStore(const std::filesystem::path& folder) : file_(folder) {}

  // Replaces a record of the same key and size.
  // Errors    Error naming record and both byte counts; a full disk
  void write(const std::string& kind, std::int64_t layer, std::span<const std::byte> bytes);

  // Errors    Error if there is no such record, or it has another size than `out`
  void read(const std::string& kind, std::int64_t layer, std::span<std::byte> out) const;

 private:
  struct Record {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  ScratchFile file_;
  std::uint64_t end_ = 0;
  std::map<std::pair<std::string, std::int64_t>, Record> records_;
};

}  // namespace engine::store
