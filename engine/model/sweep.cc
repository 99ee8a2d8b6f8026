#include "engine/model/sweep.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "engine/base/float_mode.h"
#include "engine/ops/attn_res.h"
#include "engine/ops/rmsnorm.h"

namespace engine::model {

Sweep::Sweep(const store::ShardReader& reader, const LayerBlocks& blocks, const Config& config,
             base::RamBudget& budget, const ModelOptions& options, const Batch& batch,
             const AdapterSet* adapters, bool backward, const SweepHooks& hooks,
             const Continuation& continued)
    : reader_(reader),
      config_(config),
      batch_(batch),
      adapters_(adapters),
      backward_(backward),
      hooks_(hooks),
      carried_(continued.state) {
  assert((continued.state == nullptr) == (continued.streams == nullptr));
  Plan plan = plan_sweep(blocks, config, batch.documents, adapters, backward, continued.state);
  if (continued.streams == nullptr) plan.spend(budget.free_bytes());
  const std::int64_t wide = batch.size() * config.hidden;
  const std::int64_t entries = config.bank_entries();
  activations_ = budget.take<std::byte>("activations of half a layer", plan.activations_bytes);
  head_ = budget.take<std::byte>("logits of a band and loss state", plan.head_bytes);
  residual_ = budget.take<float>("residual and its gradient", wide);
  bank_ = budget.take<float>("bank and its gradients", entries * wide);
  route_ = budget.take<std::int32_t>("routing of one layer", batch.size() * config.chosen);
  routed_ = budget.take<float>("routing of one layer", batch.size() * config.latent);
  if (backward) {
    entered_ = budget.take<float>("residual and its gradient", wide);
    d_residual_ = budget.take<float>("residual and its gradient", wide);
    d_bank_ = budget.take<float>("bank and its gradients", entries * wide);
    store_.emplace(options.scratch);
  }
  for (std::int64_t entry = 0; entry < entries; ++entry) {
    bank_entries_.push_back(bank_.data() + entry * wide);
    if (backward) d_bank_entries_.push_back(d_bank_.data() + entry * wide);
  }
  arena_ = base::Arena(activations_.span());
  base::Arena head_arena(head_.span());
  scorer_.emplace(config, batch.size(), head_arena);
  WeightStreams* streams = continued.streams;
  if (streams == nullptr) {
    streams = &own_streams_.emplace(reader, blocks, config, budget, options, plan);
  }
  layers_ = &streams->layers();
  experts_ = &streams->experts();
}

HalfContext Sweep::context(std::int64_t layer) {
  return {config_,
          layer,
          batch_.size(),
          batch_.documents,
          adapters_,
          arena_,
          Tracer(hooks_.trace, layer),
          carried_};
}

ExpertSource Sweep::experts(std::int64_t layer) {
  return config_.is_dense(layer) ? ExpertSource{} : experts_->source(layer);
}

Bank Sweep::bank(std::int64_t entries) const {
  return Bank(bank_entries_).first(static_cast<std::size_t>(entries));
}

BankGradient Sweep::bank_gradient(std::int64_t entries) {
  return BankGradient(d_bank_entries_).first(static_cast<std::size_t>(entries));
}

void Sweep::keep(const char* kind, std::int64_t layer, std::span<const float> data) {
  if (store_) store_->write(kind, layer, std::as_bytes(data));
}

void Sweep::recall(const char* kind, std::int64_t layer, std::span<float> data) {
  store_->read(kind, layer, std::as_writable_bytes(data));
}

void Sweep::trace_value(const std::string& name, std::span<const float> data) const {
  if (hooks_.trace == nullptr || hooks_.trace->routing_only) return;
  hooks_.trace->values[name].assign(data.begin(), data.end());
}

void Sweep::trace_gradient(const std::string& name, std::span<const float> data) const {
  if (hooks_.trace == nullptr || hooks_.trace->routing_only) return;
  hooks_.trace->gradients[name].assign(data.begin(), data.end());
}

// The residual that entered goes to the store and, at a boundary, into the bank, where only what
// follows the attention's own mix may see it.
MoeStatistics Sweep::forward_halves(std::int64_t layer) {
  const std::int64_t before = config_.bank_before(layer);
  const std::int64_t after = config_.bank_before(layer + 1);
  const bool boundary = config_.is_boundary(layer);
  const std::span<float> residual = residual_.span();
  trace_value(Trace::at("h_in", layer), residual);
  keep("h", layer, residual);
  if (boundary)
    std::copy(residual.begin(), residual.end(),
              bank_.data() + before * static_cast<std::int64_t>(residual_.size()));
  attention_half_forward(context(layer), layers_->attention(layer), bank(before), boundary,
                         residual);
  keep("r", layer, residual);
  const MoeStatistics statistics = mlp_half_forward(
      context(layer), layers_->mlp(layer), experts(layer), bank(after), record(), residual);
  if (adapters_ != nullptr) adapters_->put_away(layer);
  return statistics;
}

void Sweep::forward_layer_and_keep(std::int64_t layer, SweepResult& result) {
  const MoeStatistics statistics = forward_halves(layer);
  result.distinct_experts.push_back(statistics.distinct_experts);
  result.smallest_gap.push_back(statistics.smallest_gap);
  if (store_ && !config_.is_dense(layer)) {
    store_->write("route", layer, std::as_bytes(route_.span()));
    keep("routed", layer, routed_.span());
  }
}

void Sweep::forward_layers(SweepResult& result) {
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    forward_layer_and_keep(layer, result);
    if (hooks_.progress) hooks_.progress("forward", layer);
  }
}

