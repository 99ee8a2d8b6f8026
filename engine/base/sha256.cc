#include "engine/base/sha256.h"

#include <openssl/evp.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/hex.h"

namespace engine::base {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    throw Error("SHA-256 is not available in this OpenSSL");
  }
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text))); }

std::array<std::uint8_t, 32> Sha256::digest() {
  std::array<std::uint8_t, 32> result{};
  EVP_DigestFinal_ex(state_->context, result.data(), nullptr);
  return result;
}

std::string Sha256::hex() {
  const std::array<std::uint8_t, 32> bytes = digest();
  return to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

std::string sha256_hex_of_file(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  Sha256 hash;
  std::vector<char> block(1 << 20);
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    hash.update(std::string_view(block.data(), static_cast<std::size_t>(file.gcount())));
  }
  if (file.bad()) throw Error("{}: cannot be read: {}", path.string(), std::strerror(errno));
  return hash.hex();
}

}  // namespace engine::base
