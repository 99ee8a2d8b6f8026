#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace engine::model {

// Interior values and gradients of one sweep, kept for checks and dumps; training keeps none of it.
// Names are those of the dumps with the layer behind a point: "h_in.3", "attn_out.0", "route_w.12";
// without a layer "embed", "h_out", "final_res", "final_norm". Gradients have the names of their
// values, and "bank.2", "bank_later.2" for a bank entry: all that reaches it, and all but what its
// own layer's MLP mix sends.
class Trace {
 public:
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<float>> gradients;
  std::map<std::int64_t, std::vector<std::int32_t>> route_index;  // [layer] -> [T,k]
  std::map<std::int64_t, std::vector<float>> gap;                 // [layer] -> [T]
  bool routing_only = false;  // of the values keep "route_w" alone, and no gradient

  static std::string at(const std::string& point, std::int64_t index) {
    return point + "." + std::to_string(index);
  }
};

// What the layers are handed: keeps if there is a trace, does nothing otherwise.
class Tracer {
 public:
  Tracer() = default;
  Tracer(Trace* trace, std::int64_t layer) : trace_(trace), layer_(layer) {}

  void value(const char* point, std::span<const float> data) const {
    if (trace_ == nullptr) return;
    if (!trace_->routing_only || std::string_view(point) == "route_w") {
      keep(trace_->values, point, data);
    }
  }
  void gradient(const char* point, std::span<const float> data) const {
    if (trace_ != nullptr && !trace_->routing_only) keep(trace_->gradients, point, data);
  }
  void routing(std::span<const std::int32_t> index, std::span<const float> gap) const {
    if (trace_ == nullptr) return;
    trace_->route_index[layer_].assign(index.begin(), index.end());
    trace_->gap[layer_].assign(gap.begin(), gap.end());
  }

 private:
  void keep(std::map<std::string, std::vector<float>>& where, const char* point,
            std::span<const float> data) const {
    where[Trace::at(point, layer_)].assign(data.begin(), data.end());
  }
  Trace* trace_ = nullptr;
  std::int64_t layer_ = 0;
};

}  // namespace engine::model
