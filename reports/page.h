#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reports {

// A piece of text; with a line it links to that line of the evidence.
struct Cell {
  std::string text;
  std::int64_t line = 0;
};

struct Block {
  enum class Kind { kHeading, kParagraph, kTable, kFigure };
  Kind kind = Kind::kParagraph;
  std::vector<std::vector<Cell>> rows;  // a table's, its head first; otherwise one row
  std::string figure;                   // an SVG file beside the page
};

// The same page twice. In Markdown links go to `evidence`, a file beside the page; in HTML, which is
// one file and asks for nothing else, to its lines below.
struct Page {
  std::string title;
  std::vector<Block> blocks;
  std::string evidence;
  std::vector<std::string> evidence_lines;
};

std::string markdown(const Page& page);
// Errors    Error if a figure cannot be read
std::string html(const Page& page, const std::string& folder);

}  // namespace reports
