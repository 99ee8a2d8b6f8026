#include "engine/adapter/export.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/adapter/gguf.h"
#include "engine/adapter/peft_config.h"
#include "engine/adapter/read_me.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/durable.h"
#include "engine/store/json_text.h"
#include "engine/store/safetensors_writer.h"

namespace engine::adapter {
namespace {

using base::Error;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::int64_t kChunk = 1 << 16;  // values
constexpr const char* kGgufFile = "adapter.gguf";
constexpr const char* kPeftFile = "adapter_model.safetensors";
// Of the native file's metadata: which checkpoint the adapter is for.
constexpr const char* kMadeFor[] = {"config_sha256", "headers_sha256"};
constexpr const char* kKeysRule =
    "SHA-256 over one line for every tensor of the file, \"NAME DTYPE EXTENTxEXTENT\\n\", extents "
    "outermost first, lines in bytewise order; a loader that hashes the keys it has used gets this "
    "digest if it used them all";

Layout layout_of(const NativeAdapter& native, const ExportSettings& settings) {
  Layout layout{settings.format, FusedInput::kLast, native.rank};
  if (settings.format == Format::kPeftFused) {
    if (settings.peft_version.empty()) {
      throw Error("experts fused for PEFT: its version decides how, and none is named");
    }
    layout.fused = fused_input(settings.peft_version);
  }
  return layout;
}

void require_values(const NativeTensor& tensor, base::Dtype dtype) {
  for (const float value : tensor.values) {
    const bool fits = dtype == base::Dtype::kF32 ||
                      std::isfinite(base::bf16_to_float(base::float_to_bf16(value)));
    if (!std::isfinite(value) || !fits) {
      throw Error("adapter tensor {} holds {}, which {} cannot carry", tensor.name, value,
                  base::name_of(dtype));
    }
  }
}

// The native matrices by module and kind; shapes and values are those that the module wants.
using Matrices = std::map<std::pair<std::size_t, char>, std::span<const float>>;
Matrices checked(const NativeAdapter& native, std::span<const Module> modules, base::Dtype dtype) {
  Matrices matrices;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    for (const char matrix : {'A', 'B'}) {
      const std::string name = modules[i].native(matrix);
      const NativeTensor* tensor = native.find(name);
      if (tensor == nullptr) throw Error("the adapter has no tensor {}", name);
      const std::vector<std::int64_t> wanted = matrix == 'A'
                                                   ? std::vector{native.rank, modules[i].in}
                                                   : std::vector{modules[i].out, native.rank};
      if (tensor->shape != wanted) {
        throw Error("adapter tensor {} has shape [{}], module {} of the checkpoint wants [{}]",
                    name, fmt::join(tensor->shape, ","), modules[i].path(), fmt::join(wanted, ","));
      }
      require_values(*tensor, dtype);
      matrices[{i, matrix}] = tensor->values;
    }
  }
  if (matrices.size() != native.tensors.size()) {
    throw Error("the adapter has {} tensors, the checkpoint has places for {} of its targets",
                native.tensors.size(), matrices.size());
  }
  return matrices;
}

// The values of a piece in its order, in the file's dtype.
template <class Writer>
void write_piece(const Piece& piece, std::span<const float> matrix, base::Dtype dtype,
                 Writer& writer) {
  std::vector<float> values;
  std::vector<std::uint16_t> halves;
  for (std::int64_t first = 0; first < piece.walk.size(); first += kChunk) {
    values.clear();
    for_runs(piece.walk, first, std::min(kChunk, piece.walk.size() - first),
             [&](std::int64_t place, std::int64_t step, std::int64_t count) {
               for (; count > 0; --count, place += step) {
                 values.push_back(matrix[static_cast<std::size_t>(place)]);
               }
             });
    if (dtype == base::Dtype::kF32) {
      writer.append(std::as_bytes(std::span(values)));
    } else {
      halves.resize(values.size());
      std::ranges::transform(values, halves.begin(), base::float_to_bf16);
      writer.append(std::as_bytes(std::span(halves)));
    }
  }
}

template <class Writer>
void write_values(const Layout& layout, std::span<const Module> modules, const Matrices& matrices,
                  base::Dtype dtype, Writer& writer) {
  for_pieces(layout, modules, [&](const Piece& piece) {
    write_piece(piece, matrices.at({piece.module, piece.matrix}), dtype, writer);
  });
  writer.finish();
}

const char* expert_form(Format format) {
  switch (format) {
    case Format::kPeft:
      return "shared: [1,r,in] and [1,out,r], one for all experts of a layer";
    case Format::kPeftPerExpert:
      return "per expert";
    case Format::kPeftFused:
      return "fused: [E*r,x], expert slowest, and [y,r*E], expert fastest";
    case Format::kGguf:
      break;
  }
  return "stacked";
}

PeftConfig config_of(const NativeAdapter& native, const Base& base, std::span<const Module> modules,
                     const ExportSettings& settings) {
  PeftConfig config;
  config.rank = native.rank;
  config.alpha = native.alpha;
  config.base_model = settings.base_model;
  config.peft_version = settings.peft_version;
  std::vector<Module> linear(modules.begin(), modules.end());
  if (settings.format == Format::kPeftFused) {
    std::erase_if(linear, [](const Module& module) { return module.experts > 0; });
    for (const Module& module : modules) {
      if (module.experts == 0) continue;
      const std::string parameter =
          module.parent.substr(module.parent.rfind('.', module.parent.rfind('.') - 1) + 1) + '.' +
          module.leaf + ".weight";
      if (std::ranges::find(config.target_parameters, parameter) ==
          config.target_parameters.end()) {
        config.target_parameters.push_back(parameter);
      }
    }
  }
  config.target_modules = target_entries(linear, base.names);
  return config;
}

}  // namespace

