#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/store/finding.h"

namespace checks {

inline std::string length_field(std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, bytes.size());
  return bytes;
}

// The file of this header with so many bytes of data, no two neighbours alike.
inline std::string safetensors(const std::string& header, std::size_t data_bytes) {
  std::string bytes = length_field(header.size()) + header;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(1 + i % 251);
  return bytes;
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "a fault that changes nothing: " << from;
  EXPECT_EQ(text.find(from, at + 1), std::string::npos) << "a fault in two places: " << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// Every finding as it is printed, one a line.
inline std::string described(const std::vector<engine::store::Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) text += describe(finding) + "\n";
  return text;
}

// The message of the Error that `call` throws; empty if it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const engine::base::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace checks
