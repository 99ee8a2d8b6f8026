#include "engine/cli/man_page.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace engine::cli {
namespace {

// Text as troff prints it: no dash becomes a hyphen, no line a request.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string entry(const OptionFact& option) {
  std::string head;
  for (const std::string& name : option.names) {
    head += fmt::format("{}\\fB{}\\fR", head.empty() ? "" : ", ", plain(name));
  }
  if (head.empty()) head = fmt::format("\\fI{}\\fR", plain(option.positional));
  std::string value = option.value;
  if (!option.choices.empty()) value = fmt::format("{}", fmt::join(option.choices, "|"));
  if (!value.empty() && !option.names.empty()) head += fmt::format(" \\fI{}\\fR", plain(value));
  std::string text = option.description;
  if (!option.names.empty() && !option.positional.empty()) text += " (or as first word)";
  if (option.required) text += " (required)";
  if (!option.standard.empty()) text += fmt::format(" (default {})", option.standard);
  return fmt::format(".TP\n{}\n{}\n", head, plain(text));
}

}  // namespace

std::string man_page(std::span<const CommandFact> tree, const std::string& exit_codes) {
  std::string page = fmt::format(
      ".TH LAZYLORA 1\n.ad l\n.SH NAME\nlazylora \\- {}\n.SH SYNOPSIS\n.B lazylora\n"
      "\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n",
      plain(tree[0].description));
  for (const CommandFact& command : tree) {
    if (command.path.empty()) continue;
    std::string name = command.path.substr(1);
    std::ranges::replace(name, '/', ' ');
    page += fmt::format(".SS lazylora {}\n{}.\n", plain(name), plain(command.description));
    for (const OptionFact& option : command.options) page += entry(option);
  }
  return page + fmt::format(".SH EXIT STATUS\n{}\n", plain(exit_codes));
}

}  // namespace engine::cli
