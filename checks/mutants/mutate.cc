// Usage: mutate TABLE ROOT list                  ids and checks, one row a line, tab between
//        mutate TABLE ROOT apply ID              writes the fault into ROOT
//        mutate TABLE ROOT revert ID             takes it out again
// The table's form is told in its head. A row is refused unless its text stands in its file exactly once:
// a fault that was not planted would count as one that nothing noticed, or worse, as one that was caught.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Mutant {
  std::string id, why, file, check, text, fault;
};

[[noreturn]] void refuse(const std::string& message) { throw std::runtime_error(message); }

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse(fmt::format("{}: cannot be read", path.string()));
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string after(const std::string& line, const std::string& key) {
  return line.substr(std::min(line.size(), line.find_first_not_of(' ', key.size())));
}

// Lines up to the one that is `end`, without the last line's break.
std::string block(std::istream& in, const std::string& end, const std::string& id) {
  std::string all, line;
  while (std::getline(in, line)) {
    if (line == end) {
      if (!all.empty()) all.pop_back();
      return all;
    }
    all += line + '\n';
  }
  refuse(fmt::format("[{}]: no line {}", id, end));
}

std::vector<Mutant> read_table(const fs::path& path) {
  std::ifstream in(path);
  if (!in) refuse(fmt::format("{}: cannot be read", path.string()));
  std::vector<Mutant> table;
  std::set<std::string> ids;
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      table.emplace_back();
      table.back().id = line.substr(1, line.find(']') - 1);
      if (!ids.insert(table.back().id).second) refuse(fmt::format("{} stands twice", line));
      continue;
    }
    if (table.empty()) refuse(fmt::format("{}: \"{}\" before the first [id]", path.string(), line));
    Mutant& row = table.back();
    if (line.starts_with("why ")) {
      row.why = after(line, "why");
    } else if (line.starts_with("file ")) {
      row.file = after(line, "file");
    } else if (line.starts_with("check ")) {
      row.check = after(line, "check");
    } else if (line == "<<<") {
      row.text = block(in, "===", row.id);
      row.fault = block(in, ">>>", row.id);
    } else {
      refuse(fmt::format("[{}]: \"{}\" is no line of this table", row.id, line));
    }
  }
  for (const Mutant& row : table) {
    if (row.why.empty() || row.file.empty() || row.check.empty() || row.text.empty()) {
      refuse(fmt::format("[{}]: wants why, file, check and a text", row.id));
    }
    if (row.text == row.fault) refuse(fmt::format("[{}]: changes nothing", row.id));
  }
  return table;
}

// Where the only occurrence of `wanted` begins.
std::size_t only_place(const std::string& content, const std::string& wanted, const Mutant& row) {
  const std::size_t at = content.find(wanted);
  if (at == std::string::npos) refuse(fmt::format("[{}]: its text is not in {}", row.id, row.file));
  if (content.find(wanted, at + 1) != std::string::npos) {
    refuse(fmt::format("[{}]: its text is in {} more than once", row.id, row.file));
  }
  return at;
}

void write(const fs::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << content;
  if (!out.flush()) refuse(fmt::format("{}: cannot be written", path.string()));
}

// The file as it was stays beside it: a fault may be empty, or stand there more than once, so that it
// could not be found again.
fs::path kept(const fs::path& root, const Mutant& row) { return root / (row.file + ".unchanged"); }

void apply(const fs::path& root, const Mutant& row) {
  std::string content = read(root / row.file);
  const std::size_t at = only_place(content, row.text, row);
  write(kept(root, row), content);
  write(root / row.file, content.replace(at, row.text.size(), row.fault));
}

// Written anew, not renamed: with its old time it would look older than what was built of the fault.
void revert(const fs::path& root, const Mutant& row) {
  write(root / row.file, read(kept(root, row)));
  fs::remove(kept(root, row));
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) refuse("usage: mutate TABLE ROOT list | apply ID | revert ID");
  const std::vector<Mutant> table = read_table(arguments[0]);
  const fs::path root = arguments[1];
  if (arguments[2] == "list") {
    for (const Mutant& row : table) {
      only_place(read(root / row.file), row.text, row);
      fmt::print("{}\t{}\n", row.id, row.check);
    }
    return 0;
  }
  if (arguments.size() != 4) refuse("apply and revert want one ID");
  for (const Mutant& row : table) {
    if (row.id != arguments[3]) continue;
    if (arguments[2] == "apply") {
      apply(root, row);
    } else if (arguments[2] == "revert") {
      revert(root, row);
    } else {
      refuse(fmt::format("\"{}\" is none of list, apply, revert", arguments[2]));
    }
    return 0;
  }
  refuse(fmt::format("there is no [{}]", arguments[3]));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "mutate: {}\n", error.what());
    return 1;
  }
}
