// SHA-256 of a text, in lower-case hexadecimal, by OpenSSL.
#pragma once

#include <fmt/format.h>
#include <openssl/evp.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace oracle {

inline std::string sha256(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &bytes, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("SHA-256 failed");
  }
  std::string hex;
  for (unsigned int j = 0; j < bytes; ++j) hex += fmt::format("{:02x}", digest[j]);
  return hex;
}

}  // namespace oracle
