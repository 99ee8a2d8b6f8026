#include "engine/model/head.h"

#include <algorithm>
#include <map>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/weight_loader.h"
#include "engine/ops/matmul.h"

namespace engine::model {
void embed(const store::ShardReader& reader, const Config& config, const Batch& batch,
           std::span<float> out) {
  std::map<std::int32_t, std::vector<std::int64_t>> places;
  for (std::int64_t t = 0; t < batch.size(); ++t) {
    const std::int32_t token = batch.tokens[static_cast<std::size_t>(t)];
    if (token < 0 || token >= config.vocabulary) {
      throw base::Error("token {} at position {} is outside the vocabulary of {}", token, t,
                        config.vocabulary);
    }
    places[token].push_back(t);
  }
  std::vector<std::byte> block;
  for (const auto& [token, positions] : places) {
    store::ReadList list;
    const auto load = [&, id = token](WeightLoader loader) {
      return loader.matrix_rows(kEmbedding, config.vocabulary, config.hidden, id, 1);
    };
    load(WeightLoader(reader, list));
    list.place();
    // The row, and itself once more, widened.
    block.resize(list.room_bytes() + static_cast<std::size_t>(config.hidden) * sizeof(float) + 64);
    for (const store::ReadList::Range& range : list.ranges()) {
      const std::size_t at = range.room + range.offset % store::kBlock;
      reader.read(range.shard, range.offset, std::span(block).subspan(at, range.bytes));
    }
    base::Arena arena(block);
    const ops::Weight row = load(WeightLoader(reader, list, arena));
    for (const std::int64_t t : positions) {
      const std::span<float> to = out.subspan(static_cast<std::size_t>(t * config.hidden),
                                              static_cast<std::size_t>(config.hidden));
      if (row.kind == ops::WeightKind::kF32) {
        std::copy_n(static_cast<const float*>(row.data), to.size(), to.begin());
      } else {
        const auto* narrow = static_cast<const std::uint16_t*>(row.data);
        std::transform(narrow, narrow + to.size(), to.begin(), base::bf16_to_float);
      }
    }
  }
}

Head::Head(const Config& config, std::int64_t tokens, base::Arena& arena)
    : config_(config),
      tokens_(tokens),
      logits_(arena.take<float>(tokens * std::min(ops::kVocabBand, config.vocabulary))),
      state_{arena.take<float>(tokens), arena.take<double>(tokens), arena.take<float>(tokens)} {}

template <class Body>
void Head::each_band(std::span<const float> x, const BandSource& bands, const Body& body) {
  for (std::int64_t first = 0; first < config_.vocabulary; first += ops::kVocabBand) {
    const ops::Weight band = bands(first / ops::kVocabBand);
    const std::span<float> logits = logits_.first(static_cast<std::size_t>(tokens_ * band.rows));
    ops::matmul_forward(x, band, logits, tokens_);
    body(first, logits, band);
  }
}

void Head::forward(std::span<const float> x, std::span<const std::int32_t> targets,
                   const BandSource& bands, const LogitsHook& hook, std::span<double> nll) {
  ops::cross_entropy_start(state_);
  each_band(x, bands, [&](std::int64_t first, std::span<float> logits, const ops::Weight& band) {
    if (hook) hook(first, band.rows, logits);
    ops::cross_entropy_band(logits, first, targets, state_);
  });
  ops::cross_entropy_finish(targets, state_, nll);
}

void Head::backward(std::span<const float> x, std::span<const std::int32_t> targets,
                    std::int64_t count, const BandSource& bands, const LogitGradientHook& hook,
                    std::span<float> d_x) {
  std::fill(d_x.begin(), d_x.end(), 0.0f);
  each_band(x, bands, [&](std::int64_t first, std::span<float> logits, const ops::Weight& band) {
    if (hook) {
      hook(first, band.rows, logits);
    } else {
      ops::cross_entropy_backward(logits, first, targets, state_, count, logits);
    }
    ops::matmul_backward(logits, band, d_x, tokens_);
  });
}

}  // namespace engine::model
