// Documents packed into one sequence. Time never crosses a border: convolution history, KDA state
// and the attention mask all start anew, so a packed sequence computes what its documents would
// compute apart.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace oracle {

// start[t] = first token of the document that holds t.
//
// Shape   doc_begin: first token of every document, ascending, doc_begin[0] = 0   start [T] (=)
// Errors  throws std::invalid_argument when doc_begin is not that
inline std::vector<int64_t> document_starts(std::span<const int64_t> doc_begin, int64_t tokens) {
  if (doc_begin.empty() || doc_begin[0] != 0)
    throw std::invalid_argument("doc_begin does not start with 0");
  for (size_t d = 1; d < doc_begin.size(); ++d) {
    if (doc_begin[d] <= doc_begin[d - 1] || doc_begin[d] >= tokens) {
      throw std::invalid_argument("doc_begin is not ascending within the sequence");
    }
  }
  std::vector<int64_t> start(tokens);
  size_t d = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    while (d + 1 < doc_begin.size() && doc_begin[d + 1] <= t) ++d;
    start[t] = doc_begin[d];
  }
  return start;
}

}  // namespace oracle
