#include "engine/model/glu_mlp.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "engine/ops/matmul.h"
#include "engine/ops/situ_glu.h"

namespace engine::model {
namespace {

ops::SituBetas betas_of(const Config& config) {
  return {config.situ_beta, config.situ_linear_beta};
}

// Results of a band have a place of their own before they go to their columns, so many at a time.
constexpr std::int64_t kPieceRows = 1024;

ops::Weight rows_of(const ops::Weight& w, std::int64_t first, std::int64_t count) {
  assert(w.kind != ops::WeightKind::kMxfp4);
  const std::int64_t size = w.kind == ops::WeightKind::kBf16 ? 2 : 4;
  return {w.kind, static_cast<const std::byte*>(w.data) + first * w.cols * size, nullptr, count,
          w.cols};
}

// body(first row in the matrix, weights of at most kPieceRows rows), ascending.
template <class Body>
void each_piece(const BandedMatrix& w, const Body& body) {
  std::int64_t before = 0;
  for (std::int64_t band = 0; band < w.bands; ++band) {
    const ops::Weight rows = w.band(band);
    for (std::int64_t first = 0; first < rows.rows; first += kPieceRows) {
      body(before + first, rows_of(rows, first, std::min(kPieceRows, rows.rows - first)));
    }
    before += rows.rows;
  }
}

// y = x W^T. piece: room for [T,kPieceRows], unless there is one band.
void forward_bands(const BandedMatrix& w, std::span<const float> x, std::span<float> y,
                   std::int64_t tokens, std::span<float> piece) {
  if (w.bands == 1) return ops::matmul_forward(x, w.band(0), y, tokens);
  const std::int64_t wide = static_cast<std::int64_t>(y.size()) / tokens;
  each_piece(w, [&](std::int64_t first, const ops::Weight& rows) {
    const std::span<float> results = piece.first(static_cast<std::size_t>(tokens * rows.rows));
    ops::matmul_forward(x, rows, results, tokens);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::copy_n(results.data() + t * rows.rows, rows.rows, y.data() + t * wide + first);
    }
  });
}

// d_x += d_y W.
void backward_bands(const BandedMatrix& w, std::span<const float> d_y, std::span<float> d_x,
                    std::int64_t tokens, std::span<float> piece) {
  if (w.bands == 1) return ops::matmul_backward(d_y, w.band(0), d_x, tokens);
  const std::int64_t wide = static_cast<std::int64_t>(d_y.size()) / tokens;
  each_piece(w, [&](std::int64_t first, const ops::Weight& rows) {
    const std::span<float> columns = piece.first(static_cast<std::size_t>(tokens * rows.rows));
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::copy_n(d_y.data() + t * wide + first, rows.rows, columns.data() + t * rows.rows);
    }
    ops::matmul_backward(columns, rows, d_x, tokens);
  });
}

struct GluActivations {
  std::span<float> gate, up, product;  // [T,I]
  LowRank gate_low, up_low, down_low;  // [T,R] adapters
  std::span<float> piece;              // [T,kPieceRows], empty without bands

  GluActivations(const HalfContext& context, const DenseBands& w, std::int64_t inner,
                 const GluTargets& targets)
      : gate(context.floats(context.tokens * inner)),
        up(context.floats(context.tokens * inner)),
        product(context.floats(context.tokens * inner)),
        gate_low(carve_adapter(context, targets.gate)),
        up_low(carve_adapter(context, targets.up)),
        down_low(carve_adapter(context, targets.down)),
        piece(context.floats(std::max({w.gate.bands, w.up.bands, w.down.bands}) > 1
                                 ? context.tokens * kPieceRows
                                 : 0)) {}
};

}  // namespace

void glu_forward(const HalfContext& context, const DenseBands& w, std::int64_t inner,
                 const GluTargets& targets, std::span<const float> x, std::span<float> out) {
  const base::Arena::Scope scope(context.arena);
  const GluActivations a(context, w, inner, targets);
  if (context.measuring()) return;
  const std::int64_t tokens = context.tokens;
  forward_bands(w.gate, x, a.gate, tokens, a.piece);
  forward_bands(w.up, x, a.up, tokens, a.piece);
  adapter_forward(context, targets.gate, x, a.gate_low, a.gate);
  adapter_forward(context, targets.up, x, a.up_low, a.up);
  ops::situ_glu_forward(a.gate, a.up, betas_of(context.config), a.product);
  forward_bands(w.down, a.product, out, tokens, a.piece);
  adapter_forward(context, targets.down, a.product, a.down_low, out);
}

void glu_backward(const HalfContext& context, const DenseBands& w, std::int64_t inner,
                  const GluTargets& targets, std::span<const float> x, std::span<const float> d_out,
                  std::span<float> d_x) {
  const base::Arena::Scope scope(context.arena);
  const GluActivations a(context, w, inner, targets);
  const std::span<float> d_product = context.floats(context.tokens * inner);
  if (context.measuring()) return;
  const std::int64_t tokens = context.tokens;
  std::fill(d_product.begin(), d_product.end(), 0.0f);
  backward_bands(w.down, d_out, d_product, tokens, a.piece);
  forward_bands(w.up, x, a.up, tokens, a.piece);
  forward_bands(w.gate, x, a.gate, tokens, a.piece);
  adapter_forward(context, targets.gate, x, a.gate_low, a.gate);
  adapter_forward(context, targets.up, x, a.up_low, a.up);
  ops::situ_glu_forward(a.gate, a.up, betas_of(context.config), a.product);
  adapter_low(context, targets.down, a.product, a.down_low);
  adapter_backward(context, targets.down, d_out, a.product, a.down_low, d_product);

  const std::span<float> d_gate = a.gate;
  const std::span<float> d_up = a.up;
  ops::situ_glu_backward(d_product, a.gate, a.up, betas_of(context.config), d_gate, d_up);
  backward_bands(w.gate, d_gate, d_x, tokens, a.piece);
  adapter_backward(context, targets.gate, d_gate, x, a.gate_low, d_x);
  backward_bands(w.up, d_up, d_x, tokens, a.piece);
  adapter_backward(context, targets.up, d_up, x, a.up_low, d_x);
}

}  // namespace engine::model
