#include "engine/measure/routing_trace.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/measure/trace_folder.h"
#include "engine/store/at_path.h"
#include "engine/store/file_digest.h"

namespace engine::measure {
namespace {

using base::Error;
namespace fs = std::filesystem;

constexpr std::uint64_t kHeaderBytes = 12;
// What is kept of every record is bounded by this, not by the size of a file.
constexpr std::int32_t kMaxLayer = 65535;

struct Header {
  std::int32_t layer, tokens, chosen;
};
static_assert(sizeof(Header) == kHeaderBytes);

}  // namespace

RoutingTrace::RoutingTrace(const fs::path& path, std::int64_t experts) {
  const bool folder = store::is_folder(path);
  constexpr const char* kMaker = "(`lazylora trace --out FOLDER` makes one)";
  if (folder && !store::is_there(path / kTraceFile)) {
    throw Error("{}: is no trace: it has no {} {}", path.string(), kTraceFile, kMaker);
  }
  file_ = std::make_unique<store::File>(folder ? path / kTraceFile : path);
  if (file_->size() == 0) {
    throw Error("{}: is empty: no record, and a trace has one a layer {}", name(), kMaker);
  }
  if (folder) manifest_ = read_trace_manifest(path / kTraceManifest);
  const std::int64_t stated = manifest_ ? manifest_->experts : 0;
  if (stated == 0 && experts == 0) {
    throw Error(
        "{}: how many experts a layer has is not said there and has to be given (--experts)",
        path.string());
  }
  if (stated != 0 && experts != 0 && stated != experts) {
    throw Error("{}: {} experts a layer, {} were given", (path / kTraceManifest).string(), stated,
                experts);
  }
  shape_.experts = stated != 0 ? stated : experts;
  scan();
  if (manifest_) check_manifest();
}

void RoutingTrace::scan() {
  const std::string where = name();
  const std::uint64_t size = file_->size();
  for (std::uint64_t offset = 0; offset < size;) {
    if (size - offset < kHeaderBytes) {
      throw Error("{}: at byte {}: {} bytes are left, a record begins with {}", where, offset,
                  size - offset, kHeaderBytes);
    }
    Header header{};
    file_->read(offset, std::as_writable_bytes(std::span(&header, 1)));
    const std::int64_t before = layers_.empty() ? -1 : layers_.back();
    if (header.layer <= before) {
      throw Error("{}: at byte {}: layer {} behind layer {}", where, offset, header.layer, before);
    }
    if (header.layer > kMaxLayer) {
      throw Error("{}: at byte {}: layer {}, none may be above {}", where, offset, header.layer,
                  kMaxLayer);
    }
    if (header.tokens < 1 || header.chosen < 1 || header.chosen > shape_.experts) {
      throw Error(
          "{}: at byte {}: n {}, k {}: neither may be less than 1, nor k more than {} experts",
          where, offset, header.tokens, header.chosen, shape_.experts);
    }
    if (layers_.empty()) {
      shape_.tokens = header.tokens;
      shape_.chosen = header.chosen;
    } else if (header.tokens != shape_.tokens || header.chosen != shape_.chosen) {
      throw Error("{}: at byte {}: n {}, k {}; n {}, k {} in the records before", where, offset,
                  header.tokens, header.chosen, shape_.tokens, shape_.chosen);
    }
    // At most 4 * 2^31 * 2^15.
    const std::uint64_t data = 4 * static_cast<std::uint64_t>(shape_.requests());
    if (size - offset - kHeaderBytes < data) {
      throw Error("{}: at byte {}: n {}, k {} take {} bytes, {} are left", where, offset,
                  header.tokens, header.chosen, data, size - offset - kHeaderBytes);
    }
    layers_.push_back(header.layer);
    offsets_.push_back(offset + kHeaderBytes);
    offset += kHeaderBytes + data;
  }
  shape_.documents = {0, shape_.tokens};
}

void RoutingTrace::check_manifest() {
  const std::string where = (file_->path().parent_path() / kTraceManifest).string();
  if (manifest_->tokens() != shape_.tokens) {
    throw Error("{}: {} tokens, {} in {}", where, manifest_->tokens(), shape_.tokens, name());
  }
  if (manifest_->layers.size() != layers_.size()) {
    throw Error("{}: {} layers, {} records in {}", where, manifest_->layers.size(), layers_.size(),
                name());
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const TracedLayer& row = manifest_->layers[i];
    if (row.layer != layers_[i] || row.tokens != shape_.tokens || row.chosen != shape_.chosen) {
      throw Error("{}: layers[{}]: layer {}, n {}, k {}; layer {}, n {}, k {} in {}", where, i,
                  row.layer, row.tokens, row.chosen, layers_[i], shape_.tokens, shape_.chosen,
                  name());
    }
  }
  for (const auto& [listed, stated] : manifest_->files) {
    const fs::path path = file_->path().parent_path() / listed;
    if (!store::is_there(path)) {
      throw Error("{}: files: {} has {} bytes, and is not there", where, listed, stated.bytes);
    }
    const store::File file(path);
    const std::string digest = store::sha256_hex_of(file);
    if (stated.bytes != file.size() || stated.sha256 != digest) {
      throw Error("{}: {} bytes with SHA-256 {}, {} says {} bytes with {}", path.string(),
                  file.size(), digest, where, stated.bytes, stated.sha256);
    }
  }
  shape_.documents = {0};
  for (const TracedDocument& document : manifest_->documents) {
    shape_.documents.push_back(shape_.documents.back() + document.tokens);
  }
}

LayerRouting RoutingTrace::read(std::size_t at) const {
  assert(at < layers_.size());
  const auto count = static_cast<std::size_t>(shape_.requests());
  std::vector<std::uint16_t> words(2 * count);
  file_->read(offsets_[at], std::as_writable_bytes(std::span(words)));
  LayerRouting routing{layers_[at], {}, {}};
  routing.index.reserve(count);
  routing.weight.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    routing.index.push_back(static_cast<std::int16_t>(words[i]));
    routing.weight.push_back(base::f16_to_float(words[count + i]));
  }
  require_sound(shape_, routing, name());
  if (manifest_ && manifest_->layers[at].distinct != distinct_experts(shape_, routing)) {
    throw Error("{}: layer {}: {} distinct experts, the manifest says {}", name(), layers_[at],
                distinct_experts(shape_, routing), manifest_->layers[at].distinct);
  }
  return routing;
}

// The record's words, experts as int32, weights as float.
std::uint64_t RoutingTrace::bytes_of_a_layer() const {
  return static_cast<std::uint64_t>(shape_.requests()) * (4 + 4 + 4);
}

void export_trace(const fs::path& from, const fs::path& out, base::RamBudget& budget) {
  if (!store::is_folder(from)) {
    throw Error("{}: is no trace folder: records alone have nothing to withhold", from.string());
  }
  const TraceManifest manifest = read_trace_manifest(from / kTraceManifest);
  const RoutingTrace trace(from, manifest.experts == 0 ? kMaxExperts : 0);
  // As read, as a f16 gives it back, and as bytes.
  const base::Charge held(
      budget, "a layer of the trace",
      trace.bytes_of_a_layer() + static_cast<std::uint64_t>(trace.shape().requests()) * (8 + 4));
  TraceFolder folder(out, trace.shape(), false);
  for (std::size_t i = 0; i < trace.layers().size(); ++i) {
    folder.add(trace.read(i), manifest.layers[i].is_kda);
  }
  TraceManifest without = manifest;
  without.tag.clear();  // words of the user's own, too
  without.ids.clear();
  without.files.clear();
  folder.commit(std::move(without));
}

}  // namespace engine::measure
