#include "engine/measure/layer_norms.h"

#include <cmath>

namespace engine::measure {
namespace {

double square(double x) { return x * x; }

double change_squared(const ops::Lora& lora) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < lora.rank; ++i) {
    for (std::int64_t j = 0; j < lora.rank; ++j) {
      double rows = 0.0, columns = 0.0;
      for (std::int64_t k = 0; k < lora.in; ++k) {
        rows += static_cast<double>(lora.a[i * lora.in + k]) * lora.a[j * lora.in + k];
      }
      for (std::int64_t k = 0; k < lora.out; ++k) {
        columns += static_cast<double>(lora.b[k * lora.rank + i]) * lora.b[k * lora.rank + j];
      }
      sum += rows * columns;
    }
  }
  return square(lora.scale) * sum;
}

double squares(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += square(value);
  return sum;
}

}  // namespace

std::vector<LayerNorms> layer_norms(const model::AdapterSet& adapters, std::int64_t layers) {
  std::vector<LayerNorms> norms;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    double change = 0.0, gradient = 0.0;
    for (std::size_t t = 0; t < model::kTargetNames.size(); ++t) {
      const model::AdapterPair* pair = adapters.find(layer, static_cast<model::Target>(t));
      if (pair == nullptr) continue;
      change += change_squared(pair->lora);
      gradient += squares(pair->d_a) + squares(pair->d_b);
    }
    norms.push_back({layer, std::sqrt(change), std::sqrt(gradient)});
  }
  return norms;
}

}  // namespace engine::measure
