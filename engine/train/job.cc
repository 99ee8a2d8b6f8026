#include "engine/train/job.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "engine/base/error.h"
#include "engine/ops/kda.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"
#include "engine/store/folder_kind.h"
#include "engine/train/traces.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

// So many steps of a shuffled set are looked at beforehand; a later one that does not fit is refused
// when it is due.
constexpr std::int64_t kMostWindows = 1'000'000;

void require_same(const std::string& what, const std::string& saved, const std::string& now) {
  if (saved != now) {
    const auto digest = [](const std::string& text) { return text.empty() ? "none" : text; };
    throw base::Error("not the run's {}: SHA-256 {} in the run, {} here", what, digest(saved),
                      digest(now));
  }
}

void require_same(const Identity& saved, const Job& job) {
  const Identity& now = job.identity;
  const auto data = [](const char* what, const std::shared_ptr<const data::PackedSet>& set) {
    return set == nullptr ? what : fmt::format("{} ({})", what, set->folder().string());
  };
  require_same("config.json", saved.config_sha256, now.config_sha256);
  require_same("shard headers", saved.headers_sha256, now.headers_sha256);
  require_same(data("data", job.set), saved.data_sha256, now.data_sha256);
  require_same(data("held-out data", job.held_out), saved.held_out_sha256, now.held_out_sha256);
  require_same("preregistration", saved.preregistration_sha256, now.preregistration_sha256);
}

// Killed before its first checkpoint, a run has nothing to go on from, and repeats its first steps. Had it a
// checkpoint, then steps are lost, and to begin again without a word would hide it.
void begin_at_step_1(OpenRun& run) {
  const Traces traces = read_traces(run.job.run);
  if (traces.saved.empty()) {
    run.notices.push_back(
        traces.step == 0
            ? "no step was taken yet: starting at step 1"
            : fmt::format("no checkpoint yet ({} steps taken): starting at step 1 again",
                          traces.step));
    return;
  }
  throw base::Error(
      "{}: no checkpoint is there, but {}; its log's last step is {}. Put the checkpoints back, or "
      "begin anew with another --out",
      (run.job.run / "checkpoints").string(), traces.saved, traces.step);
}

// What a resume goes on from, settings resolved.
void resume(OpenRun& run, const Manifest& manifest) {
  FoundSnapshot found = find_newest(run.job.run);
  if (!found.newest && !found.refused.empty()) {
    std::string all;
    for (const std::string& why : found.refused) all += "\n  " + why;
    throw base::Error("{}: no checkpoint is whole:{}", run.job.run.string(), all);
  }
  for (const std::string& why : found.refused) {
    run.notices.push_back("checkpoint passed over: " + why);
  }
  run.from = std::move(found.newest);
  if (run.from) {
    // Now, not when the record is opened: a finished run opens none, and days may lie between.
    const auto last = [&](std::string_view line, const LogPosition&) {
      run.from_is_logged = text_of(line, "phase") == "checkpoint";
    };
    check_log(run.job.run / "log.jsonl", &run.from->state.log, last);
  } else {
    begin_at_step_1(run);
  }
  const SettingTexts& saved = run.from ? run.from->state.settings : manifest.settings;
  require_same(run.from ? run.from->state.identity : manifest.identity, run.job);
  Resolved resolved = resolve(run.job.settings, saved, run.job.overrides);
  run.job.settings = resolved.settings;
  run.changes = std::move(resolved.changes);
  run.run_id = make_run_id(manifest.settings, manifest.identity, run.job.name);
  if (run.run_id != manifest.run_id || (run.from && run.from->state.run_id != manifest.run_id)) {
    throw base::Error("{}: run {}, checkpoint of run {}; with name \"{}\" it would be run {}",
                      run.job.run.string(), manifest.run_id,
                      run.from ? run.from->state.run_id : "(none)", run.job.name, run.run_id);
  }
  if (run.from && run.from->state.step > run.job.settings.schedule.total) {
    throw base::Error("{}: {} steps taken, {} asked for", run.job.run.string(),
                      run.from->state.step, run.job.settings.schedule.total);
  }
  if (!run.from || run.from->state.step < run.job.settings.schedule.total) return;
  // No step is left, so no line of the log or checkpoint would ever say so: but where the run ends.
  for (const SettingChange& change : run.changes) {
    if (change.name == "steps") continue;
    throw base::Error(
        "--override {}={}: {}: its {} steps were taken with {}, and none is left for it; with "
        "--override steps=MORE it holds for those",
        change.name, change.now, run.job.run.string(), run.from->state.step, change.saved);
  }
}

