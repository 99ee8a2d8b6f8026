#include "checks/forward_reference.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <stdexcept>

#include "checks/engine_run.h"
#include "checks/hdf5_file.h"
#include "oracle/model.h"

namespace checks {
namespace {

template <class T>
NamedTensor read_raw(const std::filesystem::path& file, std::int64_t rows) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  const auto row_bytes = static_cast<std::size_t>(rows) * sizeof(T);
  if (bytes.empty() || bytes.size() % row_bytes != 0) {
    throw std::runtime_error(
        fmt::format("{}: {} bytes are not rows of {} tokens", file.string(), bytes.size(), rows));
  }
  NamedTensor tensor{{rows, static_cast<std::int64_t>(bytes.size() / row_bytes)}, {}};
  tensor.data.resize(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < tensor.data.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    tensor.data[i] = static_cast<double>(value);
  }
  return tensor;
}

}  // namespace

ForwardReference read_dump_folder(const std::filesystem::path& folder, std::int64_t tokens) {
  ForwardReference reference{folder.string(), {}};
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".bin") continue;
    const std::string name = entry.path().stem().string();
    if (name == "logits_last") {
      reference.values[name] = read_raw<float>(entry.path(), 1);
    } else if (name.starts_with("route_idx")) {
      reference.values[name] = read_raw<std::int32_t>(entry.path(), tokens);
    } else {
      reference.values[name] = read_raw<float>(entry.path(), tokens);
    }
  }
  if (reference.values.empty()) throw std::runtime_error(folder.string() + ": holds no *.bin");
  return reference;
}

ForwardReference read_dump_file(const std::filesystem::path& file) {
  return {file.string(), read_hdf5(file)};
}

ForwardReference oracle_reference(const std::filesystem::path& model,
                                  const std::vector<std::int32_t>& ids) {
  const oracle::Checkpoint checkpoint(model);
  const auto trace = oracle::forward<double>(checkpoint, {}, oracle_batch(forward_batch(ids)), {});
  ForwardReference reference{"the oracle", {}};
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const auto put = [&](const std::string& name, const auto& data) {
    if (data.empty()) return;
    reference.values[name] = {{tokens, static_cast<std::int64_t>(data.size()) / tokens},
                              std::vector<double>(data.begin(), data.end())};
  };
  put("embed", trace.embed);
  put("final_res", trace.final_res);
  put("final_norm", trace.final_norm);
  put("logits", trace.logits);
  for (std::size_t n = 0; n < trace.layers.size(); ++n) {
    const auto& layer = trace.layers[n];
    const auto name = [&](const char* kind) { return fmt::format("{}_{:03}", kind, n); };
    put(name("h_layer"), layer.h_out);
    put(name("attn_res"), layer.attn_res);
    put(name("attn_in"), layer.attn_in);
    put(name("attn_out"), layer.attn_out);
    put(name("mlp_res"), layer.mlp_res);
    put(name("mlp_in"), layer.mlp_in);
    put(name("mlp_out"), layer.mlp_out);
    put(name("route_idx"), layer.route_idx);
    put(name("route_w"), layer.route_w);
    put(name("gap"), layer.gap);
  }
  return reference;
}

}  // namespace checks
