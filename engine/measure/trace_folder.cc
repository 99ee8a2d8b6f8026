#include "engine/measure/trace_folder.h"

#include <cmath>
#include <cstring>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/f16.h"
#include "engine/base/sha256.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"

namespace engine::measure {
namespace {

namespace fs = std::filesystem;

const fs::path& unused(const fs::path& out) {
  store::require_unused(out);
  return out;
}

// The program runs on little-endian machines only (x86-64).
template <class T>
std::byte* put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
  return at + sizeof(T);
}

std::vector<std::byte> encode(const TraceShape& shape, const LayerRouting& routing) {
  std::vector<std::byte> record(12 + 4 * routing.index.size());
  std::byte* at = record.data();
  for (const std::int64_t value : {routing.layer, shape.tokens, shape.chosen}) {
    at = put(at, static_cast<std::int32_t>(value));
  }
  for (const std::int32_t expert : routing.index) at = put(at, static_cast<std::int16_t>(expert));
  for (const float weight : routing.weight) at = put(at, base::float_to_f16(weight));
  return record;
}

// What float32 holds, a f16 may not: too large, or so small that a token has no weight left.
LayerRouting as_stored(const LayerRouting& routing) {
  LayerRouting stored = routing;
  for (float& weight : stored.weight) weight = base::f16_to_float(base::float_to_f16(weight));
  return stored;
}

}  // namespace

TraceFolder::TraceFolder(const fs::path& out, const TraceShape& shape, bool hdf5)
    : out_(unused(out)), shape_(shape), folder_(out), records_(folder_.path() / kTraceFile) {
  if (hdf5) hdf5_ = std::make_unique<store::DumpWriter>(folder_.path() / kTraceHdf5);
}

void TraceFolder::add(const LayerRouting& routing, bool is_kda) {
  require_sound(shape_, routing, out_.string());
  require_sound(shape_, as_stored(routing), out_.string() + ": in f16");
  records_.write(encode(shape_, routing));
  if (hdf5_) {
    const std::string at = fmt::format("{:03}", routing.layer);
    hdf5_->write("route_idx_" + at, shape_.tokens, shape_.chosen,
                 std::span<const std::int32_t>(routing.index));
    hdf5_->write("route_w_" + at, shape_.tokens, shape_.chosen,
                 std::span<const float>(routing.weight));
  }
  rows_.push_back(
      {routing.layer, shape_.tokens, shape_.chosen, distinct_experts(shape_, routing), is_kda});
}

void TraceFolder::commit(TraceManifest manifest) {
  manifest.layers = rows_;
  records_.commit();
  const bool hdf5 = hdf5_ != nullptr;
  if (hdf5 && !manifest.config_sha256.empty()) {
    hdf5_->attribute("config_sha256", manifest.config_sha256);
  }
  if (hdf5) hdf5_->commit();
  for (const char* name : {kTraceFile, kTraceHdf5}) {
    if (name == std::string_view(kTraceHdf5) && !hdf5) continue;
    const fs::path file = folder_.path() / name;
    manifest.files[name] = {store::file_bytes(file), base::sha256_hex_of_file(file)};
  }
  store::write_file_durably(folder_.path() / kTraceManifest, to_json(manifest));
  folder_.commit();
}

}  // namespace engine::measure
