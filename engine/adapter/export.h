#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "engine/adapter/exported.h"
#include "engine/adapter/layout.h"
#include "engine/adapter/module.h"
#include "engine/adapter/native.h"

namespace engine::adapter {

struct ExportSettings {
  Format format = Format::kPeft;
  base::Dtype dtype = base::Dtype::kF32;
  std::string peft_version;  // PEFT's; needed for kPeftFused
  std::string base_model;    // what adapter_config.json calls the model
};

// What write_export would write.
struct ExportSize {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;  // of all values
  // Of memory, besides the native adapter: 445 MB were measured for 494,592 tensors.
  std::uint64_t table_bytes() const { return tensors * 900; }
};
ExportSize export_size(const NativeAdapter& native, std::span<const Module> modules,
                       const ExportSettings& settings);

// Writes the adapter's files into `folder`, which is there: adapter_model.safetensors and
// adapter_config.json, or adapter.gguf; and expected_keys.json, README.md. Nothing is proved here:
// see prove_delta. `modules` are those of the adapter's targets.
//
// Cost      one value at a time passes through a buffer of 256 KiB; the table of tensors is held,
//           which expanded for every expert of the released model is half a million entries
// Errors    Error naming the native file's tensor where its shape is not the module's or a value is
//           not finite (or not in bfloat16's range, if that is wanted); a version that cannot be
//           served; for GGUF an alpha whose alpha/r float32 cannot say; and the disk's reasons
void write_export(const std::filesystem::path& folder, const NativeAdapter& native,
                  const Base& base, std::span<const Module> modules,
                  const ExportSettings& settings);

inline constexpr const char* kKeysFile = "expected_keys.json";

// That expected_keys.json says what the file holds: its tensors, and its bytes. Returns what it says
// of the checkpoint that the adapter is for: config_sha256 and headers_sha256, as the native file had
// them.
// Errors    Error naming it and the two values
std::map<std::string, std::string> check_expected_keys(const std::filesystem::path& folder,
                                                       const Exported& exported);

// For llama.cpp, which computes float(alpha) / float(r): an alpha whose quotient has the bits of
// the engine's float(alpha / r).
// Errors    Error naming alpha, r and the two nearest quotients, if there is none
float gguf_alpha(double alpha, std::int64_t rank);

}  // namespace engine::adapter
