// Usage: check_parity --pattern OUT    writes Kimi K3's pattern to OUT/released.pattern
//        check_parity OUT              compares with what checks/tokenizer_parity.mjs wrote there
// The tokenizer's parts on the vocabularies of others: the same ids for every text, and other ids
// for one text at least when a fault is planted.
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checks/scratch_folder.h"
#include "engine/data/bpe.h"
#include "engine/data/pretokenizer.h"
#include "engine/data/ranks.h"

namespace {

using engine::data::encode_piece;
using engine::data::Pretokenizer;
using engine::data::Ranks;
using Ids = std::vector<std::int32_t>;

struct Case {
  std::string text;
  Ids ids;
};

std::vector<Case> read_cases(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    cases.push_back({json.at("text"), json.at("ids")});
  }
  return cases;
}

Ids encode(const Ranks& ranks, const Pretokenizer& pretokenizer, const std::string& text) {
  Ids ids;
  pretokenizer.split(text, [&](std::string_view piece) { encode_piece(ranks, piece, ids); });
  return ids;
}

// Texts on which the two differ; the first is shown.
std::size_t differing(const Ranks& ranks, const Pretokenizer& pretokenizer,
                      const std::vector<Case>& cases, bool show) {
  std::size_t count = 0;
  for (const Case& wanted : cases) {
    if (encode(ranks, pretokenizer, wanted.text) == wanted.ids) continue;
    if (show && count == 0) {
      fmt::print("differs: {}\n", nlohmann::json(wanted.text.substr(0, 200)).dump());
    }
    ++count;
  }
  return count;
}

// The ranks without one token: its bytes become some that no text here has.
std::string without_token(const std::string& ranks, const std::string& token) {
  std::string text = ranks;
  const std::size_t at = text.find('\n' + token + ' ');
  if (at == std::string::npos) return text;
  return text.replace(at + 1, token.size(), "/////////////////////w==");
}

struct Counts {
  int passed = 0, failed = 0;
  void verdict(bool holds, const std::string& what) {
    fmt::print("{}  {}\n", holds ? "holds         " : "DOES NOT HOLD ", what);
    ++(holds ? passed : failed);
  }
};

void compare(const std::filesystem::path& folder, const std::string& name, Counts& counts) {
  const std::string text = checks::read_bytes(folder / (name + ".tiktoken"));
  const std::string pattern = checks::read_bytes(folder / (name + ".pattern"));
  const std::vector<Case> cases = read_cases(folder / (name + ".jsonl"));
  const Ranks ranks(text, name);
  const Pretokenizer pretokenizer(pattern);
  std::size_t ids = 0;
  for (const Case& one : cases) ids += one.ids.size();
  const std::size_t wrong = differing(ranks, pretokenizer, cases, true);
  counts.verdict(
      wrong == 0 && cases.size() >= 2000,
      fmt::format("{}: {} texts, {} ids, {} texts differ", name, cases.size(), ids, wrong));

  const auto caught = [&](const std::string& what, const Ranks& other, const Pretokenizer& cut) {
    const std::size_t seen = differing(other, cut, cases, false);
    counts.verdict(seen > 0, fmt::format("{}: {}: {} texts differ", name, what, seen));
  };
  caught("planted: without the token \" the\"", Ranks(without_token(text, "IHRoZQ=="), name),
         pretokenizer);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{R"(\p{N}{1,3})", R"(\p{N}{1,4})"},
                                                        {R"(|\s+(?!\S))", ""},
                                                        {R"((?i:)", "(?:"},
                                                        {R"([^\r\n\p{L}\p{N}]?)", R"( ?)"},
                                                        {R"([\p{Han}]+|)", ""},
                                                        {R"(&&[^\p{Han}])", ""}}) {
    std::string changed = pattern;
    const std::size_t at = changed.find(from);
    if (at == std::string::npos) continue;
    // Whatever the changed pattern leaves over is taken byte by byte, so that it has an encoding.
    changed.replace(at, from.size(), to);
    caught(fmt::format("planted: {} for {}", to.empty() ? "nothing" : to, from), ranks,
           Pretokenizer(changed + R"(|[\x{0}-\x{10ffff}])"));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--pattern") == 0) {
    checks::write_bytes(std::filesystem::path(argv[2]) / "released.pattern",
                        engine::data::kReleasedPattern);
    return 0;
  }
  if (argc != 2) return 2;
  Counts counts;
  for (const char* name :
       {"cl100k_base", "o200k_base", "released", "cl100k_base_js", "o200k_base_js"}) {
    compare(argv[1], name, counts);
  }
  fmt::print("{} passed, {} failed, 0 skipped\n", counts.passed, counts.failed);
  return counts.failed == 0 ? 0 : 1;
}
