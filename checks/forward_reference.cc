#include "checks/forward_reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "checks/engine_run.h"
#include "checks/hdf5_file.h"
#include "checks/oracle_run.h"
#include "engine/data/ids.h"

namespace checks {
namespace {

template <class T>
NamedTensor read_raw(const std::filesystem::path& file, std::int64_t rows) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file.string() + ": cannot be opened");
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

std::optional<std::string> text_of(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in && text.empty()) throw std::runtime_error(file.string() + ": cannot be read");
  return text.substr(0, text.find_last_not_of(" \n\r\t") + 1);
}

std::vector<std::int32_t> ids_of(const ForwardReference& reference) {
  auto ids =
      engine::data::parse_ids(*reference.ids, std::int64_t{1} << 31, reference.name + ": ids");
  if (ids.empty()) throw std::runtime_error(reference.name + ": its ids are none");
  return ids;
}

// What an array of this name must be wide; nothing if it is none of ours.
std::optional<std::int64_t> width_of(const std::string& name, const engine::model::Config& config) {
  if (name.starts_with("logits")) return config.vocabulary;
  if (name.starts_with("route_")) return config.chosen;
  if (name.starts_with("gap_")) return 1;
  if (name.starts_with("moe_")) return config.latent;
  for (const char* kind : {"h_layer_", "attn_", "mlp_", "embed", "final_"}) {
    if (name.starts_with(kind)) return config.hidden;
  }
  return std::nullopt;
}

}  // namespace

void require_fit(const ForwardReference& reference, const engine::model::Config& config,
                 const std::vector<std::int32_t>& ids) {
  if (reference.config_sha256 && *reference.config_sha256 != config.sha256) {
    throw std::runtime_error(
        fmt::format("{}: was made from a config.json with SHA-256 {}, the model's has {}",
                    reference.name, *reference.config_sha256, config.sha256));
  }
  if (reference.ids) {
    const std::vector<std::int32_t> theirs = ids_of(reference);
    const auto [a, b] = std::ranges::mismatch(theirs, ids);
    if (theirs.size() != ids.size()) {
      throw std::runtime_error(fmt::format("{}: was made from {} ids, {} are given", reference.name,
                                           theirs.size(), ids.size()));
    }
    if (a != theirs.end()) {
      throw std::runtime_error(fmt::format("{}: id {} is {} there, {} is given", reference.name,
                                           a - theirs.begin(), *a, *b));
    }
  }
  const auto tokens = static_cast<std::int64_t>(ids.size());
  for (const auto& [name, tensor] : reference.values) {
    const std::optional<std::int64_t> width = width_of(name, config);
    if (!width) continue;
    const std::int64_t rows = name == "logits_last" ? 1 : tokens;
    if (tensor.data.size() != static_cast<std::size_t>(rows * *width) || tensor.shape.empty() ||
        tensor.shape[0] != rows) {
      throw std::runtime_error(fmt::format("{}: {} is [{}], model and ids make it [{},{}]",
                                           reference.name, name, fmt::join(tensor.shape, ","), rows,
                                           *width));
    }
  }
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (reference.values.contains(fmt::format("h_layer_{:03}", layer))) continue;
    throw std::runtime_error(fmt::format("{}: has no h_layer_{:03}; the model has {} layers",
                                         reference.name, layer, config.layers));
  }
  if (reference.values.contains(fmt::format("h_layer_{:03}", config.layers))) {
    throw std::runtime_error(fmt::format("{}: has an h_layer_{:03}; the model has {} layers",
                                         reference.name, config.layers, config.layers));
  }
}

ForwardReference read_dump_folder(const std::filesystem::path& folder, std::int64_t tokens) {
  ForwardReference reference;
  reference.name = folder.string();
  reference.ids = text_of(folder / "ids.txt");
  reference.config_sha256 = text_of(folder / "config_sha256.txt");
  if (reference.ids) tokens = static_cast<std::int64_t>(ids_of(reference).size());
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
  return {file.string(), read_hdf5(file), read_hdf5_attribute(file, "ids"),
          read_hdf5_attribute(file, "config_sha256")};
}

ForwardReference oracle_reference(const std::filesystem::path& model,
                                  const std::vector<std::int32_t>& ids) {
  const oracle::Checkpoint checkpoint(model);
  const auto trace = oracle::forward<double>(checkpoint, {}, oracle_batch(forward_batch(ids)), {});
  ForwardReference reference;
  reference.name = "the oracle";
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
