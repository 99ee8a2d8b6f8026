#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/measure/layer_routing.h"

namespace engine::measure {

inline constexpr const char* kTraceFile = "trace.bin";
inline constexpr const char* kTraceManifest = "trace.json";
inline constexpr const char* kTraceHdf5 = "trace.h5";

// Row of "layers": a record of trace.bin.
struct TracedLayer {
  std::int64_t layer = 0;
  std::int64_t tokens = 0;
  std::int64_t chosen = 0;
  std::int64_t distinct = 0;
  bool is_kda = false;
};

// Row of "documents": a text, in the order of its tokens.
struct TracedDocument {
  std::int64_t tokens = 0;
  std::string ids_sha256;  // of the ids as int32, little-endian; empty: not known
};

struct TracedFile {
  std::uint64_t bytes = 0;
  std::string sha256;
};

// trace.json: what trace.bin cannot say of itself. Nothing in it depends on clock or machine. An
// empty text is null in the file.
struct TraceManifest {
  std::string tag;
  std::int64_t experts = 0;           // 0: not stated
  std::int64_t layers_requested = 0;  // dense layers, which choose nothing, included
  std::string compute_dtype;          // "float32"; of LazyLoRA's "torch.bfloat16" and the like
  std::string config_sha256, headers_sha256, adapter_sha256;
  std::string text_sha256;
  std::optional<double> loss;  // nats a token
  std::vector<TracedDocument> documents;
  std::vector<std::int32_t> ids;  // [T], or none: withheld
  std::vector<TracedLayer> layers;
  std::map<std::string, TracedFile> files;

  std::int64_t tokens() const;
};

std::string ids_digest(const std::vector<std::int32_t>& ids);

std::string to_json(const TraceManifest& manifest);

// Reads what to_json() wrote, every field of which is required, and LazyLoRA's trace.json, known by
// its lack of "format": there `layers`, `n_tokens`, `layers_requested` and `compute_dtype` are
// required, `ids`, `text` and `tag` are taken, the rest (clocks, paths, the machine) is passed over.
//
// Errors    Error naming file, field and value: not JSON, a key twice, a field that is missing, of
//           the wrong type, out of range or unknown, counts that disagree, a layer that was not
//           requested, ids of another digest
TraceManifest read_trace_manifest(const std::filesystem::path& path);

}  // namespace engine::measure
