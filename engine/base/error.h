#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace engine::base {

// The outside world is wrong: a file, a header, a setting, a budget, a disk. The message names the
// file, the place in it and the two values that disagree. Thrown anywhere, caught once, in cli.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  template <class... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

}  // namespace engine::base
