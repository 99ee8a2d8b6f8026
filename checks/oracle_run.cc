#include "checks/oracle_run.h"

#include "engine/base/rng.h"
#include "oracle/dual.h"
#include "oracle/real50.h"

namespace checks {

oracle::Batch oracle_batch(const engine::model::Batch& batch) {
  oracle::Batch other;
  other.tokens = batch.tokens;
  other.targets = batch.targets;
  other.doc_begin.assign(batch.documents.begin(), batch.documents.end() - 1);
  return other;
}

oracle::Adapters<double> oracle_adapters(const engine::model::AdapterSet& set) {
  oracle::Adapters<double> adapters;
  adapters.rank = set.settings().rank;
  adapters.alpha = set.settings().alpha;
  for (const engine::model::AdapterTensor& tensor : set.tensors()) {
    adapters.tensors[tensor.name].assign(tensor.values.begin(), tensor.values.end());
  }
  return adapters;
}

std::vector<double> oracle_logits(const std::filesystem::path& model,
                                  const engine::model::Batch& batch) {
  const oracle::Checkpoint checkpoint(model);
  return oracle::forward<double>(checkpoint, {}, oracle_batch(batch), {}).logits;
}

template <class S>
Witness<S> oracle_witness(const std::filesystem::path& model,
                          const oracle::Adapters<double>& adapters, const oracle::Batch& batch) {
  using Dual = oracle::Dual<S, 1>;
  oracle::Adapters<Dual> moving;
  moving.rank = adapters.rank;
  moving.alpha = adapters.alpha;
  for (const auto& [name, values] : adapters.tensors) {
    const engine::base::CounterRng rng(3, name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      Dual value(values[i]);
      value.tangent[0] = S((rng.bits(i) & 1u) != 0 ? 1.0 : -1.0);
      moving.tensors[name].push_back(value);
    }
  }
  oracle::Options<Dual> options;
  options.keep_trace = false;
  const oracle::Checkpoint checkpoint(model);
  const Dual loss = oracle::forward<Dual>(checkpoint, moving, batch, options).loss;
  return {loss.value, loss.tangent[0]};
}
template Witness<double> oracle_witness(const std::filesystem::path&,
                                        const oracle::Adapters<double>&, const oracle::Batch&);
template Witness<oracle::Real50> oracle_witness(const std::filesystem::path&,
                                                const oracle::Adapters<double>&,
                                                const oracle::Batch&);

}  // namespace checks