// Output mix, final norm, head; and, for a gradient, back through all three.
void Sweep::score(SweepResult& result) {
  const base::Arena::Scope scope(arena_);
  const std::int64_t wide = batch_.size() * config_.hidden;
  const std::span<float> mixed = arena_.take<float>(wide);
  const std::span<float> normed = arena_.take<float>(wide);
  const std::span<float> inv = arena_.take<float>(batch_.size());
  std::vector<const float*> sources(bank_entries_);
  sources.push_back(residual_.data());
  const Head::BandSource bands = [&](std::int64_t band) { return layers_->band(band); };
  {
    const MixWeights w = layers_->output_mix();
    ops::attn_res_forward(sources, w.res_norm, w.res_proj, config_.rms_norm_eps, mixed);
    ops::rmsnorm_forward(mixed, w.norm, config_.rms_norm_eps, normed, inv);
  }
  trace_value("h_out", residual_.span());
  trace_value("final_res", mixed);
  trace_value("final_norm", normed);
  result.nll.resize(static_cast<std::size_t>(batch_.size()));
  scorer_->forward(normed, batch_.targets, bands, hooks_.logits, result.nll);
  if (!backward_) return;

  const std::span<float> d_normed = arena_.take<float>(wide);
  const std::span<float> d_mixed = arena_.take<float>(wide);
  scorer_->backward(normed, batch_.targets, batch_.loss_count(), bands, hooks_.logit_gradient,
                    d_normed);
  std::fill(d_mixed.begin(), d_mixed.end(), 0.0f);
  std::vector<float*> gradients(d_bank_entries_);
  gradients.push_back(d_residual_.data());
  const MixWeights w = layers_->output_mix();
  ops::rmsnorm_backward(d_normed, mixed, w.norm, inv, d_mixed);
  ops::attn_res_backward(d_mixed, sources, w.res_norm, w.res_proj, config_.rms_norm_eps, gradients);
  trace_gradient("final_norm", d_normed);
  trace_gradient("final_res", d_mixed);
  trace_gradient("h_out", d_residual_.span());
}

