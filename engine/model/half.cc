#include "engine/model/half.h"

#include <algorithm>

#include "engine/ops/lora.h"
#include "engine/ops/matmul.h"

namespace engine::model {
namespace {

ops::Weight matrix_a(const ops::Lora& lora) {
  return {ops::WeightKind::kF32, lora.a.data(), nullptr, lora.rank, lora.in};
}

ops::Weight matrix_b(const ops::Lora& lora) {
  return {ops::WeightKind::kF32, lora.b.data(), nullptr, lora.out, lora.rank};
}

}  // namespace

LowRank carve_adapter(const HalfContext& context, Target target) {
  const AdapterPair* pair = context.adapter(target);
  const std::int64_t count = pair == nullptr ? 0 : context.tokens * pair->lora.rank;
  return {context.floats(count), context.floats(count)};
}

void adapter_low(const HalfContext& context, Target target, std::span<const float> x,
                 const LowRank& low) {
  const AdapterPair* pair = context.adapter(target);
  if (pair == nullptr) return;
  ops::matmul_forward(x, matrix_a(pair->lora), low.u, context.tokens);
}

void adapter_forward(const HalfContext& context, Target target, std::span<const float> x,
                     const LowRank& low, std::span<float> y) {
  const AdapterPair* pair = context.adapter(target);
  if (pair == nullptr) return;
  ops::lora_forward(pair->lora, x, low.u, y, context.tokens);
}

void adapter_input_gradient(const HalfContext& context, Target target, std::span<const float> d_y,
                            const LowRank& low, std::span<float> d_x) {
  const AdapterPair* pair = context.adapter(target);
  if (pair == nullptr) return;
  std::fill(low.d_u.begin(), low.d_u.end(), 0.0f);
  ops::matmul_backward(d_y, matrix_b(pair->lora), low.d_u, context.tokens);
  for (float& value : low.d_u) value *= pair->lora.scale;
  ops::matmul_backward(low.d_u, matrix_a(pair->lora), d_x, context.tokens);
}

void adapter_backward(const HalfContext& context, Target target, std::span<const float> d_y,
                      std::span<const float> x, const LowRank& low, std::span<float> d_x) {
  const AdapterPair* pair = context.adapter(target);
  if (pair == nullptr) return;
  ops::lora_backward(pair->lora, context.documents, d_y, x, low.u, low.d_u, pair->d_a, pair->d_b,
                     d_x);
}

}  // namespace engine::model
