// What goes into a forward pass of the oracle besides the checkpoint, and all that comes out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace oracle {

// One sequence of T tokens, of one document or of several packed ones.
struct Batch {
  std::vector<int32_t> tokens;           // [T]
  std::vector<int32_t> targets;          // [T], -1 where masked; or empty: no loss is wanted
  std::vector<int64_t> doc_begin = {0};  // first token of every document
};

// Low-rank adapters by native name, "layers.{n}.{module}.lora_A" [rank,in] and ".lora_B"
// [out,rank]. A module that is absent has no adapter; an empty map is the base model.
template <class S>
struct Adapters {
  int64_t rank = 0;
  double alpha = 0;
  std::map<std::string, std::vector<S>> tensors;
};

// All [T][..] row-major; the names are those of the dumps (docs/formats.md, Dumps).
template <class S>
struct LayerTrace {
  std::vector<S> h_in;      // [T,H] running residual that enters, add_to_layer_input included
  std::vector<S> attn_res;  // [T,H] mixture that input_layernorm sees
  std::vector<S> attn_in;   // [T,H]
  std::vector<S> attn_out;  // [T,H]
  std::vector<S> mlp_res;   // [T,H] mixture that post_attention_layernorm sees
  std::vector<S> mlp_in;    // [T,H]
  std::vector<S> mlp_out;   // [T,H]
  std::vector<S> h_out;     // [T,H] h_layer
  std::vector<int32_t> route_idx;  // [T,k], and all below: empty for a dense layer
  std::vector<S> route_w;          // [T,k]
  std::vector<S> moe_z;            // [T,L] latent input of the routed experts
  std::vector<S> moe_acc;          // [T,L] their weighted sum, before the latent norm
  std::vector<double> gap;         // [T] see Routing in router.h
  std::vector<double> gap_err;     // [T]
};

template <class S>
struct Tail {
  std::vector<S> final_res;   // [T,H] after the output aggregation
  std::vector<S> final_norm;  // [T,H]
  std::vector<S> logits;      // [T,V]
  std::vector<S> nll;         // [T] nats, 0 where masked; empty without targets
  S loss = S(0);  // mean of nll over the trained positions of the whole batch; 0 if there is none
  int64_t trained = 0;       // how many those are
  S weighted_logits = S(0);  // <Options::logit_weights, logits>; 0 without
};

template <class S>
struct Trace : Tail<S> {
  std::vector<S> embed;               // [T,H]
  std::vector<LayerTrace<S>> layers;  // one a layer
};

// Where to disturb a forward pass, so that Dual gives derivatives with respect to what is inside.
template <class S>
struct Options {
  // n -> [T,H], added to the running residual that enters layer n before anything sees it: a
  // boundary layer's snapshot holds it, so the derivative is the TOTAL one. n = 0 is the embedding
  // output.
  std::map<int64_t, std::vector<S>> add_to_layer_input;
  // j -> [T,H], added to bank entry j when it is pushed: to the copy in the bank only, not to the
  // residual. So the derivative covers every use as a bank entry, from the pushing layer's own MLP
  // mixture on.
  std::map<int64_t, std::vector<S>> add_to_bank_entry;
  // Per layer [T,k] experts to use instead of choosing (empty for a dense layer).
  const std::vector<std::vector<int32_t>>* replay_routing = nullptr;
  // [T,V]: also compute weighted_logits, for adjoint checks of the head.
  const std::vector<S>* logit_weights = nullptr;
  // false: of every layer only route_idx, gap and gap_err are kept, of the tail nll and the
  // scalars.
  bool keep_trace = true;
};

}  // namespace oracle