// The files' ids in memory, or the set's sequences from disk.
data::Feed feed_of(const Job& job) {
  if (job.set != nullptr) return data::feed_of(job.set, true);
  std::vector<data::Sequence> sequences;
  for (std::size_t i = 0; i < job.sequences.size(); ++i) {
    sequences.push_back(
        data::make_sequence(job.sequence_names[i], job.sequences[i], job.settings.mask_first));
  }
  const std::string name = fmt::format("{} sequences of ids", sequences.size());
  return data::feed_of(name, std::move(sequences));
}

void require_trained(const data::Feed& feed, std::int64_t mask_first) {
  for (std::int64_t i = 0; i < feed.count; ++i) {
    if (feed.sequence(i).trained() > 0) return;
  }
  throw base::Error("{}: 0 samples: none has a trained target (mask-first {})", feed.name,
                    mask_first);
}

// What of its documents the memory of a batch depends on: it grows with each of these. No document:
// a sequence that is passed over.
struct Extent {
  std::int64_t tokens;
  std::int64_t chunks;  // of KDA states
  std::int64_t longest;

  bool covers(const Extent& other) const {
    return tokens >= other.tokens && chunks >= other.chunks && longest >= other.longest;
  }
};

class Extents {
 public:
  Extents(const data::Feed& feed, base::RamBudget& budget) {
    const auto count = static_cast<std::size_t>(feed.count);
    // Of a few files it is no reason to refuse: the plan of the whole work, which comes next, tells more.
    if (feed.shuffled) charge_.emplace(budget, "extents of sequences", count * sizeof(Extent));
    all_.resize(count);
    for (std::int64_t i = 0; i < feed.count; ++i) {
      const data::Joined one = feed.sequence(i);
      if (one.trained() == 0) continue;
      std::int64_t longest = 0;
      for (std::size_t d = 1; d < one.borders.size(); ++d) {
        longest = std::max(longest, one.borders[d] - one.borders[d - 1]);
      }
      all_[static_cast<std::size_t>(i)] = {one.borders.back(), ops::kda_chunks(one.borders),
                                           longest};
    }
  }
  std::int64_t tokens() const {
    std::int64_t tokens = 0;
    for (const Extent& extent : all_) tokens += extent.tokens;
    return tokens;
  }
  Extent of(data::Order& order, std::int64_t cursor, std::int64_t count) const {
    Extent sum{};
    for (std::int64_t i = cursor; i < cursor + count; ++i) {
      const Extent& one = all_[static_cast<std::size_t>(order.at(i))];
      sum.tokens += one.tokens;
      sum.chunks += one.chunks;
      sum.longest = std::max(sum.longest, one.longest);
    }
    return sum;
  }

 private:
  std::vector<Extent> all_;
  std::optional<base::Charge> charge_;
};

}  // namespace

void require_place(const fs::path& run, bool resume) {
  for (fs::path path = store::absolute_path(run); !path.empty(); path = path.parent_path()) {
    if (store::is_folder(path)) break;
    std::error_code ignored;  // what the system does not tell was an Error just now
    if (fs::symlink_status(path, ignored).type() != fs::file_type::not_found) {
      throw base::Error("{}: is no folder, and a run is one: name another --out", path.string());
    }
  }
  const bool there = store::is_there(run) && !store::is_empty(run);
  if (!there && resume) {
    throw base::Error("{}: no run to resume here; leave --resume away to begin one", run.string());
  }
  if (!there) return store::require_unused(run, store::EmptyFolder::kTaken);
  store::require_kind(run, store::FolderKind::kRun);
  if (!store::is_there(run / "manifest.json")) {
    throw base::Error(
        "{}: is there already and is no run: it has no manifest.json; name another --out",
        run.string());
  }
  if (resume) return;
  const Traces traces = read_traces(run);
  const fs::path checkpoints = run / "checkpoints";
  const bool empty = !store::is_there(checkpoints) || store::is_empty(checkpoints);
  if (traces.step == 0 && traces.saved.empty() && empty) return;
  throw base::Error(
      "{}: is there already, a run with {} steps in its log; --resume goes on with it",
      run.string(), traces.step);
}

