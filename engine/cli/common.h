#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/base/budget.h"
#include "engine/model/adapter_set.h"
#include "engine/model/model.h"

namespace engine::cli {

// What every command that computes is told about the machine. No result depends on any of it.
struct MachineOptions {
  int threads = 0;              // 0: as many as there are processors
  std::string ram;              // empty: half of the smallest of physical memory and cgroup limits
  std::string instruction_set;  // empty: the widest
  std::string scratch;          // empty: $TMPDIR, else /tmp
};

// For CLI11's check(): an empty value is a shell variable that was not set, not a wish for the default.
std::string refuse_empty(const std::string& value);

void add_machine_options(CLI::App& command, MachineOptions& options);

// Threads and instruction set take effect; refuses a process that flushes subnormals to zero.
void apply_machine_options(const MachineOptions& options);

std::uint64_t ram_bytes(const MachineOptions& options);
std::filesystem::path scratch_folder(const MachineOptions& options);

// A checkpoint opened within a budget: what the process holds by then (code, libraries, tensor
// index) is charged first.
struct OpenModel {
  std::unique_ptr<base::RamBudget> budget;
  std::unique_ptr<model::Model> model;
};
OpenModel open_model(const std::filesystem::path& folder, const MachineOptions& options,
                     bool strict);

// The adapters in `path`: an adapter file, or a folder that holds adapter.safetensors.
// Errors    Error naming file and tensor where file and model disagree
std::unique_ptr<model::AdapterSet> open_adapter(const std::filesystem::path& path,
                                                const model::Config& config,
                                                base::RamBudget& budget);

}  // namespace engine::cli
