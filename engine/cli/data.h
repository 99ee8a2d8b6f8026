#pragma once

#include <CLI/CLI.hpp>

namespace engine::cli {

// lazylora data build --model DIR --records FILE --out SET --length N ...
// lazylora data held-out, the same with --not-in SET...
// lazylora data corpus --list FILE --after YYYY-MM-DD --out CORPUS
// lazylora data show SET [N] [--model DIR]
void add_data_command(CLI::App& app);

// engine/cli/data_corpus.cc, data_show.cc
void add_data_corpus_command(CLI::App& data);
void add_data_show_command(CLI::App& data);

}  // namespace engine::cli
