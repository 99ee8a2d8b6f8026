#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "checks/data/tokenizer_folder.h"
#include "engine/base/rng.h"
#include "engine/data/bpe.h"

namespace {

using engine::data::encode_piece;
using engine::data::Ranks;
using Ids = std::vector<std::int32_t>;

enum class Fault { kNone, kRightmost, kHighest, kWholeIsIgnored, kFirstNotLowest };

// The rule word for word: look at all neighbours, join the best, begin again.
Ids by_the_rule(const Ranks& ranks, const std::string& piece, Fault fault = Fault::kNone) {
  if (fault != Fault::kWholeIsIgnored && ranks.find(piece) >= 0) return {ranks.find(piece)};
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  while (true) {
    std::int32_t best = -1;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::int32_t rank = ranks.find(parts[i] + parts[i + 1]);
      if (rank < 0) continue;
      bool better = best < 0 || rank < best;
      if (fault == Fault::kRightmost) better = best < 0 || rank <= best;
      if (fault == Fault::kHighest) better = rank > best;
      if (fault == Fault::kFirstNotLowest) better = best < 0;
      if (better) best = rank, at = i;
    }
    if (best < 0) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(ranks.find(part));
  return ids;
}

// Words made to be torn: letters of the vocabulary's frequent pairs, repeated and interleaved.
std::vector<std::string> pieces() {
  const engine::base::CounterRng rng(3, "pieces");
  const std::string letters = "aabbcdeeehinnorstth  \xC4\xB1\xE6\x9C\x88";
  std::vector<std::string> all = {"a", "aa", "aaa", "aaaaaaa", "abababab", " the", " thethethe"};
  std::uint64_t next = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string piece;
    const std::size_t length = 1 + rng.bits(next++) % 40;
    for (std::size_t j = 0; j < length; ++j) piece += letters[rng.bits(next++) % letters.size()];
    all.push_back(piece);
  }
  return all;
}

Ids encoded(const Ranks& ranks, const std::string& piece) {
  Ids ids;
  encode_piece(ranks, piece, ids);
  return ids;
}

TEST(Bpe, IsTheRule) {
  const Ranks ranks(checks::ranks_text(8192), "FILE");
  std::size_t joined = 0;
  for (const std::string& piece : pieces()) {
    const Ids ids = encoded(ranks, piece);
    ASSERT_EQ(ids, by_the_rule(ranks, piece)) << piece;
    joined += piece.size() - ids.size();
  }
  EXPECT_GT(joined, 5000u) << "nothing was joined";
}

// A token that no joins lead to: it is found as a whole piece, and only then.
TEST(Bpe, APieceThatIsATokenIsThatToken) {
  const Ranks ranks(checks::ranks_text(512) + "cXp4 256\n", "FILE");
  EXPECT_EQ(encoded(ranks, "qzx"), Ids{256});
  EXPECT_EQ(encoded(ranks, "qzxq"), (Ids{'q', 'z', 'x', 'q'}));
  EXPECT_TRUE(encoded(ranks, "").empty());
}

// n^2 would be 10^13 steps. What is asserted is that it ends within the patience of a test.
TEST(Bpe, MillionsOfEqualLettersEnd) {
  std::string text = checks::ranks_text(512);
  text += "YWE= 256\nYWFhYQ== 257\nYWFhYWFhYWE= 258\n";  // 2, 4 and 8 letters a
  const Ranks ranks(text, "FILE");
  const Ids ids = encoded(ranks, std::string(3'000'003, 'a'));
  Ids want(375'000, 258);
  want.insert(want.end(), {256, 'a'});
  EXPECT_EQ(ids, want);
}

TEST(Bpe, PlantedFaults) {
  const Ranks ranks(checks::ranks_text(8192), "FILE");
  const Ranks odd(checks::ranks_text(512) + "cXp4 256\n", "FILE");
  for (const Fault fault : {Fault::kRightmost, Fault::kHighest, Fault::kFirstNotLowest}) {
    int differing = 0;
    for (const std::string& piece : pieces()) {
      differing += encoded(ranks, piece) != by_the_rule(ranks, piece, fault);
    }
    EXPECT_GT(differing, 0) << static_cast<int>(fault);
  }
  EXPECT_NE(encoded(odd, "qzx"), by_the_rule(odd, "qzx", Fault::kWholeIsIgnored));
}

}  // namespace