ExportSize export_size(const NativeAdapter& native, std::span<const Module> modules,
                       const ExportSettings& settings) {
  ExportSize size;
  for_pieces(layout_of(native, settings), modules, [&](const Piece& piece) {
    ++size.tensors;
    size.bytes += static_cast<std::uint64_t>(piece.walk.size() * base::size_of(settings.dtype));
  });
  return size;
}

void write_export(const fs::path& folder, const NativeAdapter& native, const Base& base,
                  std::span<const Module> modules, const ExportSettings& settings) {
  const Layout layout = layout_of(native, settings);
  const Matrices matrices = checked(native, modules, settings.dtype);
  std::vector<store::TensorSpec> specs;
  KeyDigest keys;
  for_pieces(layout, modules, [&](const Piece& piece) {
    specs.push_back({piece.name, settings.dtype, piece.shape});
    keys.add(piece.name, settings.dtype, piece.shape);
  });
  const std::string digest = keys.sha256();

  if (settings.format == Format::kGguf) {
    const std::vector<std::pair<std::string, GgufValue>> about = {
        {"general.type", "adapter"},
        {"general.architecture", "kimi-k3"},
        {"adapter.type", "lora"},
        {"adapter.lora.alpha", gguf_alpha(native.alpha, native.rank)}};
    GgufWriter writer(folder / kGgufFile, about, std::move(specs));
    write_values(layout, modules, matrices, settings.dtype, writer);
  } else {
    store::write_file_durably(folder / "adapter_config.json",
                              peft_config_text(config_of(native, base, modules, settings)));
    store::SafetensorsWriter writer(folder / kPeftFile, std::move(specs),
                                    {{"format", "pt"},
                                     {"experts", expert_form(settings.format)},
                                     {"expected_keys_sha256", digest}});
    write_values(layout, modules, matrices, settings.dtype, writer);
  }
  Json made_for = Json::object();
  for (const char* key : kMadeFor) {
    if (const auto said = native.more.find(key); said != native.more.end()) {
      made_for[key] = said->second;
    }
  }
  const fs::path file = folder / (settings.format == Format::kGguf ? kGgufFile : kPeftFile);
  const Json expected = {{"rule", kKeysRule},   {"keys", keys.count()},
                         {"sha256", digest},    {"file_sha256", base::sha256_hex_of_file(file)},
                         {"rank", native.rank}, {"alpha", native.alpha},
                         {"made_for", made_for}};
  store::write_file_durably(folder / kKeysFile, expected.dump(2) + "\n");
  store::write_file_durably(folder / "README.md", read_me(settings, native, modules));
}

std::map<std::string, std::string> check_expected_keys(const fs::path& folder,
                                                       const Exported& exported) {
  const std::string file = (folder / kKeysFile).string();
  const std::string text = store::read_text(folder / kKeysFile, 1 << 16);
  store::require_strict_json(text, file);
  try {
    const Json json = Json::parse(text);
    const std::uint64_t keys = json.at("keys");
    const std::string sha256 = json.at("sha256");
    if (keys != exported.keys || sha256 != exported.keys_sha256) {
      throw Error("{}: says {} keys of digest {}, {} has {} of {}", file, keys,
                  store::shortened(sha256), exported.file, exported.keys, exported.keys_sha256);
    }
    const std::string bytes = json.at("file_sha256");
    if (const std::string found = base::sha256_hex_of_file(exported.file); found != bytes) {
      throw Error("{}: SHA-256 {}, {} says {}", exported.file, found, file,
                  store::shortened(bytes));
    }
    // GGUF has alpha in float32 and the scale for it (gguf_alpha).
    const std::int64_t rank = json.at("rank");
    const double alpha = json.at("alpha");
    const auto scale = static_cast<float>(alpha / static_cast<double>(rank));
    if (rank != exported.rank || scale != exported.scale) {
      throw Error("{}: says alpha {} and rank {}, {} has {} and {}", file, alpha, rank,
                  exported.file, exported.alpha, exported.rank);
    }
    return json.at("made_for").get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception& wrong) {
    throw Error("{}: {}", file, store::json_reason(wrong.what()));
  }
}

float gguf_alpha(double alpha, std::int64_t rank) {
  const auto wanted = static_cast<float>(alpha / static_cast<double>(rank));
  const auto r = static_cast<float>(rank);
  const auto near = static_cast<float>(alpha);
  // float(alpha) is within half a unit of alpha, so the quotient moves by a unit at most: one step
  // either way finds what there is to find.
  const float below = std::nextafter(near, 0.0f);
  const float above = std::nextafter(near, std::numeric_limits<float>::infinity());
  for (const float candidate : {near, below, above}) {
    if (candidate > 0.0f && std::isfinite(candidate) && candidate / r == wanted) return candidate;
  }
  throw Error(
      "alpha {} and rank {}: llama.cpp divides in float32, where {}/{} is {} and its neighbours "
      "are "
      "{} and {}; alpha/r, {}, is none of them",
      alpha, rank, near, rank, near / r, below / r, above / r, wanted);
}

}  // namespace engine::adapter
