#include "engine/measure/ots_proof.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/hex.h"
#include "engine/measure/block_header.h"
#include "engine/measure/time_proof.h"
#include "engine/store/file.h"

namespace engine::measure {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic =
    "\x00OpenTimestamps\x00\x00Proof\x00\xbf\x89\xe2\xe8\x84\xe8\x92\x94"sv;
constexpr std::string_view kPending = "\x83\xdf\xe3\x0d\x2e\xf9\x0c\x8e"sv;
constexpr std::string_view kBitcoin = "\x05\x88\x96\x0d\x73\xd7\x19\x01"sv;
constexpr std::size_t kMostFile = 1 << 20, kMostMessage = 4096, kMostPayload = 8192,
                      kMostUri = 1000;
constexpr std::size_t kMostOperations = 10'000, kMostBranches = 256, kMostAttestations = 1000;
constexpr std::uint8_t kAttestation = 0x00, kSha256 = 0x08, kAppend = 0xf0, kPrefix = 0xf1,
                       kReverse = 0xf2, kHexlify = 0xf3, kBranch = 0xff;

// Bytes one after another, each error with its offset.
class Bytes {
 public:
  Bytes(std::string_view bytes, std::string file) : bytes_(bytes), file_(std::move(file)) {}

  // The last `count` bytes that were taken, by themselves.
  Bytes last(std::size_t count) const {
    Bytes inside(bytes_.substr(0, at_), file_);
    inside.at_ = at_ - count;
    return inside;
  }

  template <class... Args>
  [[noreturn]] void refuse(std::size_t offset, fmt::format_string<Args...> what,
                           Args&&... args) const {
    throw base::Error("{}: offset {}: {}", file_, offset,
                      fmt::format(what, std::forward<Args>(args)...));
  }
  std::size_t at() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }

  std::string_view take(std::size_t count, std::string_view what) {
    if (count > left()) refuse(at_, "{} has {} bytes, {} are left", what, count, left());
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  std::uint8_t byte(std::string_view what) { return static_cast<std::uint8_t>(take(1, what)[0]); }

  std::uint64_t number(std::string_view what) {
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const std::uint8_t next = byte(what);
      if (shift == 63) refuse(begin, "{} has more than 63 bits", what);
      value |= std::uint64_t{next & 0x7fU} << shift;
      if (next >= 0x80) continue;
      // One number, one spelling: otherwise two files would be one proof.
      if (next == 0 && shift > 0) refuse(begin, "{} is longer than need be", what);
      return value;
    }
  }
  std::string_view counted(std::size_t least, std::size_t most, std::string_view what) {
    const std::size_t begin = at_;
    const std::uint64_t count = number(what);
    if (count < least || count > most) {
      refuse(begin, "{} has {} bytes, {} ... {} are allowed", what, count, least, most);
    }
    return take(count, what);
  }

 private:
  std::string_view bytes_;
  std::string file_;
  std::size_t at_ = 0;
};

// Empty: this OpenSSL does not have it (Keccak-256 only from 3.2 on).
std::string hashed(const char* name, std::string_view message) {
  const std::unique_ptr<EVP_MD, decltype(&EVP_MD_free)> kind(EVP_MD_fetch(nullptr, name, nullptr),
                                                             EVP_MD_free);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (!kind ||
      EVP_Digest(message.data(), message.size(), digest.data(), &size, kind.get(), nullptr) != 1) {
    return {};
  }
  return {digest.begin(), digest.begin() + size};
}

std::string hashed(std::uint8_t tag, std::string_view message, std::size_t offset,
                   const Bytes& bytes) {
  const std::pair<std::uint8_t, const char*> kinds[] = {
      {0x02, "SHA1"}, {0x03, "RIPEMD160"}, {kSha256, "SHA2-256"}, {0x67, "KECCAK-256"}};
  for (const auto& [known, name] : kinds) {
    if (tag != known) continue;
    std::string digest = hashed(name, message);
    if (digest.empty()) bytes.refuse(offset, "this OpenSSL has no {}", name);
    return digest;
  }
  bytes.refuse(offset, "0x{:02x} is no operation", tag);
}

std::string applied(std::uint8_t tag, const std::string& message, std::size_t offset,
                    Bytes& bytes) {
  std::string result;
  if (tag == kAppend) {
    result = message + std::string(bytes.counted(1, kMostMessage, "what is appended"));
  } else if (tag == kPrefix) {
    result = std::string(bytes.counted(1, kMostMessage, "what is put before")) + message;
  } else if (tag == kReverse) {
    result.assign(message.rbegin(), message.rend());
  } else if (tag == kHexlify) {
    result = base::to_hex(message);
  } else {
    return hashed(tag, message, offset, bytes);
  }
  if (result.size() > kMostMessage) {
    bytes.refuse(offset, "the message has {} bytes, {} are allowed", result.size(), kMostMessage);
  }
  return result;
}

