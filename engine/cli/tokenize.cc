#include "engine/cli/tokenize.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "engine/base/error.h"
#include "engine/cli/common.h"
#include "engine/data/ids.h"
#include "engine/data/tokenizer.h"
#include "engine/model/config.h"

namespace engine::cli {

namespace {

struct Arguments {
  std::string model;
  std::string file = "-";
  bool markup = false;
  bool decode = false;
  MachineOptions machine;
};

// A text is one sequence: held whole, as its ids are.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
// An id, and its seven characters and a comma.
constexpr std::uint64_t kBytesAnId = 12;

std::string read_all(std::FILE* file, const std::string& name, base::Charge& held) {
  std::string text;
  char chunk[1 << 16];
  while (const std::size_t got = std::fread(chunk, 1, sizeof(chunk), file)) {
    held.grow(got);
    text.append(chunk, got);
    if (text.size() > kMostBytes) {
      throw base::Error("{}: more than {} bytes; cut it into several texts", name, kMostBytes);
    }
  }
  if (std::ferror(file) != 0) {
    throw base::Error("{}: cannot be read: {}", name, std::strerror(errno));
  }
  return text;
}

std::string read_input(const std::string& name, base::Charge& held) {
  if (name == "-") return read_all(stdin, "standard input", held);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(name.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) throw base::Error("{}: cannot be opened: {}", name, std::strerror(errno));
  return read_all(file.get(), name, held);
}

void write_all(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw base::Error("standard output: not all of {} bytes could be written: {}", text.size(),
                      std::strerror(errno));
  }
}

void tokenize(const Arguments& given) {
  base::RamBudget budget(ram_bytes(given.machine));
  reserve_process(budget);
  const data::Tokenizer tokenizer(given.model, model::load_config(given.model).vocabulary);
  const std::string name = given.file == "-" ? "standard input" : given.file;
  base::Charge held(budget, "text");
  const std::string input = read_input(given.file, held);
  if (given.decode) {
    write_all(tokenizer.decode(data::parse_ids(input, tokenizer.vocabulary(), name)));
    return;
  }
  const auto ids =
      given.markup ? tokenizer.encode_markup(input, name) : tokenizer.encode(input, name);
  held.grow(ids.size() * kBytesAnId);
  std::string out;
  for (const std::int32_t id : ids) out += fmt::format("{}{}", out.empty() ? "" : ",", id);
  write_all(out + '\n');
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  auto given = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("tokenize", "text to token ids, or back");
  command->add_option("FILE", given->file, "text, or ids with --decode (default: standard input)")
      ->check(refuse_empty);
  command->add_option("--model", given->model, "checkpoint folder with its tokenizer's files")
      ->required();
  CLI::Option* markup = command->add_flag("--markup", given->markup,
                                          "names of control tokens in the text become their ids");
  command->add_flag("--decode", given->decode, "ids in, the bytes of their text out")
      ->excludes(markup);
  add_ram_option(*command, given->machine);
  command->callback([given] { tokenize(*given); });
}

}  // namespace engine::cli
