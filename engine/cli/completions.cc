#include "engine/cli/completions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

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

// `quote` is how the shell writes a quote within quotes.
std::string single_quoted(std::string_view text, std::string_view quote) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string in_zsh(std::string_view text) { return single_quoted(text, "'\\''"); }
std::string in_fish(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '\\' ? std::string("\\\\") : std::string(1, c);
  return single_quoted(escaped, "\\'");
}

// All paths but the program's own.
std::vector<std::string> paths(std::span<const CommandFact> tree) {
  std::vector<std::string> all;
  for (const CommandFact& command : tree) {
    if (!command.path.empty()) all.push_back(command.path);
  }
  return all;
}

const CommandFact& find(std::span<const CommandFact> tree, const std::string& path) {
  return *std::ranges::find(tree, path, &CommandFact::path);
}

}  // namespace

std::string bash_completions(std::span<const CommandFact> tree) {
  std::string values, words;
  for (const CommandFact& command : tree) {
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
      fmt::join(paths(tree), "|"), values, words);
}

std::string zsh_completions(std::span<const CommandFact> tree) {
  std::string values, words;
  for (const CommandFact& command : tree) {
    std::string commands, options;
    for (const std::string& name : command.subcommands) {
      const std::string& what = find(tree, command.path + "/" + name).description;
      commands += fmt::format(" {}", in_zsh(fmt::format("{}:{}", name, what)));
    }
    for (const OptionFact& option : command.options) {
      if (option.names.empty()) continue;
      for (const std::string& name : option.names) {
        options += fmt::format(" {}", in_zsh(fmt::format("{}:{}", name, option.description)));
      }
      if (option.value.empty()) continue;
      const std::string complete =
          option.choices.empty() ? "_files"
                                 : fmt::format("compadd -- {}", fmt::join(option.choices, " "));
      values += fmt::format("    ({}) {}; return ;;\n", after(command, option), complete);
    }
    words += fmt::format("    ({}) commands=({}) options=({}) ;;\n", in_zsh(command.path), commands,
                         options);
  }
  // From a folder of $fpath the file itself is the function, and its first call has to complete.
  return fmt::format(
      R"(#compdef lazylora
# Completions of lazylora for zsh, made by `lazylora reference zsh`.
_lazylora() {{
  local at= i
  local -a commands options
  for ((i = 2; i < CURRENT; i++)); do
    case "$at/$words[i]" in
    ({}) at+=/$words[i] ;;
    esac
  done
  case "$at:$words[CURRENT-1]" in
{}  esac
  case "$at" in
{}  esac
  if [[ $words[CURRENT] == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
if [[ $funcstack[1] == _lazylora ]]; then
  _lazylora "$@"
else
  compdef _lazylora lazylora
fi
)",
      fmt::join(paths(tree), "|"), values, words);
}

std::string fish_completions(std::span<const CommandFact> tree) {
  std::string script = fmt::format(
      R"(# Completions of lazylora for fish, made by `lazylora reference fish`.
function __lazylora_at
    set -l typed (commandline -opc)
    set -e typed[1]
    set -l at ''
    for word in $typed
        switch "$at/$word"
            case {}
                set at "$at/$word"
        end
    end
    test "$at" = "$argv[1]"
end
)",
      fmt::join(paths(tree), " "));
  for (const CommandFact& command : tree) {
    const std::string head =
        fmt::format("complete -c lazylora -n '__lazylora_at \"{}\"'", command.path);
    if (!command.subcommands.empty()) script += head + " -f\n";
    for (const std::string& name : command.subcommands) {
      script += fmt::format("{} -a {} -d {}\n", head, name,
                            in_fish(find(tree, command.path + "/" + name).description));
    }
    for (const OptionFact& option : command.options) {
      if (option.names.empty()) continue;
      script += head;
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        script += fmt::format(" -{} {}", is_long ? 'l' : 's', name.substr(is_long ? 2 : 1));
      }
      if (!option.choices.empty()) {
        script += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      } else if (!option.value.empty()) {
        script += " -r -F";
      }
      script += fmt::format(" -d {}\n", in_fish(option.description));
    }
  }
  return script;
}

}  // namespace engine::cli
