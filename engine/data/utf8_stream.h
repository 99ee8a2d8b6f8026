#pragma once

#include <string>
#include <string_view>

namespace engine::data {

// Text that arrives in pieces which may end inside a character, as tokens do: gives on whole
// characters only.
class Utf8Stream {
 public:
  // What is whole by now. A byte that can belong to no character becomes U+FFFD.
  std::string push(std::string_view bytes);
  // What is left and never became whole, a U+FFFD for every byte.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace engine::data
