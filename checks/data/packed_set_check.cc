#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checks/data/workshop.h"
#include "engine/base/sha256.h"
#include "engine/data/packed_set.h"
#include "engine/data/packing.h"

namespace {

using checks::read_bytes;
using checks::refusal;
using checks::ScratchFolder;
using checks::Workshop;
using engine::base::RamBudget;
using engine::data::Joined;
using engine::data::pack;
using engine::data::PackedSequence;
using engine::data::PackedSet;
using engine::data::Packing;
using engine::data::TooLong;
using engine::data::training_form;
using testing::AllOf;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
using Groups = std::vector<std::vector<std::int64_t>>;

TEST(Packing, InOrderAndFirstFit) {
  const std::vector<std::int64_t> lengths{5, 6, 3, 4, 2, 10, 1};
  EXPECT_EQ(pack(lengths, 10, Packing::kInOrder), (Groups{{0}, {1, 2}, {3, 4}, {5}, {6}}));
  EXPECT_EQ(pack(lengths, 10, Packing::kFirstFit), (Groups{{0, 2, 4}, {1, 3}, {5}, {6}}));
  // What is left is all used: a document that fits exactly fits.
  const std::vector<std::int64_t> exact{4, 6, 1, 9, 10, 3};
  for (const Packing packing : {Packing::kInOrder, Packing::kFirstFit}) {
    EXPECT_EQ(pack(exact, 10, packing), (Groups{{0, 1}, {2, 3}, {4}, {5}}));
  }
  EXPECT_TRUE(pack({}, 10, Packing::kFirstFit).empty());
  EXPECT_TRUE(pack({}, 10, Packing::kInOrder).empty());
}

TEST(Packing, FirstFitIsTheFirstThatFits) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 1000; ++i) lengths.push_back(1 + i * i * 7919 % 60);
  Groups want;
  std::vector<std::int64_t> room;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::size_t s = 0;
    while (s < room.size() && room[s] < lengths[i]) ++s;
    if (s == room.size()) room.push_back(64), want.emplace_back();
    room[s] -= lengths[i];
    want[s].push_back(static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(pack(lengths, 64, Packing::kFirstFit), want);
}

PackedSequence three_documents() {
  return {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 4, 6, 9}, {0, 0, 1, 1, 0, 1, 0, 0, 1}};
}

// Every target is the next id of its own document, and there only where it is trained.
bool no_label_crosses(const PackedSequence& s, const Joined& joined) {
  std::size_t at = 0;
  if (joined.borders.size() != s.borders.size()) return false;
  for (std::size_t d = 0; d + 1 < s.borders.size(); ++d) {
    if (joined.borders[d] != static_cast<std::int64_t>(at)) return false;
    for (std::int64_t i = s.borders[d]; i + 1 < s.borders[d + 1]; ++i, ++at) {
      if (at >= joined.tokens.size() || joined.tokens[at] != s.ids[i]) return false;
      if (joined.targets[at] != (s.trained[i + 1] ? s.ids[i + 1] : -1)) return false;
    }
  }
  return at == joined.tokens.size() && at == joined.targets.size();
}

TEST(Packing, G4_NoLabelCrossesADocumentsEnd) {
  const PackedSequence s = three_documents();
  const Joined joined = training_form(s);
  EXPECT_EQ(joined.tokens, (Ids{1, 2, 3, 5, 7, 8}));
  EXPECT_EQ(joined.targets, (Ids{-1, 3, 4, 6, -1, 9}));
  EXPECT_EQ(joined.borders, (std::vector<std::int64_t>{0, 3, 4, 6}));
  EXPECT_TRUE(no_label_crosses(s, joined));
  // A document that ends exactly where the sequence ends, and one that fills it.
  Workshop shop;
  const auto size = std::ssize(
      shop.chat().exchange("Which number comes after 0?", "After it comes 1.", "text").ids);
  for (const std::int64_t length : {size, 2 * size}) {
    shop.settings.length = length;
    shop.settings.too_long = TooLong::kDrop;
    const std::string name = "set" + std::to_string(length);
    shop.build(name);
    const PackedSet set = shop.open(name);
    bool full = false;
    for (std::int64_t i = 0; i < set.count(); ++i) {
      const PackedSequence sequence = set.sequence(i);
      full = full || sequence.size() == length;
      EXPECT_TRUE(no_label_crosses(sequence, training_form(sequence)));
    }
    EXPECT_TRUE(full) << "no sequence ends with its last document";
  }
}

