#pragma once

#include <filesystem>
#include <string>

#include "checks/engine_run.h"
#include "checks/scratch_folder.h"
#include "checks/store/shard_files.h"
#include "engine/base/budget.h"
#include "engine/model/pack_order.h"
#include "engine/store/pack.h"

namespace checks {

inline constexpr const char* kPackedNorm = "language_model.model.layers.2.input_layernorm.weight";

// Memory for the pieces of tensors.
struct PieceRoom {
  engine::base::RamBudget budget{std::uint64_t{1} << 40};
  engine::base::Buffer<std::byte> room = budget.take_room("room", engine::store::kPackRoomBytes);
};

inline void write_copy(const std::filesystem::path& folder, const std::filesystem::path& model) {
  std::filesystem::create_directory(folder);
  const engine::store::ShardReader reader(model);
  const engine::model::Config config = engine::model::load_config(model);
  engine::store::write_pack(folder, reader, config.sha256,
                            engine::model::pack_order(reader, config), PieceRoom().room.span());
}

// What `lazylora pack --verify` does.
inline std::string verify_copy(const std::filesystem::path& folder,
                               const std::filesystem::path& model) {
  const engine::store::ShardReader reader(model);
  const engine::store::PackedCopy copy(folder, reader, engine::model::load_config(model).sha256);
  const auto differences = engine::store::verify_pack(copy, reader, engine::store::PackCheck::kBoth,
                                                      PieceRoom().room.span());
  if (differences.empty()) engine::store::remember_verified(folder, copy);
  return described(differences);
}

// Made and verified once a process.
inline const std::filesystem::path& tiny_copy() {
  static const ScratchFolder folder;
  static const std::filesystem::path made = [] {
    write_copy(folder / "pack", tiny_checkpoint());
    EXPECT_EQ(verify_copy(folder / "pack", tiny_checkpoint()), "");
    return folder / "pack";
  }();
  return made;
}

inline engine::model::ModelOptions with_copy(
    const std::filesystem::path& copy, bool ring = true,
    engine::store::DirectReads direct = engine::store::DirectReads::kNever) {
  engine::model::ModelOptions options;
  options.pack = copy;
  options.queue.io_uring = ring;
  options.reads.direct = direct;
  return options;
}

}  // namespace checks
