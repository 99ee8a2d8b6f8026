#include "reports/page.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "engine/base/error.h"

namespace reports {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}"
    "td,th{border:1px solid #ccc;padding:.25em .6em;text-align:left}a{color:#08519c}"
    "img{max-width:100%}pre{background:#f6f6f6;padding:1em;overflow-x:auto;font-size:12px}"
    "pre span{display:block}pre span:target{background:#ffe08a}";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// What would be markup in a Markdown cell is not.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("|[]*_`<\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned value = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      value = value << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j > bytes.size() ? '=' : kDigits[value >> (18 - 6 * j) & 63];
    }
  }
  return out;
}

std::string file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw engine::base::Error("{}: cannot be opened", path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string in_markdown(const Page& page, const Cell& cell) {
  if (cell.line == 0) return plain(cell.text);
  return fmt::format("[{}]({}#L{})", plain(cell.text), page.evidence, cell.line);
}

std::string in_html(const Cell& cell) {
  if (cell.line == 0) return escaped(cell.text);
  return fmt::format("<a href=\"#L{}\">{}</a>", cell.line, escaped(cell.text));
}

}  // namespace

std::string markdown(const Page& page) {
  std::string text = fmt::format("# {}\n", plain(page.title));
  for (const Block& block : page.blocks) {
    text += "\n";
    if (block.kind == Block::Kind::kFigure) {
      text += fmt::format("![{}]({})\n", plain(block.rows[0][0].text), block.figure);
      continue;
    }
    const bool table = block.kind == Block::Kind::kTable;
    if (block.kind == Block::Kind::kHeading) text += "## ";
    for (std::size_t r = 0; r < block.rows.size(); ++r) {
      if (table) text += "| ";
      for (const Cell& cell : block.rows[r]) {
        text += in_markdown(page, cell) + (table ? " | " : "");
      }
      if (table) text.pop_back();
      text += "\n";
      if (table && r == 0) {
        for (std::size_t c = 0; c < block.rows[0].size(); ++c) text += "|---";
        text += "|\n";
      }
    }
  }
  return text;
}

std::string html(const Page& page, const std::string& folder) {
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>"
      "<style>{1}</style></head><body>\n<h1>{0}</h1>\n",
      escaped(page.title), kStyle);
  for (const Block& block : page.blocks) {
    if (block.kind == Block::Kind::kFigure) {
      text += fmt::format("<p><img alt=\"{}\" src=\"data:image/svg+xml;base64,{}\"></p>\n",
                          escaped(block.rows[0][0].text), base64(file(folder + block.figure)));
    } else if (block.kind == Block::Kind::kTable) {
      text += "<table>\n";
      for (std::size_t r = 0; r < block.rows.size(); ++r) {
        text += "<tr>";
        for (const Cell& cell : block.rows[r]) {
          text += fmt::format("<{0}>{1}</{0}>", r == 0 ? "th" : "td", in_html(cell));
        }
        text += "</tr>\n";
      }
      text += "</table>\n";
    } else {
      const char* tag = block.kind == Block::Kind::kHeading ? "h2" : "p";
      text += fmt::format("<{}>", tag);
      for (const Cell& cell : block.rows[0]) text += in_html(cell);
      text += fmt::format("</{}>\n", tag);
    }
  }
  text += fmt::format("<h2>{}</h2>\n<pre>", escaped(page.evidence));
  for (std::size_t i = 0; i < page.evidence_lines.size(); ++i) {
    text += fmt::format("<span id=\"L{}\">{}</span>", i + 1, escaped(page.evidence_lines[i]));
  }
  return text + "</pre>\n</body></html>\n";
}

}  // namespace reports
