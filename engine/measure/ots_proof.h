#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace engine::measure {

// What an OpenTimestamps proof (.ots) claims of one file.
struct OtsProof {
  struct Block {
    std::uint64_t height = 0;  // as the proof says; no header holds it
    std::string merkle_root;   // what the operations made of the digest: any number of bytes
    std::size_t offset = 0;    // of the attestation in the file
  };
  std::string sha256_hex;            // of the file that was stamped
  std::vector<Block> blocks;         // attestations of Bitcoin
  std::vector<std::string> pending;  // calendars that promised one
  std::int64_t others = 0;           // attestations of a kind that is not known here, unread
};

// Layout: the magic, version 1, a hash operation (SHA-256), the digest, and a timestamp: items that
// each act on what the ones before them made of the digest. An item is an operation (tag, and for
// append and prefix the bytes), or an attestation (0x00, 8 bytes of kind, payload), which ends its
// branch. 0xff before an item: another branch begins where this one did. Numbers are LEB128, no
// longer than need be.
//
// Everything is read and nothing skipped over: 1 MiB of file, 4096 bytes of message, 10,000
// operations, 256 branches at a time, 1000 attestations at most.
//
// Errors    Error naming the file, the offset and what stands there
// Source    the reader of python-opentimestamps: opentimestamps/core/{timestamp,op,notary}.py
OtsProof read_ots_proof(const std::filesystem::path& file);

// A time that a proof leads to, or why to none.
struct OtsTime {
  std::int64_t unix_s = 0;  // the block's; 0: nothing is proven, and nothing refuted
  std::string words;        // what a report says of it, and what that rests on
};

// The proof is of these bytes' SHA-256, and one of its attestations is the Merkle root in `header`
// (block_header.h). That the header is part of Bitcoin's chain is not looked up: the words say so, and
// name the block's hash. Without a header, or of a proof that is only pending, they say "own clock
// only".
//
// Errors    Error naming file and the values that disagree: a proof that cannot be read or is of
//           another file, a header that cannot be read or that no attestation leads to
OtsTime verify_ots_proof(const std::filesystem::path& proof, const std::string& sha256_hex,
                         const std::filesystem::path& header);

}  // namespace engine::measure
