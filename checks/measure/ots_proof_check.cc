// OpenTimestamps proofs: a path of hashes from a registration to a block header, made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/measure/block_header.h"
#include "engine/measure/ots_proof.h"

namespace {

namespace measure = engine::measure;
using checks::ScratchFolder;
using testing::HasSubstr;

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

std::string sha256(std::string_view bytes) { return bytes_of(engine::base::sha256_hex(bytes)); }

std::string little_endian(std::uint32_t word) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(word >> (8 * i)));
  return bytes;
}

// About 2^12 hashes: a header of which a byte was changed meets it once in so many.
constexpr std::uint32_t kBits = 0x1f0fffff;
constexpr std::uint32_t kTime = 1'700'000'000;  // 2023-11-14 22:13:20 UTC

std::string header_of(const std::string& root, std::uint32_t bits = kBits) {
  const std::string start = little_endian(4) + std::string(32, '\x55') + root +
                            little_endian(kTime) + little_endian(bits);
  for (std::uint32_t nonce = 0;; ++nonce) {
    const std::string header = start + little_endian(nonce);
    const std::string hash = sha256(sha256(header));
    // The two targets that are used here: below 2^244, and below 2^255.
    const auto top = static_cast<std::uint8_t>(hash[31]);
    const auto next = static_cast<std::uint8_t>(hash[30]);
    if (bits == kBits ? top == 0 && next < 0x0f : top < 0x7f) return header;
  }
}

const std::string kText = "what was registered";
const std::string kMagic =
    bytes_of("004f70656e54696d657374616d7073000050726f6f6600bf89e2e884e8929401");
const std::string kSha = "\x08";

std::string counted(const std::string& bytes) {
  EXPECT_LT(bytes.size(), 128U);
  return std::string(1, static_cast<char>(bytes.size())) + bytes;
}
std::string append(const std::string& bytes) { return "\xf0" + counted(bytes); }
std::string prefix(const std::string& bytes) { return "\xf1" + counted(bytes); }
std::string attestation(const char* kind, const std::string& payload) {
  return std::string(1, '\0') + bytes_of(kind) + counted(payload);
}
// Block 840,000 = 0x0cd140: three bytes of seven bits, lowest first.
std::string bitcoin(const std::string& height = "\xc0\xa2\x33") {
  return attestation("0588960d73d71901", height);
}
std::string pending(const std::string& uri = "https://a.example") {
  return attestation("83dfe30d2ef90c8e", counted(uri));
}
std::string proof_of(const std::string& timestamp) {
  return kMagic + kSha + sha256(kText) + timestamp;
}

// Digest, nonce, hash, then one level of a Merkle tree as Bitcoin hashes it.
const std::string kPath = append("nonce") + kSha + prefix(std::string(32, '\x77')) + kSha + kSha;
std::string root_of_path() {
  return sha256(sha256(std::string(32, '\x77') + sha256(sha256(kText) + "nonce")));
}

class OtsProof : public testing::Test {
 protected:
  measure::OtsTime verify(const std::string& proof, const std::string& header = "",
                          const std::string& text = kText) {
    checks::write_bytes(scratch_ / "a.ots", proof);
    if (header.empty()) {
      return measure::verify_ots_proof(scratch_ / "a.ots", engine::base::sha256_hex(text), "");
    }
    checks::write_bytes(scratch_ / "header", header);
    return measure::verify_ots_proof(scratch_ / "a.ots", engine::base::sha256_hex(text),
                                     scratch_ / "header");
  }
  // The message of the refusal; empty: there was none.
  std::string refusal(const std::string& proof, const std::string& header = "",
                      const std::string& text = kText) {
    try {
      verify(proof, header, text);
    } catch (const engine::base::Error& wrong) {
      return wrong.what();
    }
    return "";
  }
  const ScratchFolder scratch_;
};

std::string digits_of(const std::string& bytes, bool upper) {
  std::string text;
  for (const char c : bytes) {
    text += upper ? fmt::format("{:02X}", static_cast<std::uint8_t>(c))
                  : fmt::format("{:02x}", static_cast<std::uint8_t>(c));
  }
  return text;
}

