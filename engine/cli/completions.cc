#include "engine/cli/completions.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace engine::cli {
namespace {

// Names, choices and paths are letters, digits, dashes and slashes: nothing a shell would read.
std::string after(const CommandFact& command, const OptionFact& option) {
  std::string patterns;
  for (const std::string& name : option.names) {
    patterns += fmt::format("{}{}:{}", patterns.empty() ? "" : "|", command.path, name);
  }
  return patterns;
}

std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

}  // namespace

std::string bash_completions(std::span<const CommandFact> tree) {
  std::string known, values, words;
  for (const CommandFact& command : tree) {
    if (!command.path.empty()) known += (known.empty() ? "" : "|") + command.path;
    std::vector<std::string> options;
    for (const OptionFact& option : command.options) {
      options.insert(options.end(), option.names.begin(), option.names.end());
      if (option.value.empty() || option.names.empty()) continue;
      const std::string complete =
          option.choices.empty() ? "-f" : fmt::format("-W '{}'", fmt::join(option.choices, " "));
      values += fmt::format("    {}) mapfile -t COMPREPLY < <(compgen {} -- \"$cur\"); return ;;\n",
                            after(command, option), complete);
    }
    words += fmt::format("    '{}') subs='{}' opts='{}' ;;\n", command.path,
                         fmt::join(command.subcommands, " "), fmt::join(options, " "));
  }
  return fmt::format(
      R"(# Completions of lazylora for bash, made by `lazylora reference bash`.
_lazylora() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} path= i subs= opts=
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path/${{COMP_WORDS[i]}}" in
    {}) path+=/${{COMP_WORDS[i]}} ;;
    esac
  done
  case "$path:${{COMP_WORDS[COMP_CWORD - 1]}}" in
{}  esac
  case "$path" in
{}  esac
  if [[ $cur == -* || -n $subs ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$subs $opts" -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
}}
complete -o filenames -F _lazylora lazylora
)",
      known, values, words);
}

std::string zsh_completions(std::span<const CommandFact> tree) {
  std::string script = bash_completions(tree);
  // zsh has no mapfile; it splits at line ends when told so.
  for (std::size_t at; (at = script.find("mapfile -t COMPREPLY < <(")) != std::string::npos;) {
    const std::size_t end = script.find("\"$cur\")", at) + 7;
    const std::string inner = script.substr(at + 25, end - at - 26);
    script.replace(at, end - at, "COMPREPLY=(${(f)\"$(" + inner + ")\"})");
  }
  return "#compdef lazylora\nautoload -U +X bashcompinit && bashcompinit\n" + script;
}

std::string fish_completions(std::span<const CommandFact> tree) {
  std::string script =
      "# Completions of lazylora for fish, made by `lazylora reference fish`.\n"
      "complete -c lazylora -n __fish_use_subcommand -f\n";
  for (const CommandFact& command : tree) {
    // "/data/build": both were typed.
    std::string when = "__fish_use_subcommand";
    if (!command.path.empty()) {
      std::string path = command.path.substr(1);
      const std::size_t slash = path.find('/');
      if (slash != std::string::npos) {
        path.replace(slash, 1, "; and __fish_seen_subcommand_from ");
      }
      when = "__fish_seen_subcommand_from " + path;
    }
    const std::string head = fmt::format("complete -c lazylora -n {}", single_quoted(when));
    for (const std::string& name : command.subcommands) {
      const auto sub = std::ranges::find(tree, command.path + "/" + name, &CommandFact::path);
      script += fmt::format("{} -f -a {} -d {}\n", head, name, single_quoted(sub->description));
    }
    for (const OptionFact& option : command.options) {
      if (option.names.empty()) continue;
      script += head;
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        script += fmt::format(" -{} {}", is_long ? 'l' : 's', name.substr(is_long ? 2 : 1));
      }
      if (!option.choices.empty()) {
        script += fmt::format(" -x -a {}",
                              single_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
      } else if (!option.value.empty()) {
        script += " -r";
      }
      script += fmt::format(" -d {}\n", single_quoted(option.description));
    }
  }
  return script;
}

}  // namespace engine::cli
