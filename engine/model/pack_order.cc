#include "engine/model/pack_order.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/model/head.h"
#include "engine/model/layer_stream.h"

namespace engine::model {
namespace {

using store::TensorEntry;

// The tensors that lie in the ranges of a list.
store::PackRun tensors_of(const store::ShardReader& reader, const store::ReadList& list) {
  store::PackRun run;
  for (const store::ReadList::Range& range : list.ranges()) {
    const auto place_of = [](const TensorEntry& entry) {
      return std::pair(entry.shard, entry.offset);
    };
    auto at = std::ranges::upper_bound(reader.entries(), std::pair(range.shard, range.offset), {},
                                       place_of);
    for (--at; at != reader.entries().end() && at->shard == range.shard &&
               at->offset < range.offset + range.bytes;
         ++at) {
      run.push_back(&*at);
    }
  }
  return run;
}

}  // namespace

std::vector<store::PackRun> pack_order(const store::ShardReader& reader, const Config& config) {
  const LayerBlocks blocks(reader, config);
  std::vector<store::PackRun> runs;
  std::set<const TensorEntry*> taken;
  // The bands of a matrix are one run: those behind the first find it taken.
  const auto add = [&](std::uint32_t block) {
    store::PackRun run = tensors_of(reader, blocks.list(block));
    std::erase_if(run, [&](const TensorEntry* tensor) { return !taken.insert(tensor).second; });
    if (!run.empty()) runs.push_back(std::move(run));
  };
  runs.push_back({&reader.find(kEmbedding)});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    add(blocks.attention(layer));
    add(blocks.mlp(layer));
    if (!blocks.is_dense(layer)) continue;
    for (const DensePart part : kDenseParts) {
      for (std::int64_t band = 0; band < blocks.dense_bands(layer, part); ++band) {
        add(blocks.dense_band(layer, part, band));
      }
    }
  }
  add(blocks.output_mix());
  for (std::int64_t band = 0; band < blocks.bands(); ++band) add(blocks.band(band));
  return runs;
}

}  // namespace engine::model
