#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace engine::base {

// Incremental SHA-256 (OpenSSL).
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  template <class T>
  void update_values(std::span<const T> values) {
    update(std::as_bytes(values));
  }
  // The digest of all that was given; the object is spent.
  std::array<std::uint8_t, 32> digest();
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view text);
// Errors    Error if the file cannot be read
std::string sha256_hex_of_file(const std::filesystem::path& path);

}  // namespace engine::base