// One changed byte at a time: digests, counts or structure refuse it, whatever it is.
TEST(PackedSet, EveryChangedByteIsRefused) {
  Workshop shop;
  shop.settings.count = 4;
  shop.build("set");
  EXPECT_EQ(refusal([&] { shop.open("set"); }), "");
  const std::string good = read_bytes(shop.path("set") / "sequences.bin");
  const auto with = [&](const std::string& bytes) {
    checks::write_bytes(shop.path("set") / "sequences.bin", bytes);
    return refusal([&] { shop.open("set"); });
  };
  for (std::size_t at = 0; at < good.size(); at += 3) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    ASSERT_THAT(with(bytes), HasSubstr("sequences.bin")) << at;
  }
  EXPECT_THAT(with(good.substr(0, good.size() - 1)), HasSubstr("sequence"));
  EXPECT_THAT(with(good + 'x'), HasSubstr("the file at"));
  EXPECT_EQ(with(good), "");
}

// It says which records a set has, and what is held out goes by it.
TEST(PackedSet, RecordsAreHeldAgainstTheirDigest) {
  Workshop shop;
  shop.settings.count = 4;
  shop.build("set");
  const std::filesystem::path file = shop.path("set") / "records.jsonl";
  const std::string good = read_bytes(file);
  const std::string stated = engine::base::sha256_hex(good);
  for (const std::size_t at : {std::size_t{0}, good.size() / 2, good.size() - 1}) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    checks::write_bytes(file, bytes);
    EXPECT_THAT(refusal([&] { shop.open("set"); }),
                AllOf(HasSubstr(file.string()), HasSubstr(engine::base::sha256_hex(bytes)),
                      HasSubstr(stated)))
        << at;
  }
  checks::write_bytes(file, good + '\n');
  EXPECT_THAT(refusal([&] { shop.open("set"); }), HasSubstr(stated));
  std::filesystem::remove(file);
  EXPECT_THAT(refusal([&] { shop.open("set"); }), HasSubstr("it has no records.jsonl"));
  checks::write_bytes(file, good);
  EXPECT_EQ(refusal([&] { shop.open("set"); }), "");
}

TEST(PackedSet, AnotherTokenizerIsNamedWithBothDigests) {
  Workshop shop;
  shop.build("set");
  const PackedSet set = shop.open("set");
  const std::filesystem::path ranks = "other/tiktoken.model",
                              config = "other/tokenizer_config.json";
  EXPECT_EQ(refusal([&] {
              set.require_made_with(ranks, shop.tokenizer().ranks_sha256());
              set.require_made_with(config, shop.tokenizer().config_sha256());
            }),
            "");
  EXPECT_THAT(refusal([&] { set.require_made_with(ranks, shop.tokenizer().config_sha256()); }),
              AllOf(HasSubstr(shop.path("set").string()), HasSubstr(ranks.string()),
                    HasSubstr(shop.tokenizer().ranks_sha256()),
                    HasSubstr(shop.tokenizer().config_sha256())));
  EXPECT_THAT(refusal([&] { set.require_made_with(config, shop.tokenizer().ranks_sha256()); }),
              HasSubstr(config.string()));
}

