#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace engine::measure {

struct ProvenTime {
  std::int64_t unix_s = 0;  // no later than this did the bytes exist
  std::string text;         // the same as utc_text
};

// "2026-01-31 12:00:00 UTC"
std::string utc_text(std::int64_t unix_s);

// Verifies an RFC 3161 answer (`openssl ts -reply`, any public authority's .tsr) offline: it is of
// these bytes' SHA-256, and signed by a certificate for time stamping that leads to one of
// `authorities` (PEM), all valid at the time that it states. Revocation is not looked up.
// Errors    Error naming the file and the reason
ProvenTime verify_time_proof(const std::filesystem::path& answer, const std::string& sha256_hex,
                             const std::filesystem::path& authorities);

}  // namespace engine::measure