void Sweep::backward_layer(std::int64_t layer) {
  const std::int64_t before = config_.bank_before(layer);
  const std::int64_t after = config_.bank_before(layer + 1);
  const bool boundary = config_.is_boundary(layer);
  const std::span<float> entered = entered_.span();
  const std::span<float> d_residual = d_residual_.span();
  std::span<float> d_own;  // of the snapshot taken here, if one was
  if (boundary) {
    d_own = d_bank_.span().subspan(static_cast<std::size_t>(before) * residual_.size(),
                                   residual_.size());
  }
  if (boundary) trace_gradient(Trace::at("bank_later", before), d_own);
  if (!config_.is_dense(layer)) {
    store_->read("route", layer, std::as_writable_bytes(route_.span()));
    recall("routed", layer, routed_.span());
  }
  recall("r", layer, entered);
  mlp_half_backward(context(layer), layers_->mlp(layer), experts(layer), bank(after), record(),
                    entered, bank_gradient(after), d_residual);
  recall("h", layer, entered);
  attention_half_backward(context(layer), layers_->attention(layer), bank(before), boundary,
                          entered, bank_gradient(before), d_residual);
  // The snapshot taken here is this layer's input: all that later layers sent to it arrives now.
  if (boundary) {
    trace_gradient(Trace::at("bank", before), d_own);
    for (std::size_t i = 0; i < d_residual.size(); ++i) d_residual[i] += d_own[i];
  }
  trace_gradient(Trace::at("h_in", layer), d_residual);
  adapters_->put_away(layer);
  if (hooks_.progress) hooks_.progress("backward", layer);
}

SweepResult Sweep::run() {
  const base::CanonicalFloatMode mode;
  SweepResult result;
  result.trained = batch_.trained();
  result.loss = std::numeric_limits<double>::quiet_NaN();
  if (backward_ && result.trained == 0) return result;
  const std::uint64_t bytes_before = reader_.bytes_read();
  const std::uint64_t saved_before = layers_->bytes_saved() + experts_->bytes_saved();
  // Who continues a sequence knows how often it will.
  if (carried_ == nullptr) layers_->want_sweep(config_.layers, backward_);
  embed(reader_, config_, batch_, residual_.span());
  trace_value("embed", residual_.span());
  forward_layers(result);
  result.nan_groups = experts_->nan_groups();
  result.nan_groups_with_codes = experts_->nan_groups_with_codes();
  if (backward_) experts_->want_all_again();
  score(result);
  if (result.trained > 0) {
    // A document's loss is summed in token order, then the documents in theirs.
    double sum = 0.0;
    for (std::size_t d = 0; d + 1 < batch_.documents.size(); ++d) {
      double document = 0.0;
      for (std::int64_t t = batch_.documents[d]; t < batch_.documents[d + 1]; ++t) {
        document += result.nll[static_cast<std::size_t>(t)];
      }
      sum += document;
    }
    result.loss = sum / static_cast<double>(batch_.loss_count());
    if (backward_) {
      for (std::int64_t layer = config_.layers - 1; layer >= 0; --layer) backward_layer(layer);
    }
  }
  result.bytes_read = reader_.bytes_read() - bytes_before;
  result.bytes_saved = layers_->bytes_saved() + experts_->bytes_saved() - saved_before;
  if (carried_ != nullptr) carried_->advance(batch_.size());
  return result;
}

void Sweep::enter(std::span<const std::vector<float>> bank, std::span<const float> h) {
  for (std::size_t entry = 0; entry < bank.size(); ++entry) {
    std::copy(bank[entry].begin(), bank[entry].end(), bank_.data() + entry * residual_.size());
  }
  std::copy(h.begin(), h.end(), residual_.data());
}

void Sweep::forward_layer(std::int64_t layer, std::span<const std::vector<float>> bank,
                          std::span<float> h) {
  const base::CanonicalFloatMode mode;
  enter(bank, h);
  layers_->want_layer(layer, false);
  forward_halves(layer);
  std::copy_n(residual_.data(), h.size(), h.begin());
}

SweepResult Sweep::forward_backward_layer(std::int64_t layer,
                                          std::span<const std::vector<float>> bank,
                                          std::span<float> h, std::span<float> d_h) {
  const base::CanonicalFloatMode mode;
  SweepResult result;
  const std::uint64_t bytes_before = reader_.bytes_read();
  enter(bank, h);
  layers_->want_layer(layer, true);
  forward_layer_and_keep(layer, result);
  std::copy_n(residual_.data(), h.size(), h.begin());
  experts_->want_all_again();
  std::copy(d_h.begin(), d_h.end(), d_residual_.data());
  backward_layer(layer);
  std::copy_n(d_residual_.data(), d_h.size(), d_h.begin());
  result.bytes_read = reader_.bytes_read() - bytes_before;
  result.bytes_saved = layers_->bytes_saved() + experts_->bytes_saved();
  return result;
}

}  // namespace engine::model
