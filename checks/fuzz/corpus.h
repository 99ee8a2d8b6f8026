#pragma once

#include <string>
#include <vector>

namespace checks {

// One file of fixtures/malformed/TARGET/: bytes for the fuzz target of that name. Those that are not
// accepted have one wrong field each, in what is accepted beside them.
struct CorpusFile {
  std::string target, name, bytes;
  bool accepted = false;
};

// Everything under fixtures/malformed; `make_corpus FOLDER` writes it there.
std::vector<CorpusFile> corpus();

}  // namespace checks
