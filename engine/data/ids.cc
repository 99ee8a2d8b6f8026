#include "engine/data/ids.h"

#include <charconv>
#include <fstream>
#include <sstream>

#include "engine/base/error.h"

namespace engine::data {

std::vector<std::int32_t> parse_ids(std::string_view text, std::int64_t vocabulary,
                                    const std::string& where) {
  constexpr std::string_view kBetween = ", \t\r\n";
  std::vector<std::int32_t> ids;
  for (std::size_t begin = text.find_first_not_of(kBetween); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    std::int64_t id = 0;
    const auto [stopped, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stopped != word.data() + word.size()) {
      throw base::Error("{}: id {} at byte {} is \"{}\": not an integer", where, ids.size(), begin,
                        word.substr(0, 40));
    }
    if (id < 0 || id >= vocabulary) {
      throw base::Error("{}: id {} at byte {} is {}: the vocabulary is 0 ... {}", where, ids.size(),
                        begin, id, vocabulary - 1);
    }
    ids.push_back(static_cast<std::int32_t>(id));
    begin = text.find_first_not_of(kBetween, end);
  }
  return ids;
}

std::vector<std::int32_t> read_ids(const std::filesystem::path& path, std::int64_t vocabulary) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || file.bad()) throw base::Error("{}: cannot be read", path.string());
  return parse_ids(text.str(), vocabulary, path.string());
}

}  // namespace engine::data
