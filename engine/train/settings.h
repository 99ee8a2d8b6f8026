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
  std::int64_t eval_every = 0;
  bool strict = false;
};

// What a number may be: least <= value <= most, and the same in words. The upper ends of the whole
// numbers are beyond any use, and keep sums and products of them within 64 bits.
struct Range {
  double least = 0.0;
  double most = 0.0;
  const char* text = "";
};
inline constexpr double kLargestCount = 1e12;
inline constexpr Range kFromZero{0.0, kLargestCount, "0 ... 1000000000000"};
inline constexpr Range kFromOne{1.0, kLargestCount, "1 ... 1000000000000"};
inline constexpr Range kUpToAMillion{1.0, 1e6, "1 ... 1000000"};
inline constexpr Range kSeed{0.0, 0x1p63, "0 ... 9223372036854775807"};
inline constexpr Range kNotNegative{0.0, 1.7976931348623157e308, "finite and not negative"};
inline constexpr Range kPositive{4.9406564584124654e-324, 1.7976931348623157e308,
                                 "finite and positive"};
inline constexpr Range kBelowOne{0.0, 1.0 - 0x1p-53, "at least 0 and below 1"};
// As float32 a smaller eps is zero or nearly so, and with no gradient yet the update is 0 / 0.
inline constexpr Range kNormalFloat{0x1p-126, 1.7976931348623157e308,
                                    "at least 2^-126, the smallest normal float32, and finite"};
inline constexpr Range kNoNumber{};

// visit(name, member, range, what it is) for every setting. The one list behind the command line's
// flags, the saved settings, the run id and --override.
template <class AnySettings, class Visitor>
void visit_settings(AnySettings& s, Visitor&& visit) {
  visit("steps", s.schedule.total, kFromOne, "steps of the whole run; the schedule ends there");
  visit("lr", s.schedule.peak, kNotNegative, "peak learning rate");
  visit("min-lr", s.schedule.floor, kNotNegative, "learning rate of the last step, at most lr");
  visit("warmup", s.schedule.warmup, kFromZero, "steps of linear warm-up");
  visit("beta1", s.adamw.beta1, kBelowOne, "decay of the first moment");
  visit("beta2", s.adamw.beta2, kBelowOne, "decay of the second moment");
  visit("eps", s.adamw.eps, kNormalFloat, "added to the root of the second moment");
  visit("weight-decay", s.adamw.weight_decay, kNotNegative, "decoupled weight decay");
  visit("clip", s.adamw.clip, kPositive, "largest norm of all gradients together");
  visit("rank", s.adapter.rank, kUpToAMillion, "rank of the adapters");
  visit("alpha", s.adapter.alpha, kPositive, "adapters are scaled by alpha / rank");
  visit("targets", s.adapter.targets, kNoNumber,
        "adapted projections, by native name, with commas between");
  visit("seed", s.seed, kSeed, "seed of the adapters' first values and of a set's order");
  visit("sequences", s.sequences, kUpToAMillion, "sequences a step");
  visit("mask-first", s.mask_first, kFromZero,
        "predictions of the first N tokens of a file are not trained");
  visit("checkpoint-every", s.checkpoint_every, kFromOne, "steps between checkpoints");
  visit("keep", s.keep, kFromOne, "checkpoints kept");
  visit("eval-every", s.eval_every, kFromZero,
        "steps between evaluations of --eval-data, from step 0 on; 0: none");
  visit("strict", s.strict, kNoNumber, "refuse E8M0 scale bytes of 255");
}

// Settings as names and texts, in visit_settings' order; a text gives the same value back.
using SettingTexts = std::vector<std::pair<std::string, std::string>>;
SettingTexts texts_of(const Settings& settings);

// Errors    Error naming the setting: there is none of that name (and which there are), or the
//           text is not a decimal number in its range (true or false for a switch)
void set(Settings& settings, const std::string& name, const std::string& text);

// Errors    Error naming the first setting that is out of range, its value and the range; min-lr
//           above lr; a target of an unknown name, or named twice
void require_valid(const Settings& settings);

struct SettingChange {
  std::string name, saved, now;
};

// `given` against what a checkpoint was made with: a difference is an Error naming the setting and
// both values, unless `overrides` (name, text) names it; then the override's value holds and is
// returned as a change. Going on silently with either value would be wrong. What the adapters' shapes
// are made of (rank, targets) holds for the whole run: no override changes it.
// Errors    as said, for all differences at once; an override of an unknown name or a bad value, or of
//           what cannot be overridden, naming what can
struct Resolved {
  Settings settings;
  std::vector<SettingChange> changes;
};
Resolved resolve(const Settings& given, const SettingTexts& saved, const SettingTexts& overrides);

}  // namespace engine::train
