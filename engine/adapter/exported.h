#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/adapter/layout.h"
#include "engine/adapter/module.h"
#include "engine/adapter/native.h"
#include "engine/base/dtype.h"
#include "engine/store/file.h"

namespace engine::adapter {

// One tensor of an exported file, understood by its reader's rules: PEFT's, SGLang's for experts
// that share an adapter, or llama.cpp's. These are written from the reader's side (names and shapes
// as found, not as layout.h would write them), so that the proof is no echo of the export.
struct Part {
  std::string name;
  std::size_t module = 0;    // index
  std::int64_t expert = -1;  // -1: not routed, or for all experts
  char matrix = 'A';         // the native matrix that its values belong to, and where
  Walk walk;
  std::uint64_t offset = 0;  // in the file
};

// An exported adapter, opened. Complete: for every target that it has, every module of the model has
// both matrices, every expert's if they are apart, and nothing is left over.
struct Exported {
  Format format = Format::kPeft;
  std::string file;  // of the tensors
  std::int64_t rank = 0;
  double alpha = 0.0;
  float scale = 0.0f;  // what the reader multiplies B A with
  base::Dtype dtype = base::Dtype::kF32;
  std::vector<std::string> targets;  // in the order of the modules
  std::vector<Part> parts;           // in file order
  std::uint64_t keys = 0;
  std::string keys_sha256;  // see KeyDigest
};

// What the checkpoint has: `modules` may be adapted (all targets), `names` are the paths of all its
// modules, against which an adapter's own list of targets is resolved.
struct Base {
  std::span<const Module> modules;
  std::span<const std::string> names;
};

// `folder` holds adapter_config.json and adapter_model.safetensors, or adapter.gguf; or it is a GGUF
// file itself.
// Errors    Error naming file, tensor or key, and the values that disagree: a file cut short, empty
//           or without tensors; a key that is no adapter of this checkpoint; a missing one; a shape
//           that is not the module's; more than one rank or dtype; a config that asks for what this
//           program does not do (rslora, dora, patterns of ranks, a bias, ...) or that still claims
//           a quantization; an entry of target_modules that matches no module, or one without an
//           adapter, or an adapter whose module no entry matches; a native adapter
Exported open_exported(const std::filesystem::path& folder, const Base& base);

// The values of every part in turn, widened, in pieces of bounded size: `values` are those from
// `first` on in the part's own order.
using ReadValues =
    std::function<void(const Part& part, std::int64_t first, std::span<const float> values)>;
void read_values(const Exported& exported, const ReadValues& use);

// The native adapter. Experts that are apart must have the same bits: the native format has one
// adapter for all of them.
// Errors    those of the disk, and Error naming the tensor and both values where two disagree
NativeAdapter import_native(const Exported& exported, std::span<const Module> modules);

// The same, values handed over instead of kept: `matrix_of` gives the memory of a native tensor.
void import_values(
    const Exported& exported, std::span<const Module> modules,
    const std::function<std::span<float>(const std::string& native_name)>& matrix_of);

}  // namespace engine::adapter
