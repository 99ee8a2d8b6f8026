// The whole forward pass: embedding, layers, output mixture, head, loss.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/cross_entropy.h"
#include "oracle/layer.h"
#include "oracle/trace.h"

namespace oracle {

// Errors  throws std::invalid_argument when a token, target or document border cannot be
inline void check_batch(const Config& c, const Batch& batch) {
  const int64_t tokens = static_cast<int64_t>(batch.tokens.size());
  if (tokens == 0) throw std::invalid_argument("a batch without tokens");
  document_starts(batch.doc_begin, tokens);
  for (const int32_t id : batch.tokens) {
    if (id < 0 || id >= c.vocab)
      throw std::invalid_argument(fmt::format("token {} of {}", id, c.vocab));
  }
  if (!batch.targets.empty() && batch.targets.size() != batch.tokens.size()) {
    throw std::invalid_argument(
        fmt::format("{} targets for {} tokens", batch.targets.size(), tokens));
  }
  for (const int32_t id : batch.targets) {
    if (id < -1 || id >= c.vocab)
      throw std::invalid_argument(fmt::format("target {} of {}", id, c.vocab));
  }
}

// An adapter under a name that nothing looks up would be ignored in silence.
//
// Errors  throws std::invalid_argument naming it
// Source  docs/training.md section 1
template <class S>
void check_adapters(const Config& c, const Adapters<S>& adapters) {
  std::set<std::string> known;
  for (int64_t n = 0; n < c.layers; ++n) {
    std::vector<std::string> modules = {"q", "v"};
    for (const char* part : {"gate", "up", "down"}) {
      if (c.is_dense(n)) {
        modules.push_back(fmt::format("dense_{}", part));
      } else {
        modules.push_back(fmt::format("shared_{}", part));
        modules.push_back(fmt::format("expert_{}", part));
      }
    }
    for (const auto& module : modules) {
      for (const char* side : {"A", "B"})
        known.insert(fmt::format("layers.{}.{}.lora_{}", n, module, side));
    }
  }
  for (const auto& [name, values] : adapters.tensors) {
    if (!known.contains(name)) throw std::invalid_argument(name + " is no adapter of this model");
  }
}

// Embedding rows of the tokens, unscaled: [T,H]
template <class S>
std::vector<S> embed(const Checkpoint& checkpoint, const Batch& batch) {
  const Config& c = checkpoint.config();
  const Weights table =
      checkpoint.tensor("language_model.model.embed_tokens.weight", {c.vocab, c.hidden});
  std::vector<S> rows;
  for (const int32_t id : batch.tokens) {
    for (int64_t j = 0; j < c.hidden; ++j) rows.push_back(S((*table)[id * c.hidden + j]));
  }
  return rows;
}

// From the running residual after the last layer to the loss. The mixture over the bank is easy to
// forget: without it the logits look plausible.
//
// Shape   bank: entries of [T,H]   h [T,H]
// Source  docs/model.md section 10; docs/training.md section 2
template <class S>
Tail<S> tail_forward(const Checkpoint& checkpoint, const std::vector<std::vector<S>>& bank,
                     const std::vector<S>& h, const Batch& batch, const Options<S>& options = {}) {
  const Config& c = checkpoint.config();
  const std::string model = "language_model.model.";
  std::vector<std::span<const S>> sources(bank.begin(), bank.end());
  sources.emplace_back(h);
  Tail<S> tail;
  tail.final_res =
      attn_res<S>(sources, *checkpoint.tensor(model + "output_attn_res_norm.weight", {c.hidden}),
                  *checkpoint.tensor(model + "output_attn_res_proj.weight", {1, c.hidden}), c.eps);
  tail.final_norm =
      rmsnorm<S>(tail.final_res, *checkpoint.tensor(model + "norm.weight", {c.hidden}), c.eps);

  const Weights head = checkpoint.tensor("language_model.lm_head.weight", {c.vocab, c.hidden});
  if (options.logit_weights && options.logit_weights->size() != batch.tokens.size() * c.vocab) {
    throw std::invalid_argument("logit_weights is not [T, V]");
  }
  Accumulator<S> loss, weighted;
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    const bool trained = !batch.targets.empty() && batch.targets[t] >= 0;
    if (!trained && !options.keep_trace && !options.logit_weights) {
      if (!batch.targets.empty()) tail.nll.push_back(S(0));
      continue;
    }
    const auto row = std::span<const S>(tail.final_norm).subspan(t * c.hidden, c.hidden);
    const std::vector<S> logits = matmul<S, double>(*head, row, c.vocab, c.hidden);
    if (options.keep_trace) tail.logits.insert(tail.logits.end(), logits.begin(), logits.end());
    for (int64_t j = 0; options.logit_weights && j < c.vocab; ++j) {
      weighted.add((*options.logit_weights)[t * c.vocab + j], logits[j]);
    }
    if (batch.targets.empty()) continue;
    tail.nll.push_back(trained ? cross_entropy(std::span<const S>(logits), batch.targets[t])
                               : S(0));
    if (trained) {
      loss.add(tail.nll.back());
      ++tail.trained;
    }
  }
  if (tail.trained > 0) tail.loss = loss.result() / S(static_cast<double>(tail.trained));
  if (options.logit_weights) tail.weighted_logits = weighted.result();
  if (!options.keep_trace) {
    tail.final_res.clear();
    tail.final_norm.clear();
  }
  return tail;
}

// Cost    every weight of the model once a token; layers are decoded as they are reached
//         (Checkpoint's cache)
// Errors  throws std::invalid_argument for inputs that do not fit the model, std::runtime_error for
//         a faulty checkpoint
// Source  docs/model.md section 10
template <class S>
Trace<S> forward(const Checkpoint& checkpoint, const Adapters<S>& adapters, const Batch& batch,
                 const Options<S>& options = {}) {
  const Config& c = checkpoint.config();
  check_batch(c, batch);
  check_adapters(c, adapters);
  Trace<S> trace;
  std::vector<S> h = embed<S>(checkpoint, batch);
  if (options.keep_trace) trace.embed = h;
  std::vector<std::vector<S>> bank;
  for (int64_t n = 0; n < c.layers; ++n) {
    LayerTrace<S> layer = layer_forward<S>(checkpoint, n, bank, h, adapters, batch, options);
    h = layer.h_out;
    if (!options.keep_trace) {
      LayerTrace<S> small;
      small.route_idx = std::move(layer.route_idx);
      small.gap = std::move(layer.gap);
      small.gap_err = std::move(layer.gap_err);
      layer = std::move(small);
    }
    trace.layers.push_back(std::move(layer));
  }
  static_cast<Tail<S>&>(trace) = tail_forward<S>(checkpoint, bank, h, batch, options);
  return trace;
}

}  // namespace oracle
