// A checkpoint folder: its configuration and its weights, decoded to double when they are first
// asked for.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "oracle/config.h"
#include "oracle/experts.h"
#include "oracle/mxfp4.h"
#include "oracle/safetensors.h"

namespace oracle {

// Threads  none: the cache is not locked; one Checkpoint a thread
class Checkpoint {
 public:
  // cache_bytes  of decoded weights kept for the next use, the least recently used dropped first. A
  //              caller that still holds a dropped tensor keeps it alive.
  explicit Checkpoint(const std::filesystem::path& folder, size_t cache_bytes = size_t{1} << 29)
      : folder_(folder),
        config_text_(read_text(folder / "config.json")),
        config_(parse_config(config_text_, (folder / "config.json").string())),
        store_(folder),
        cache_bytes_(cache_bytes) {}

  const Config& config() const { return config_; }
  const std::string& config_text() const { return config_text_; }
  const SafeTensors& store() const { return store_; }

  // Errors  throws std::runtime_error when the tensor is missing or has another shape
  Weights tensor(const std::string& name, const std::vector<int64_t>& shape) const {
    return cached(name, [&] {
      const TensorInfo& t = store_.info(name);
      if (t.shape != shape) {
        throw std::runtime_error(fmt::format("{}: {} is [{}], expected [{}]", t.file.string(), name,
                                             fmt::join(t.shape, ", "), fmt::join(shape, ", ")));
      }
      return store_.load(name);
    });
  }

  // A routed expert's matrix `name` (without .weight_packed), MXFP4, as [rows,cols].
  Weights mxfp4(const std::string& name, int64_t rows, int64_t cols) const {
    return cached(name, [&] {
      const auto part = [&](const std::string& suffix, int64_t part_cols) {
        const TensorInfo& t = store_.info(name + suffix);
        if (t.dtype != "U8" || t.shape != std::vector<int64_t>{rows, part_cols}) {
          throw std::runtime_error(
              fmt::format("{}{} is not U8 [{}, {}]", name, suffix, rows, part_cols));
        }
        return store_.bytes(name + suffix);
      };
      const std::vector<uint8_t> packed = part(".weight_packed", cols / 2);
      const std::vector<uint8_t> scale = part(".weight_scale", cols / kMxfp4Group);
      return decode_mxfp4(packed, scale, rows, cols, name);
    });
  }

 private:
  using Order = std::list<std::string>;  // most recently used first
  struct Entry {
    Weights values;
    Order::iterator place;
  };

  template <class Decode>
  Weights cached(const std::string& name, Decode decode) const {
    if (const auto it = cache_.find(name); it != cache_.end()) {
      order_.splice(order_.begin(), order_, it->second.place);
      return it->second.values;
    }
    const auto values = std::make_shared<const std::vector<double>>(decode());
    order_.push_front(name);
    cache_[name] = {values, order_.begin()};
    held_bytes_ += values->size() * sizeof(double);
    while (held_bytes_ > cache_bytes_ && order_.size() > 1) {
      const auto oldest = cache_.find(order_.back());
      held_bytes_ -= oldest->second.values->size() * sizeof(double);
      cache_.erase(oldest);
      order_.pop_back();
    }
    return values;
  }

  std::filesystem::path folder_;
  std::string config_text_;
  Config config_;
  SafeTensors store_;
  size_t cache_bytes_;
  mutable Order order_;
  mutable std::unordered_map<std::string, Entry> cache_;
  mutable size_t held_bytes_ = 0;
};

}  // namespace oracle