void read_attestation(Bytes& bytes, const std::string& message, OtsProof& proof) {
  const std::size_t offset = bytes.at() - 1;
  const std::string_view kind = bytes.take(8, "the kind of an attestation");
  const std::string_view payload = bytes.counted(0, kMostPayload, "the payload of an attestation");
  if (kind != kPending && kind != kBitcoin) {
    ++proof.others;
    return;
  }
  Bytes inside = bytes.last(payload.size());
  if (kind == kBitcoin) {
    proof.blocks.push_back({inside.number("the height of a block"), message, offset});
  } else {
    const std::string_view uri = inside.counted(1, kMostUri, "the address of a calendar");
    // It is printed and written into reports.
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             "-._/:"sv.find(c) != std::string_view::npos;
    };
    if (!std::ranges::all_of(uri, allowed)) {
      bytes.refuse(offset, "the address of a calendar has other than letters, digits and -._/:");
    }
    proof.pending.emplace_back(uri);
  }
  if (inside.left() > 0) {
    inside.refuse(inside.at(), "{} bytes more than the attestation has", inside.left());
  }
}

void read_timestamp(Bytes& bytes, std::string message, OtsProof& proof) {
  std::vector<std::string> branches;  // what the items after an attestation act on
  std::size_t operations = 0, attestations = 0;
  for (;;) {
    std::size_t offset = bytes.at();
    std::uint8_t tag = bytes.byte("an operation");
    if (tag == kBranch) {
      if (branches.size() == kMostBranches) {
        bytes.refuse(offset, "more than {} branches at a time", kMostBranches);
      }
      branches.push_back(message);
      offset = bytes.at();
      tag = bytes.byte("an operation");
    }
    if (tag != kAttestation) {
      if (++operations > kMostOperations) {
        bytes.refuse(offset, "more than {} operations", kMostOperations);
      }
      message = applied(tag, message, offset, bytes);
      continue;
    }
    if (++attestations > kMostAttestations) {
      bytes.refuse(offset, "more than {} attestations", kMostAttestations);
    }
    read_attestation(bytes, message, proof);
    if (branches.empty()) return;
    message = std::move(branches.back());
    branches.pop_back();
  }
}

}  // namespace

OtsProof read_ots_proof(const std::filesystem::path& file) {
  const std::string text = store::read_text(file, kMostFile);
  Bytes bytes(text, file.string());
  if (!text.starts_with(kMagic)) bytes.refuse(0, "does not begin as an OpenTimestamps proof");
  bytes.take(kMagic.size(), "the magic");
  std::size_t offset = bytes.at();
  if (const std::uint64_t version = bytes.number("the version"); version != 1) {
    bytes.refuse(offset, "version {}, only 1 is known", version);
  }
  offset = bytes.at();
  if (const std::uint8_t tag = bytes.byte("the hash of the file"); tag != kSha256) {
    bytes.refuse(offset,
                 "the file's digest is of kind 0x{:02x}, only 0x{:02x} (SHA-256) is compared", tag,
                 kSha256);
  }
  const std::string digest(bytes.take(32, "the file's digest"));
  OtsProof proof;
  proof.sha256_hex = base::to_hex(digest);
  read_timestamp(bytes, digest, proof);
  if (bytes.left() > 0) bytes.refuse(bytes.at(), "{} bytes more than the proof has", bytes.left());
  return proof;
}

OtsTime verify_ots_proof(const std::filesystem::path& file, const std::string& sha256_hex,
                         const std::filesystem::path& header_file) {
  const OtsProof proof = read_ots_proof(file);
  if (proof.sha256_hex != sha256_hex) {
    throw base::Error("{}: is of a file of SHA-256 {}, this one has {}", file.string(),
                      proof.sha256_hex, sha256_hex);
  }
  if (proof.blocks.empty()) {
    return {0, fmt::format("own clock only: the OpenTimestamps proof {}",
                           proof.pending.empty() ? "has no attestation of Bitcoin"
                                                 : "is pending at " + proof.pending.front())};
  }
  if (header_file.empty()) {
    return {0, fmt::format("own clock only: the OpenTimestamps proof leads to Bitcoin block {}, "
                           "whose header was not given",
                           proof.blocks.front().height)};
  }
  const BlockHeader header = read_block_header(header_file);
  const std::string_view root(reinterpret_cast<const char*>(header.merkle_root.data()),
                              header.merkle_root.size());
  const auto found = std::ranges::find(proof.blocks, root, &OtsProof::Block::merkle_root);
  if (found == proof.blocks.end()) {
    const OtsProof::Block& first = proof.blocks.front();
    throw base::Error("{}: offset {}: block {} has Merkle root {}, {} has {}", file.string(),
                      first.offset, first.height, base::to_hex(first.merkle_root.substr(0, 32)),
                      header_file.string(), base::to_hex(root));
  }
  return {header.unix_s,
          fmt::format("OpenTimestamps: existed when block {} was made, at {} by that block's own "
                      "statement; its header took about 2^{} hashes and the proof calls it Bitcoin "
                      "block {}; this rests on its being in Bitcoin's chain, which is checked "
                      "elsewhere, by its hash",
                      header.hash, utc_text(header.unix_s), header.work_log2, found->height)};
}

}  // namespace engine::measure