TEST_F(OtsProof, LeadsToTheHeadersTime) {
  const std::string header = header_of(root_of_path());
  const std::string hash = sha256(sha256(header));
  const std::string shown = digits_of(std::string(hash.rbegin(), hash.rend()), false);
  for (const std::string& file :
       {header, digits_of(header, false), "\n " + digits_of(header, true) + "\r\n"}) {
    const measure::OtsTime time = verify(proof_of(kPath + bitcoin()), file);
    EXPECT_EQ(time.unix_s, kTime);
    EXPECT_THAT(time.words, HasSubstr("2023-11-14 22:13:20 UTC"));
    EXPECT_THAT(time.words, HasSubstr(shown));
    EXPECT_THAT(time.words, HasSubstr("about 2^12 hashes"));
    EXPECT_THAT(time.words, HasSubstr("Bitcoin block 840000"));
    EXPECT_THAT(time.words, HasSubstr("checked elsewhere"));
  }
  // The easiest target that there is: told as what it is worth.
  EXPECT_THAT(verify(proof_of(kPath + bitcoin()), header_of(root_of_path(), 0x207fffff)).words,
              HasSubstr("about 2^1 hashes"));
}

TEST_F(OtsProof, BranchesBeginWhereTheyWereOpened) {
  // Two branches, the second of two again: each acts on what stood where its 0xff was.
  const std::string fork = append("nonce") + kSha + "\xff" + append("x") + kSha + pending() +
                           "\xff" + prefix(std::string(32, '\x77')) + kSha + kSha + bitcoin() +
                           kSha + attestation("0102030405060708", "what is not known");
  EXPECT_EQ(verify(proof_of(fork), header_of(root_of_path())).unix_s, kTime);
  checks::write_bytes(scratch_ / "a.ots", proof_of(fork));
  const measure::OtsProof proof = measure::read_ots_proof(scratch_ / "a.ots");
  EXPECT_EQ(proof.pending, std::vector<std::string>{"https://a.example"});
  ASSERT_EQ(proof.blocks.size(), 1U);
  EXPECT_EQ(proof.blocks[0].merkle_root, root_of_path());
  EXPECT_EQ(proof.others, 1);
  // Any of several blocks may be the one that is given.
  const std::string two = "\xff" + kSha + bitcoin("\x07") + kPath + bitcoin();
  EXPECT_THAT(verify(proof_of(two), header_of(root_of_path())).words, HasSubstr("block 840000"));
  EXPECT_THAT(verify(proof_of(two), header_of(sha256(sha256(kText)))).words, HasSubstr("block 7;"));
}

TEST_F(OtsProof, OperationsDoWhatTheirNamesSay) {
  const auto made = [&](const std::string& operations) {
    checks::write_bytes(scratch_ / "a.ots", proof_of(operations + bitcoin()));
    return measure::read_ots_proof(scratch_ / "a.ots").blocks.at(0).merkle_root;
  };
  const std::string digest = sha256(kText);
  EXPECT_EQ(made(""), digest);
  EXPECT_EQ(made("\xf2"), std::string(digest.rbegin(), digest.rend()));
  EXPECT_EQ(made("\xf3"), digits_of(digest, false));
  EXPECT_EQ(made(append("ab") + prefix("cd")), "cd" + digest + "ab");
  // No operation makes a message shorter but a hash, so known answers are those of what this is:
  // `printf 'what was registered' | openssl dgst -sha256 -binary | openssl dgst -sha1` (-ripemd160).
  EXPECT_EQ(digits_of(made("\x02"), false), "37df4d786370c5cf4bc620b06648645a1c552b4e");
  EXPECT_EQ(digits_of(made("\x03"), false), "0ba8c964d9f5af9bac4fb4b9cbde55badfe9ba0b");
}

