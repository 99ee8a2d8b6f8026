// What is looked at when an expert is brought from disk: shapes, scale bytes, its place.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <utility>

#include "checks/engine_run.h"
#include "checks/scratch_folder.h"
#include "checks/store/shard_files.h"
#include "engine/model/expert_stream.h"

namespace {

using checks::error_of;
using engine::model::Config;
using engine::model::ExpertStream;
using engine::store::ShardReader;
using engine::store::TensorEntry;
using testing::HasSubstr;

std::string part_name(std::int64_t layer, std::int64_t expert, const std::string& part) {
  return fmt::format("language_model.model.layers.{}.block_sparse_moe.experts.{}.{}", layer, expert,
                     part);
}

// The experts of a checkpoint by themselves, without the look at all of it that comes before a sweep.
class Experts {
 public:
  Experts(const std::filesystem::path& folder, bool strict, const Config& config)
      : reader_(folder),
        config_(config),
        room_(budget_.take_room("slots", kSlots * ExpertStream::slot_bytes(config))),
        queue_(reader_, {false, 1}),
        stream_(reader_, config_, strict, queue_, slots(), 1) {}
  explicit Experts(const std::filesystem::path& folder, bool strict = false)
      : Experts(folder, strict, engine::model::load_config(folder)) {}

  void load(std::int64_t layer, std::int32_t expert) {
    const engine::model::ExpertSource source = stream_.source(layer);
    source.announce({&expert, 1});
    source.load(expert);
  }
  std::vector<std::int32_t> order(std::int64_t layer) { return stream_.source(layer).order; }
  std::pair<std::int64_t, std::int64_t> nan_groups() const {
    return {stream_.nan_groups(), stream_.nan_groups_with_codes()};
  }
  const ShardReader& reader() const { return reader_; }
  const Config& config() const { return config_; }

 private:
  static constexpr std::int64_t kSlots = 2;
  std::vector<std::span<std::byte>> slots() {
    const std::size_t each = room_.size() / kSlots;
    return {room_.span().first(each), room_.span().subspan(each)};
  }

  ShardReader reader_;
  Config config_;
  engine::base::RamBudget budget_{std::uint64_t{1} << 40};
  engine::base::Buffer<std::byte> room_;
  engine::store::ReadQueue queue_;
  ExpertStream stream_;
};

void overwrite(const ShardReader& reader, const std::string& tensor, std::uint64_t at,
               const std::string& bytes) {
  const TensorEntry& entry = reader.find(tensor);
  ASSERT_LE(at + bytes.size(), entry.bytes);
  std::fstream file(reader.file_of(entry).path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(entry.offset + at));
  file << bytes;
  ASSERT_TRUE(file.flush());
}

// NaN scale bytes are counted, once for every time an expert is read, and refused under --strict; a
// product that float32 does not hold is refused always.
TEST(ExpertStream, ScaleBytesAreLookedAtWithAndWithoutStrict) {
  const checks::ScratchFolder scratch;
  const std::filesystem::path folder = scratch / "model";
  std::filesystem::copy(checks::tiny_checkpoint(), folder);
  std::uint64_t overflow_at = 0;
  {
    const ShardReader reader(folder);
    // Groups 7 and 8 of an expert: one of zeros, with either sign, and one with codes.
    overwrite(reader, part_name(3, 5, "w2.weight_scale"), 7, "\xFF\xFF");
    overwrite(reader, part_name(3, 5, "w2.weight_packed"), 7 * 16, std::string(16, '\x80'));
    overwrite(reader, part_name(3, 5, "w2.weight_packed"), 8 * 16, std::string(16, '\x12'));
    // Of another, 2^127 times 6.
    overwrite(reader, part_name(3, 6, "w3.weight_scale"), 11, "\xFE");
    overwrite(reader, part_name(3, 6, "w3.weight_packed"), 11 * 16 + 4, "\x70");
    overflow_at = reader.find(part_name(3, 6, "w3.weight_scale")).offset + 11;
  }
  for (const bool strict : {false, true}) {
    Experts experts(folder, strict);
    EXPECT_EQ(error_of([&] { experts.load(3, 4); }), "") << "planted in none but these two";
    EXPECT_EQ(experts.nan_groups(), std::pair(std::int64_t{0}, std::int64_t{0}));
    const std::string nan = error_of([&] { experts.load(3, 5); });
    if (strict) {
      EXPECT_THAT(nan, testing::AllOf(HasSubstr(part_name(3, 5, "w2.weight_scale")),
                                      HasSubstr("2 scale bytes are 255"), HasSubstr("1 of their")));
      EXPECT_EQ(experts.nan_groups(), std::pair(std::int64_t{0}, std::int64_t{0}));
    } else {
      EXPECT_EQ(nan, "");
      experts.load(3, 5);  // lies in its slot still
      EXPECT_EQ(experts.nan_groups(), std::pair(std::int64_t{2}, std::int64_t{1}));
    }
    EXPECT_THAT(error_of([&] { experts.load(3, 6); }),
                testing::AllOf(HasSubstr(part_name(3, 6, "w3.weight_scale")), HasSubstr("byte 254"),
                               HasSubstr(fmt::format("offset {} ", overflow_at))));
  }
}

// Rows and columns the other way round are the same number of bytes in every one of the six tensors.
TEST(ExpertStream, AnotherShapeIsRefusedWhereTheBytesAreAsMany) {
  Experts right(checks::tiny_checkpoint());
  EXPECT_EQ(error_of([&] { right.load(2, 9); }), "");
  Config turned = right.config();
  std::swap(turned.inner, turned.latent);
  ASSERT_NE(turned.inner, turned.latent);
  ASSERT_EQ(ExpertStream::bytes(turned), ExpertStream::bytes(right.config()));
  Experts wrong(checks::tiny_checkpoint(), false, turned);
  EXPECT_THAT(error_of([&] { wrong.load(2, 9); }),
              testing::AllOf(HasSubstr(".safetensors"), HasSubstr("experts.9.w1.weight_packed"),
                             HasSubstr("[96,32]"), HasSubstr("[64,48]")));
}

// The order of the sum over experts, on which its bits depend.
TEST(ExpertStream, TheOrderIsThatOfTheDisk) {
  Experts experts(checks::tiny_checkpoint());
  const Config& config = experts.config();
  const auto rises = [&](std::int64_t layer, const std::vector<std::int32_t>& order) {
    return std::ranges::is_sorted(order, {}, [&](std::int32_t expert) {
      const TensorEntry& entry =
          experts.reader().find(part_name(layer, expert, "w1.weight_packed"));
      return std::pair(entry.shard, entry.offset);
    });
  };
  std::vector<std::int32_t> by_number(static_cast<std::size_t>(config.experts));
  std::iota(by_number.begin(), by_number.end(), 0);
  for (std::int64_t layer = config.dense_layers; layer < config.layers; ++layer) {
    const std::vector<std::int32_t> order = experts.order(layer);
    EXPECT_TRUE(std::ranges::is_permutation(order, by_number)) << layer;
    EXPECT_TRUE(rises(layer, order)) << layer;
    // Planted: that of their numbers.
    EXPECT_FALSE(rises(layer, by_number)) << layer;
  }
}

}  // namespace
