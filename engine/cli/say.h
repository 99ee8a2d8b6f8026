#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace engine::cli {

// Everything that is printed for people goes through say(): names of files, fields of JSON and metadata, ids
// files and arguments are text of others, and a terminal obeys some of it.

// Text of others on a terminal: what could steer it (the controls C0, DEL and C1, but for line end and tab),
// and what is no UTF-8, is shown as its bytes, \xNN.
std::string harmless(std::string_view text);

template <class... Values>
void say(std::FILE* to, fmt::format_string<Values...> text, Values&&... values) {
  fmt::print(to, "{}", harmless(fmt::format(text, std::forward<Values>(values)...)));
}

template <class... Values>
void say(fmt::format_string<Values...> text, Values&&... values) {
  say(stdout, text, std::forward<Values>(values)...);
}

// JSON for programs, the same JSON: DEL and C1, which its strings may hold as they are, become \u00NN. C0 they
// hold escaped already.
void say_json(std::string_view json);

}  // namespace engine::cli