OpenRun open_run(Job job) {
  OpenRun run;
  run.job = std::move(job);
  require_valid(run.job.settings);
  assert(run.job.set == nullptr || run.job.settings.mask_first == 0);
  assert((run.job.held_out != nullptr) == (run.job.settings.eval_every > 0));
  Identity& identity = run.job.identity;
  identity.data_sha256 = run.job.set ? run.job.set->digest() : data_digest(run.job.sequences);
  if (run.job.held_out) identity.held_out_sha256 = run.job.held_out->digest();
  require_place(run.job.run, run.job.resume);
  if (!run.job.resume && !run.job.overrides.empty()) {
    throw base::Error("--override {}: there is no run whose setting it could change (--resume)",
                      run.job.overrides.front().first);
  }
  if (store::is_there(run.job.run / "manifest.json")) {
    run.lock = std::make_shared<RunLock>(run.job.run);
    require_place(run.job.run, run.job.resume);  // once more: now nobody changes it
  }
  if (run.job.resume) {
    resume(run, *read_manifest(run.job.run));
  } else {
    run.run_id = make_run_id(texts_of(run.job.settings), identity, run.job.name);
    if (run.lock)
      run.notices.push_back("takes the place of a run that ended before its first step");
  }
  run.feed = feed_of(run.job);
  require_trained(run.feed, run.job.settings.mask_first);
  return run;
}

model::Batch batch_of(data::Joined joined) {
  return {std::move(joined.tokens), std::move(joined.targets), std::move(joined.borders)};
}

data::Order order_of(const OpenRun& run, base::RamBudget& budget) {
  if (!run.feed.shuffled) return data::Order(run.feed.count);
  return data::Order(run.feed.count, static_cast<std::uint64_t>(run.job.settings.seed), budget);
}

void require_memory(const OpenRun& run, base::RamBudget& budget, std::int64_t most_tokens,
                    const std::function<void(ops::Documents)>& require_budget) {
  const std::int64_t count = run.feed.count;
  const std::int64_t together = run.job.settings.sequences;
  const Extents extents(run.feed, budget);
  // Whole rounds through the list are in every batch. In double: the product may leave 64 bits.
  const double tokens =
      static_cast<double>(extents.tokens()) * static_cast<double>(together / count);
  if (tokens > static_cast<double>(most_tokens)) {
    throw base::Error(
        "memory budget: a step of {} sequences has {:.0f} tokens or more, the budget holds the "
        "residuals of {}",
        together, tokens, most_tokens);
  }
  data::Order order = order_of(run, budget);
  const std::int64_t windows =
      std::min(run.feed.shuffled ? kMostWindows : count / std::gcd(count, together),
               run.job.settings.schedule.total);
  const std::int64_t start = run.from ? run.from->state.cursor : 0;
  struct Window {
    Extent extent{};
    std::int64_t cursor = 0;
  };
  std::vector<Window> largest;  // none covers another
  for (std::int64_t window = 0; window < windows; ++window) {
    const std::int64_t cursor = start + window * together;
    const Extent extent = extents.of(order, cursor, together);
    const auto covered = [&](const Window& w) { return w.extent.covers(extent); };
    if (extent.tokens == 0 || std::ranges::any_of(largest, covered)) continue;
    std::erase_if(largest, [&](const Window& w) { return extent.covers(w.extent); });
    largest.push_back({extent, cursor});
  }
  for (const Window& window : largest) {
    if (window.extent.tokens > most_tokens) {
      throw base::Error(
          "memory budget: a step of {} sequences has {} tokens, the budget holds the residuals of "
          "{}",
          together, window.extent.tokens, most_tokens);
    }
    require_budget(data::take_borders(run.feed, order, window.cursor, together));
  }
}

}  // namespace engine::train
