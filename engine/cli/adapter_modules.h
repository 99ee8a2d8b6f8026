#pragma once

#include <string>
#include <vector>

#include "engine/adapter/exported.h"
#include "engine/model/config.h"
#include "engine/store/shard_reader.h"

namespace engine::cli {

// Where a checkpoint's adapters stand, by the names of its own modules.
class AdapterModules {
 public:
  // All targets of docs/training.md, layer by layer.
  AdapterModules(const model::Config& config, const store::ShardReader& shards);

  adapter::Base base() const { return {modules_, names_}; }
  // Those of some targets, in the same order.
  std::vector<adapter::Module> of(const std::vector<std::string>& targets) const;

 private:
  std::vector<adapter::Module> modules_;
  std::vector<std::string> names_;  // of all modules with a weight, as the shards name them
};

}  // namespace engine::cli
