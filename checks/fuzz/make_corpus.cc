// make_corpus FOLDER: one file a wrong field, the contents of fixtures/malformed (fixtures/README.md).

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <fstream>

#include "checks/fuzz/corpus.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  try {
    for (const checks::CorpusFile& file : checks::corpus()) {
      const auto folder = std::filesystem::path(argv[1]) / file.target;
      std::filesystem::create_directories(folder);
      std::ofstream out(folder / file.name, std::ios::binary | std::ios::trunc);
      out << file.bytes;
      if (!out.flush()) throw std::runtime_error((folder / file.name).string() + ": not written");
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_corpus: {}\n", error.what());
    return 1;
  }
  return 0;
}
