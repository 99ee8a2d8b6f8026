#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

namespace engine::cli {

// What the command line takes, from the same tables that parse it: completions and manual are made of
// this and cannot say anything else than --help.
struct OptionFact {
  std::vector<std::string> names;  // with their dashes
  std::string positional;          // may be empty
  std::string value;               // what it takes, "" for a flag
  std::vector<std::string> choices;
  std::string description, standard;  // standard: what it is without being given
  bool required = false;
};

struct CommandFact {
  std::string path;  // "" the program, "/data/build" one of its commands
  std::string description;
  std::vector<OptionFact> options;       // those of option groups among them
  std::vector<std::string> subcommands;  // names
};

// The program first, then its commands as they were added, each followed by its own.
std::vector<CommandFact> command_tree(const CLI::App& app);

// What to say of a command line whose words name no command where one is due, the nearest there are
// among it; empty if they do, or an option stands in front, which is the parser's to judge.
std::string unknown_command(const CLI::App& app, std::span<const char* const> words);

}  // namespace engine::cli