// The same with a digest that agrees, as a hostile writer would have it.
TEST(PackedSet, StructureIsNotBelieved) {
  const auto why = [](const PackedSequence& sequence, std::int64_t length, std::int64_t trained,
                      const std::function<void(std::string&)>& change = {}) {
    const ScratchFolder scratch;
    std::string bytes = engine::data::packed_bytes(sequence);
    if (change) change(bytes);
    checks::write_bytes(scratch / "sequences.bin", bytes);
    checks::write_bytes(scratch / "records.jsonl", "");
    const nlohmann::json manifest = {
        {"format", "lazylora data 1"},
        {"set",
         {{"length", length},
          {"sequences", 1},
          {"documents", sequence.borders.size() - 1},
          {"ids", sequence.ids.size()},
          {"trained", trained}}},
        {"tokenizer",
         {{"vocabulary", 10}, {"tiktoken_model_sha256", ""}, {"tokenizer_config_sha256", ""}}},
        {"files",
         {{"sequences.bin", {{"sha256", engine::base::sha256_hex(bytes)}}},
          {"records.jsonl", {{"sha256", engine::base::sha256_hex("")}}}}}};
    checks::write_bytes(scratch / "manifest.json", manifest.dump());
    RamBudget budget(1'000'000);
    return refusal([&] { PackedSet(scratch.path(), budget); });
  };
  const PackedSequence good = three_documents();
  EXPECT_EQ(why(good, 9, 4), "");
  EXPECT_THAT(why(good, 8, 4), HasSubstr("9 ids, not 2 ... 8"));
  EXPECT_THAT(why(good, 9, 5), HasSubstr("4 trained ids, manifest.json says 5"));
  PackedSequence wrong = good;
  wrong.ids[4] = 10;
  EXPECT_THAT(why(wrong, 9, 4), AllOf(HasSubstr("id 4 is 10"), HasSubstr("0 ... 9")));
  wrong.ids[4] = -1;
  EXPECT_THAT(why(wrong, 9, 4), HasSubstr("id 4 is -1"));
  wrong = good;
  wrong.trained[4] = 1;
  EXPECT_THAT(why(wrong, 9, 5), HasSubstr("first id of document 1 is trained"));
  wrong = good;
  wrong.trained[2] = 2;
  EXPECT_THAT(why(wrong, 9, 5), HasSubstr("mark 2 is 2"));
  wrong = good;
  wrong.borders[1] = 5;
  EXPECT_THAT(why(wrong, 9, 4), HasSubstr("document 1"));
  EXPECT_THAT(why(good, 9, 4, [](std::string& bytes) { bytes[8] = 1; }),
              HasSubstr("begins at id 1"));
  EXPECT_THAT(why(good, 9, 4, [](std::string& bytes) { bytes[16] = 3; }), HasSubstr("document 1"));
  EXPECT_THAT(why(good, 9, 4, [](std::string& bytes) { bytes[7] = '\x7F'; }),
              HasSubstr("documents"));
  EXPECT_THAT(why(good, 9, 4, [](std::string& bytes) { bytes[3] = '\x7F'; }), HasSubstr("ids"));
  EXPECT_THAT(why(good, 9, 4, [](std::string& bytes) { bytes.resize(20); }),
              HasSubstr("sequences.bin has 20 bytes"));
  EXPECT_THAT(why(good, 1, 4), HasSubstr("length is 1"));
}

TEST(PackedSet, PlantedFaults) {
  const PackedSequence s = three_documents();
  const Joined right = training_form(s);
  ASSERT_TRUE(no_label_crosses(s, right));
  // One document after the other without regard for borders: 4 predicts 5.
  const Joined crossing{{1, 2, 3, 4, 5, 6, 7, 8}, {-1, 3, 4, -1, 6, -1, -1, 9}, {0, 4, 6, 8}};
  EXPECT_FALSE(no_label_crosses(s, crossing));
  Joined shifted = right;
  shifted.targets = {-1, -1, 3, 5, -1, 8};
  EXPECT_FALSE(no_label_crosses(s, shifted));
  Joined all = right;
  all.targets = {2, 3, 4, 6, 8, 9};
  EXPECT_FALSE(no_label_crosses(s, all)) << "a question that is trained";
}

}  // namespace
