#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/adapter/exported.h"

namespace engine::adapter {

// adapter_config.json, the part of it that this program reads and writes.
struct PeftConfig {
  std::int64_t rank = 0;
  double alpha = 0.0;
  std::string base_model;
  std::string peft_version;  // empty: not stated
  std::vector<std::string> target_modules;
  std::vector<std::string> target_parameters;  // of fused experts
};

std::string peft_config_text(const PeftConfig& config);

// Errors    Error naming file, key and value: see open_exported
PeftConfig read_peft_config(const std::filesystem::path& file);

// The shortest list of entries that names, by PEFT's rule (an entry is a module's path or the end
// of it, from a dot on), the modules of the checkpoint that are adapted and no other: one entry a
// kind of module where its name's end is enough, else the whole paths.
// Errors    Error naming a module that the checkpoint does not have
std::vector<std::string> target_entries(std::span<const Module> modules,
                                        std::span<const std::string> names);

// What a list of entries comes to on the checkpoint: every entry matches a module, every matched
// module is one of `modules`, every one of `modules` is matched.
// Errors    Error naming file and the entry or module that is left over
void resolve_entries(const std::string& file, std::span<const std::string> entries,
                     std::span<const Module> modules, std::span<const std::string> names);

}  // namespace engine::adapter
