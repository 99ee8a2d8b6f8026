#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/adapter/native.h"
#include "engine/base/budget.h"
#include "engine/base/decimal.h"
#include "engine/cli/say.h"
#include "engine/model/adapter_set.h"
#include "engine/model/model.h"

namespace engine::cli {

// What every command that computes is told about the machine. No result depends on any of it.
struct MachineOptions {
  int threads = 0;              // 0: as many as there are processors
  std::string ram;              // empty: half of the smallest of physical memory and cgroup limits
  std::string instruction_set;  // empty: the widest
  std::string scratch;          // empty: $TMPDIR, else /tmp
  std::string reads = "auto";   // around the page cache: auto, direct or buffered
  std::string pack;             // folder of a packed copy; empty: none
};

// Exit codes: 2 for what is wrong whatever the files and the machine are (CLI::ParseError), 1 for
// what disagrees with them (any other exception), 0 for what holds.
inline constexpr const char* kExitCodes =
    "Exit codes: 0 it holds or is done; 1 it does not hold, or files, machine or budget do not "
    "allow it; 2 bad usage: an option or a value that is wrong whatever the files are.";

// Runs `check`; an Error that it throws is one of usage.
void as_usage(const std::function<void()>& check);

// For CLI11's check(): an empty value is a shell variable that was not set, not a wish for the default.
std::string refuse_empty(const std::string& value);
// The same for every option that has to be given, of this command and those below it.
void refuse_empty_required(CLI::App& command);
// What is no UTF-8, of all options of this command and those below it: what they write down of what they
// were given is JSON, which holds nothing else.
void refuse_unless_utf8(CLI::App& command);

// What `flag` was given: a whole number, decimal and nothing else. The library's own conversion would
// clamp what does not fit, and read 010 as eight.
template <class Whole>
Whole whole_number(const std::string& flag, const std::string& text, Whole least, Whole most) {
  const std::optional<Whole> number = base::parse_decimal<Whole>(text);
  if (!number || *number < least || *number > most) {
    throw CLI::ValidationError(fmt::format(
        "{} is \"{}\": must be a whole decimal number in {} ... {}", flag, text, least, most));
  }
  return *number;
}

template <class Whole>
CLI::Option* add_whole_number(CLI::App& command, const std::string& flag, Whole& member,
                              Whole least, Whole most, const std::string& what) {
  const auto take = [flag, &member, least, most](const std::string& text) {
    member = whole_number(flag, text, least, most);
  };
  return command.add_option_function<std::string>(flag, take, what)
      ->type_name("N")
      ->default_str(fmt::format("{}", member));
}

// All of MachineOptions; a command that needs less adds less.
void add_machine_options(CLI::App& command, MachineOptions& options);
void add_threads_option(CLI::App& command, MachineOptions& options);
void add_ram_option(CLI::App& command, MachineOptions& options);
// Of the commands that sweep: --pack.
void add_pack_option(CLI::App& command, MachineOptions& options);

// Threads and instruction set take effect; refuses a process that flushes subnormals to zero.
void apply_machine_options(const MachineOptions& options);

std::uint64_t ram_bytes(const MachineOptions& options);
std::filesystem::path scratch_folder(const MachineOptions& options);

// Charges what the process holds by now (code, libraries, tensor index) and will still grow by.
void reserve_process(base::RamBudget& budget);

// A checkpoint opened within a budget, with reserve_process done.
struct OpenModel {
  std::unique_ptr<base::RamBudget> budget;
  std::unique_ptr<model::Model> model;
};
OpenModel open_model(const std::filesystem::path& folder, const MachineOptions& options,
                     bool strict);

// "buffered" or "direct", and how much came from the packed copy, where there is one.
std::string how_read(const model::Model& model, const MachineOptions& options);

// The same on stderr, where there is a packed copy.
void report_pack(const model::Model& model, const MachineOptions& options);

// Errors    Error naming the folder, and what is wanted and free, where `out` has no room for so much
void require_space(const std::filesystem::path& out, std::uint64_t bytes);

// Help of the flag --foreign-adapter.
inline constexpr const char* kForeignAdapter =
    "take an adapter that was made for another checkpoint";

// An adapter for another checkpoint is refused, since a shape that fits is no sign of that; where
// `foreign` allows it, or the file does not say, a warning is printed.
// Errors    Error naming file and both digests
void require_same_model(const std::string& file, const adapter::NativeMetadata& adapter,
                        const model::Model& model, bool foreign);

// 0 where there is none: who opens it will say so.
std::uint64_t file_bytes(const std::filesystem::path& file);

// The adapters in `path`: an adapter file, or a folder that holds adapter.safetensors. What a run's log says against it
// is not applied.
// Errors    Error naming file and tensor where file and model disagree; of train::require_logged and require_same_model
std::unique_ptr<model::AdapterSet> open_adapter(const std::filesystem::path& path,
                                                const model::Model& model, bool foreign,
                                                base::RamBudget& budget,
                                                model::Gradients gradients);

}  // namespace engine::cli
