#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/adapter_set.h"
#include "engine/train/adamw.h"
#include "engine/train/schedule.h"

namespace engine::train {

// Everything that the bytes of a run's log and adapter depend on besides model and data. What is
// not here (threads, memory, instruction set, folders) may change from one resume to the next.
struct Settings {
  Schedule schedule;  // total = steps
  AdamwSettings adamw;
  model::AdapterSettings adapter;
  std::int64_t seed = 0;
  std::int64_t sequences = 1;
  std::int64_t mask_first = 0;
  std::int64_t checkpoint_every = 5;
  std::int64_t keep = 3;
  bool strict = false;
};

// visit(name, member, what it is) for every setting. The one list behind the command line's flags,
// the saved settings, the run id and --override.
template <class AnySettings, class Visitor>
void visit_settings(AnySettings& s, Visitor&& visit) {
  visit("steps", s.schedule.total, "steps of the whole run; the schedule ends there");
  visit("lr", s.schedule.peak, "peak learning rate");
  visit("min-lr", s.schedule.floor, "learning rate of the last step");
  visit("warmup", s.schedule.warmup, "steps of linear warm-up");
  visit("beta1", s.adamw.beta1, "decay of the first moment");
  visit("beta2", s.adamw.beta2, "decay of the second moment");
  visit("eps", s.adamw.eps, "added to the root of the second moment");
  visit("weight-decay", s.adamw.weight_decay, "decoupled weight decay");
  visit("clip", s.adamw.clip, "largest norm of all gradients together");
  visit("rank", s.adapter.rank, "rank of the adapters");
  visit("alpha", s.adapter.alpha, "adapters are scaled by alpha / rank");
  visit("targets", s.adapter.targets, "adapted projections, by native name");
  visit("seed", s.seed, "seed of the adapters' first values");
  visit("sequences", s.sequences, "sequences a step");
  visit("mask-first", s.mask_first, "predictions of the first N tokens of a file are not trained");
  visit("checkpoint-every", s.checkpoint_every, "steps between checkpoints");
  visit("keep", s.keep, "checkpoints kept");
  visit("strict", s.strict, "refuse E8M0 scale bytes of 255");
}

// Settings as names and texts, in visit_settings' order; a text gives the same value back.
using SettingTexts = std::vector<std::pair<std::string, std::string>>;
SettingTexts texts_of(const Settings& settings);

// Errors    Error naming the setting: there is none of that name (and which there are), or the
//           text is not a value of its kind
void set(Settings& settings, const std::string& name, const std::string& text);

// Errors    Error naming the first setting that is out of range, its value and the range
void require_valid(const Settings& settings);

struct SettingChange {
  std::string name, saved, now;
};

// `given` against what a checkpoint was made with: a difference is an Error naming the setting and
// both values, unless `overrides` (name, text) names it; then the override's value holds and is
// returned as a change. Going on silently with either value would be wrong.
// Errors    as said, for all differences at once; an override of an unknown name or a bad value
struct Resolved {
  Settings settings;
  std::vector<SettingChange> changes;
};
Resolved resolve(const Settings& given, const SettingTexts& saved, const SettingTexts& overrides);

}  // namespace engine::train
