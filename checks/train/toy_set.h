#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "checks/scratch_folder.h"
#include "engine/base/sha256.h"
#include "engine/data/packed_set.h"

namespace checks {

// Writes a set of these sequences, as `lazylora data build` would.
inline void write_set(const std::filesystem::path& folder,
                      const std::vector<engine::data::PackedSequence>& sequences,
                      std::int64_t length) {
  std::string bytes;
  std::int64_t documents = 0, ids = 0, trained = 0;
  for (const auto& sequence : sequences) {
    bytes += engine::data::packed_bytes(sequence);
    documents += std::ssize(sequence.borders) - 1;
    ids += sequence.size();
    trained += sequence.trained_ids();
  }
  const nlohmann::json manifest = {
      {"format", "lazylora data 1"},
      {"set",
       {{"length", length},
        {"sequences", sequences.size()},
        {"documents", documents},
        {"ids", ids},
        {"trained", trained}}},
      {"tokenizer",
       {{"vocabulary", 50}, {"tiktoken_model_sha256", ""}, {"tokenizer_config_sha256", ""}}},
      {"files",
       {{"sequences.bin", {{"sha256", engine::base::sha256_hex(bytes)}}},
        {"records.jsonl", {{"sha256", engine::base::sha256_hex("")}}}}}};
  std::filesystem::create_directories(folder);
  write_bytes(folder / "sequences.bin", bytes);
  write_bytes(folder / "records.jsonl", "");
  write_bytes(folder / "manifest.json", manifest.dump());
}

inline std::shared_ptr<const engine::data::PackedSet> open_toy_set(
    const std::filesystem::path& folder) {
  struct Both {
    engine::base::RamBudget budget{1 << 20};
    engine::data::PackedSet set;
    explicit Both(const std::filesystem::path& at) : set(at, budget) {}
  };
  const auto both = std::make_shared<const Both>(folder);
  return {both, &both->set};
}

// Five sequences of one to three documents, all different; of the fourth nothing is trained.
inline std::vector<engine::data::PackedSequence> toy_sequences() {
  return {
      {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 4, 6, 9}, {0, 0, 1, 1, 0, 1, 0, 0, 1}},
      {{10, 11, 12, 13, 14, 15, 16}, {0, 3, 7}, {0, 1, 1, 0, 1, 1, 0}},
      {{20, 21, 22, 23, 24}, {0, 5}, {0, 1, 1, 1, 1}},
      {{30, 31}, {0, 2}, {0, 0}},
      {{40, 41, 42, 43, 44, 45, 46, 47}, {0, 2, 8}, {0, 1, 0, 0, 0, 0, 0, 1}},
  };
}

}  // namespace checks