TEST_F(OtsProof, PendingIsTheOwnClockOnly) {
  const std::string header = header_of(root_of_path());
  for (const std::string& given : {std::string(), header}) {
    const measure::OtsTime time = verify(proof_of(kPath + pending()), given);
    EXPECT_EQ(time.unix_s, 0);
    EXPECT_THAT(time.words, testing::StartsWith("own clock only: "));
    EXPECT_THAT(time.words, HasSubstr("pending at https://a.example"));
  }
  EXPECT_THAT(verify(proof_of(attestation("0102030405060708", ""))).words,
              HasSubstr("no attestation of Bitcoin"));
  const measure::OtsTime without = verify(proof_of(kPath + bitcoin()));
  EXPECT_EQ(without.unix_s, 0);
  EXPECT_THAT(without.words, HasSubstr("own clock only"));
  EXPECT_THAT(without.words, HasSubstr("block 840000, whose header was not given"));
}

TEST(BlockHeader, BitcoinsFirst) {
  const ScratchFolder scratch;
  checks::write_bytes(scratch / "first",
                      "0100000000000000000000000000000000000000000000000000000000000000"
                      "000000003ba3edfd7a7b12b27ac72c3e67768f617fc81bc3888a51323a9fb8aa"
                      "4b1e5e4a29ab5f49ffff001d1dac2b7c\n");
  const measure::BlockHeader header = measure::read_block_header(scratch / "first");
  EXPECT_EQ(header.hash, "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f");
  EXPECT_EQ(header.unix_s, 1'231'006'505);  // 2009-01-03 18:15:05
  EXPECT_EQ(header.work_log2, 32);
}

TEST_F(OtsProof, WhatIsWrongIsSaidWithItsPlace) {
  const std::string header = header_of(root_of_path());
  const std::pair<std::string, const char*> wrong[] = {
      {"", "is empty"},
      {"x", "offset 0: does not begin as an OpenTimestamps proof"},
      {kMagic.substr(0, 31) + "\x02" + kSha + sha256(kText) + bitcoin(), "offset 31: version 2"},
      {kMagic + "\x02" + std::string(20, 'x') + bitcoin(),
       "offset 32: the file's digest is of kind"},
      {proof_of(std::string("\xf0\x00", 2) + bitcoin()), "offset 66: what is appended has 0 bytes"},
      {proof_of("\xf1\x81\x20" + std::string(4097, 'x') + bitcoin()), "has 4097 bytes, 1 ... 4096"},
      {proof_of("\xf0\x80\x20" + std::string(4096, 'x') + bitcoin()),
       "4128 bytes, 4096 are allowed"},
      {proof_of(std::string(8, '\xf3') + bitcoin()), "offset 72: the message has 8192 bytes"},
      {proof_of(std::string("\xf0\x81\x00x", 4) + bitcoin()), "longer than need be"},
      {proof_of("\xf0" + std::string(9, '\xff') + "\x01"), "more than 63 bits"},
      {proof_of("\x04" + bitcoin()), "offset 65: 0x04 is no operation"},
      {proof_of("\xff\xff" + bitcoin() + bitcoin()), "offset 66: 0xff is no operation"},
      {proof_of("\xff" + bitcoin()), "an operation has 1 bytes, 0 are left"},
      {proof_of(bitcoin() + "x"), "offset 78: 1 bytes more than the proof has"},
      {proof_of(bitcoin("\x01\x02")), "1 bytes more than the attestation has"},
      {proof_of(bitcoin("")), "the height of a block has 1 bytes, 0 are left"},
      {proof_of(pending("https://a\nb")), "other than letters"},
      {proof_of(pending("")), "the address of a calendar has 0 bytes"},
      {proof_of(std::string(10'001, '\x08') + bitcoin()), "more than 10000 operations"},
      {std::string(1 << 20, 'x') + "x", "more than the 1048576 expected"}};
  for (const auto& [proof, said] : wrong) {
    EXPECT_THAT(refusal(proof, header), HasSubstr(said));
    EXPECT_THAT(refusal(proof, header), HasSubstr("a.ots"));
  }
  std::string many;
  for (int i = 0; i < 257; ++i) many += "\xff" + kSha;
  EXPECT_THAT(refusal(proof_of(many)), HasSubstr("more than 256 branches at a time"));
  many.clear();
  for (int i = 0; i < 1000; ++i) many += "\xff" + bitcoin();
  EXPECT_THAT(refusal(proof_of(many + bitcoin())), HasSubstr("more than 1000 attestations"));
  EXPECT_THAT(refusal(proof_of(kPath + bitcoin()), header, "another text"),
              HasSubstr("is of a file of SHA-256"));
}

TEST_F(OtsProof, WhatIsNoHeaderIsRefused) {
  const std::string proof = proof_of(kPath + bitcoin()), header = header_of(root_of_path());
  const auto with_bits = [&](std::uint32_t bits) {
    return header.substr(0, 72) + little_endian(bits) + header.substr(76);
  };
  const std::pair<std::string, const char*> wrong[] = {
      {header + std::string(4096, ' '), "more than the 4096 expected"},
      {header.substr(1), "of 79 bytes"},
      {digits_of(header, false) + "0", "of 161 bytes"},
      {"g" + digits_of(header, false).substr(1), "offset 0: byte 0x67 is no hexadecimal digit"},
      {with_bits(0x1e0fffff), "is above the target"},
      {with_bits(0), "is no target"},
      {with_bits(0x01003456), "is no target"},  // all of it is below one
      {with_bits(0x1f8fffff), "is no target"},  // a sign
      {with_bits(0x22010000), "is no target"},  // above 2^256
      {with_bits(0xff7fffff), "is no target"},
      {header_of(sha256("another root")), "offset 109: block 840000 has Merkle root"}};
  for (const auto& [given, said] : wrong) EXPECT_THAT(refusal(proof, given), HasSubstr(said));
  // The bytes of the root backwards, as block explorers write it.
  const std::string root = root_of_path();
  EXPECT_THAT(refusal(proof, header_of(std::string(root.rbegin(), root.rend()))),
              HasSubstr("has Merkle root"));
}

// One that nobody writes to would be waited for.
TEST_F(OtsProof, APipeIsNoFile) {
  ASSERT_EQ(::mkfifo((scratch_ / "pipe").c_str(), 0600), 0);
  for (const bool proof : {true, false}) {
    std::string why;
    try {
      if (proof) {
        measure::read_ots_proof(scratch_ / "pipe");
      } else {
        measure::read_block_header(scratch_ / "pipe");
      }
    } catch (const engine::base::Error& wrong) {
      why = wrong.what();
    }
    EXPECT_THAT(why, HasSubstr("pipe"));
  }
}

TEST_F(OtsProof, PlantedFaults) {
  const std::string proof = proof_of(kPath + bitcoin()), header = header_of(root_of_path());
  ASSERT_EQ(refusal(proof, header), "");
  // Every byte of the proof, in each of two ways; but the height is the proof's own word, which the
  // report calls so.
  const std::size_t height = proof.size() - 3;
  for (std::size_t i = 0; i < height; ++i) {
    for (const char flip : {'\x01', '\x80'}) {
      std::string changed = proof;
      changed[i] ^= flip;
      // Of another kind, an attestation proves nothing.
      const bool kind = i >= height - 9 && i < height - 1;
      if (kind) {
        EXPECT_EQ(verify(changed, header).unix_s, 0) << i;
      } else {
        EXPECT_NE(refusal(changed, header), "") << i;
      }
    }
  }
  for (std::size_t i = 0; i < header.size(); ++i) {
    std::string changed = header;
    changed[i] ^= 1;
    EXPECT_NE(refusal(proof, changed), "") << i;
  }
  for (std::size_t size = 0; size < proof.size(); ++size) {
    EXPECT_NE(refusal(proof.substr(0, size), header), "") << size;
  }
  for (std::size_t size = 0; size < header.size(); ++size) {
    EXPECT_NE(refusal(proof, size == 0 ? "\n" : header.substr(0, size)), "") << size;
  }
}

}  // namespace
