#include "engine/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/train/schedule.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

model::Batch batch_of(const std::vector<data::Sequence>& sequences,
                      std::span<const std::int64_t> indices) {
  data::Joined joined = data::join(sequences, indices);
  return {std::move(joined.tokens), std::move(joined.targets), std::move(joined.borders)};
}

// An update that leaves float32 is never saved: the last checkpoint stays what a resume goes on from.
void require_finite(std::int64_t step, const model::AdapterSet& adapters) {
  for (const model::AdapterTensor& tensor : adapters.tensors()) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      if (std::isfinite(tensor.values[i])) continue;
      throw base::Error("step {}: the update made element {} of {} {}; it is not saved", step, i,
                        tensor.name, tensor.values[i]);
    }
  }
}

std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t bytes = 0;
  if (!fs::exists(folder)) return 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

// Kept checkpoints, one more while it is written, the final adapter; less what is there already.
void require_disk(const OpenRun& run, const model::AdapterSet& adapters) {
  const Settings& settings = run.job.settings;
  const std::int64_t written =
      (settings.schedule.total + settings.checkpoint_every - 1) / settings.checkpoint_every;
  const std::uint64_t each = snapshot_bytes(adapters);
  // In double: a billion checkpoints of a large model are beyond 64 bits.
  const double most = (static_cast<double>(std::min(written, settings.keep)) + 4.0 / 3.0) *
                      static_cast<double>(each);
  const auto there = static_cast<double>(bytes_below(run.job.run / "checkpoints"));
  const auto needed = static_cast<std::uint64_t>(
      std::min(most > there ? most - there : static_cast<double>(each), 0x1p63));

  fs::path existing = fs::absolute(run.job.run);
  while (!fs::exists(existing)) existing = existing.parent_path();
  const std::uint64_t free = fs::space(existing).available;
  if (free < needed) {
    throw base::Error(
        "{}: {} free, checkpoints need {} ({} each, {} kept and one being written, and the final "
        "adapter); nothing was started",
        run.job.run.string(), base::format_bytes(free), base::format_bytes(needed),
        base::format_bytes(each), settings.keep);
  }
}

void require_same(const char* what, const std::string& saved, const std::string& now) {
  if (saved != now) {
    throw base::Error("not the run's {}: SHA-256 {} in the run, {} here", what, saved, now);
  }
}

void require_same(const Identity& saved, const Identity& now) {
  require_same("config.json", saved.config_sha256, now.config_sha256);
  require_same("shard headers", saved.headers_sha256, now.headers_sha256);
  require_same("data", saved.data_sha256, now.data_sha256);
  require_same("preregistration", saved.preregistration_sha256, now.preregistration_sha256);
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
  const SettingTexts& saved = run.from ? run.from->state.settings : manifest.settings;
  require_same(run.from ? run.from->state.identity : manifest.identity, run.job.identity);
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
}

}  // namespace

OpenRun open_run(Job job) {
  OpenRun run{std::move(job), {}, {}, {}, {}, {}};
  require_valid(run.job.settings);
  run.job.identity.data_sha256 = data_digest(run.job.sequences);
  const std::optional<Manifest> manifest = read_manifest(run.job.run);
  const bool there = fs::exists(run.job.run) && !fs::is_empty(run.job.run);
  if (there && !run.job.resume) {
    throw base::Error("{}: is there already; --resume goes on with it", run.job.run.string());
  }
  if (there && !manifest) {
    throw base::Error("{}: is no run: it has no manifest.json", run.job.run.string());
  }
  if (!there && !run.job.overrides.empty()) {
    throw base::Error("--override {}: there is no run whose setting it could change",
                      run.job.overrides.front().first);
  }
  if (manifest) {
    resume(run, *manifest);
  } else {
    run.run_id = make_run_id(texts_of(run.job.settings), run.job.identity, run.job.name);
    if (run.job.resume) run.notices.push_back("nothing to resume: starting at step 1");
  }

  bool trains = false;
  for (std::size_t i = 0; i < run.job.sequences.size(); ++i) {
    run.sequences.push_back(data::make_sequence(run.job.sequence_names[i], run.job.sequences[i],
                                                run.job.settings.mask_first));
    trains = trains || run.sequences.back().trained() > 0;
  }
  if (!trains) {
    throw base::Error("{} sequences, none with a trained target (mask-first {}): 0 samples",
                      run.sequences.size(), run.job.settings.mask_first);
  }
  return run;
}

void require_memory(const OpenRun& run, std::int64_t most_tokens,
                    const std::function<void(const model::Batch&)>& require_budget) {
  const std::int64_t count = static_cast<std::int64_t>(run.sequences.size());
  const std::int64_t together = run.job.settings.sequences;
  // Whole rounds through the list are in every batch. In double: the product may leave 64 bits.
  double tokens = 0.0;
  for (const data::Sequence& sequence : run.sequences) {
    if (sequence.trained() > 0) tokens += static_cast<double>(sequence.tokens.size());
  }
  tokens *= static_cast<double>(together / count);
  if (tokens > static_cast<double>(most_tokens)) {
    throw base::Error(
        "memory budget: a step of {} sequences has {:.0f} tokens or more, the budget holds the "
        "residuals of {}",
        together, tokens, most_tokens);
  }
  const std::int64_t windows =
      std::min(count / std::gcd(count, together), run.job.settings.schedule.total);
  std::set<std::vector<std::int64_t>> seen;  // memory depends on the documents' lengths alone
  for (std::int64_t window = 0; window < windows; ++window) {
    const data::Taken taken = data::take(run.sequences, window * together, together);
    if (taken.sequences.empty()) continue;
    const model::Batch batch = batch_of(run.sequences, taken.sequences);
    if (seen.insert(batch.documents).second) require_budget(batch);
  }
}

Trainer::Trainer(OpenRun run, model::AdapterSet& adapters, base::RamBudget& budget,
                 SweepFunctions sweep, Observer observer)
    : run_(std::move(run)),
      adapters_(adapters),
      moments_(adapters, budget),
      sweep_(std::move(sweep)),
      observer_(std::move(observer)),
      clock_(run_.job.settings.adamw) {
  require_disk(run_, adapters_);
  if (!run_.from) {
    adapters_.initialize(static_cast<std::uint64_t>(run_.job.settings.seed));
    return;
  }
  const SnapshotState& state = run_.from->state;
  load_tensors(run_.from->folder, adapters_, moments_);
  step_ = state.step;
  cursor_ = state.cursor;
  skipped_ = state.skipped;
  clock_ = AdamwClock(run_.job.settings.adamw, step_);
}

void Trainer::open_record() {
  const Job& job = run_.job;
  const SettingTexts settings = texts_of(job.settings);
  const bool again = fs::exists(job.run / "manifest.json");
  if (!again) {
    create_run(job.run, {run_.run_id, job.identity, settings}, job.scales, job.start);
  }
  record_.emplace(job.run, run_.run_id, run_.from ? run_.from->state.log : LogPosition());
  breadcrumb_.emplace(job.run);
  if (observer_.noticed) {
    if (const auto& left = breadcrumb_->left_behind()) {
      observer_.noticed(fmt::format("the previous start {} in {}",
                                    left->stopped ? "stopped with an error" : "was killed",
                                    describe(*left)));
    }
    if (!record_->notice().empty()) observer_.noticed(record_->notice());
  }
  breadcrumb_->drop(0, "start");
  if (again) add_start(job.run, job.start, step_);
  if (!run_.from) {
    std::int64_t parameters = 0;
    for (const model::AdapterTensor& tensor : adapters_.tensors()) {
      parameters += static_cast<std::int64_t>(tensor.values.size());
    }
    JsonLine fields;
    for (const auto& [name, text] : settings) fields.text(name, text);
    fields.text("config_sha256", job.identity.config_sha256)
        .text("headers_sha256", job.identity.headers_sha256)
        .text("data_sha256", job.identity.data_sha256)
        .integer("tensors", static_cast<std::int64_t>(adapters_.tensors().size()))
        .integer("parameters", parameters);
    if (job.scales) {
      fields.integer("e8m0_255_groups", static_cast<std::int64_t>(job.scales->nan_groups))
          .integer("e8m0_255_groups_with_codes",
                   static_cast<std::int64_t>(job.scales->nan_groups_with_codes));
    } else {
      fields.null("e8m0_255_groups").null("e8m0_255_groups_with_codes");
    }
    log(0, "start", fields);
  }
  for (const SettingChange& change : run_.changes) {
    log(step_, "override",
        JsonLine()
            .text("setting", change.name)
            .text("saved", change.saved)
            .text("now", change.now));
  }
}

Timing Trainer::timing() const {
  Timing now = timing_now();
  if (sweep_.add_reads) sweep_.add_reads(now);
  return now;
}

void Trainer::log(std::int64_t step, std::string_view phase, const JsonLine& fields) {
  record_->write(step, phase, fields, timing());
}

model::Batch Trainer::next_batch(std::int64_t step) {
  const std::int64_t together = run_.job.settings.sequences;
  for (;;) {
    const data::Taken taken = data::take(run_.sequences, cursor_, together);
    cursor_ += together;
    skipped_ += taken.skipped;
    if (!taken.sequences.empty()) return batch_of(run_.sequences, taken.sequences);
    // Nothing to train on: no step is taken, the step that was due takes what comes next.
    log(step, "skipped", JsonLine().null("loss").integer("skipped", taken.skipped));
  }
}

// An error inside says where the walk was.
model::SweepResult Trainer::sweep(std::int64_t step, const model::Batch& batch,
                                  Timing& forward_end) {
  breadcrumb_->drop(step, "forward");
  model::SweepHooks hooks;
  hooks.progress = [&](std::string_view direction, std::int64_t layer) {
    if (direction == "forward") forward_end = timing();
    breadcrumb_->drop(step, direction, layer);
    if (observer_.moved) observer_.moved(step, direction, layer);
  };
  try {
    return sweep_.forward_backward(batch, adapters_, hooks);
  } catch (const base::Error& error) {
    throw base::Error("{}: {}", place(breadcrumb_->here()), error.what());
  }
}

void Trainer::take_step(std::int64_t step) {
  const Settings& settings = run_.job.settings;
  const std::int64_t skipped_before = skipped_;
  const model::Batch batch = next_batch(step);
  adapters_.clear_gradients();

  Timing forward_end = timing();
  const model::SweepResult result = sweep(step, batch, forward_end);
  record_->write(step, "forward_end",
                 JsonLine()
                     .real("loss", result.loss)
                     .integer("trained", result.trained)
                     .integers("distinct_experts", result.distinct_experts)
                     .integer("e8m0_255_groups", result.nan_groups)
                     .integer("e8m0_255_groups_with_codes", result.nan_groups_with_codes),
                 forward_end);
  log(step, "backward_end", JsonLine());
  if (!std::isfinite(result.loss)) {
    throw base::Error("step {}: loss is {}; nothing was changed", step, result.loss);
  }
  breadcrumb_->drop(step, "update");
  const AdamwNorm norm = adamw_norm(moments_.tensors(), settings.adamw.clip);
  const double rate = learning_rate(settings.schedule, step);
  clock_.tick();
  adamw_update(moments_.tensors(), settings.adamw, rate, norm.scale, clock_);
  require_finite(step, adapters_);
  step_ = step;
  log(step, "step_end",
      JsonLine()
          .real("loss", result.loss)
          .real("lr", rate)
          .real("grad_norm", norm.norm)
          .real("clip_scale", norm.scale)
          .integer("trained", result.trained)
          .integer("sequences", static_cast<std::int64_t>(batch.documents.size()) - 1)
          .integer("skipped", skipped_ - skipped_before)
          .integer("cursor", cursor_));
  if (observer_.stepped) observer_.stepped({step, result.loss, rate, norm.norm, result.trained});
}

void Trainer::checkpoint(std::int64_t step) {
  const Job& job = run_.job;
  breadcrumb_->drop(step, "checkpoint");
  SnapshotWriter writer(job.run, step);
  const SnapshotDigests digests = writer.write_tensors(adapters_, moments_, job.identity);
  log(step, "checkpoint",
      JsonLine().text("adapter_sha256", digests.adapter).text("moments_sha256", digests.moments));
  record_->sync();
  writer.publish({run_.run_id, job.identity, texts_of(job.settings), step, cursor_, skipped_,
                  record_->position()});
  prune_snapshots(job.run, job.settings.keep);
  if (observer_.saved) observer_.saved(step, job.run / "checkpoints");
}

void Trainer::take_all_steps() {
  const Settings& settings = run_.job.settings;
  while (step_ < settings.schedule.total) {
    take_step(step_ + 1);
    if (step_ % settings.checkpoint_every == 0 || step_ == settings.schedule.total) {
      checkpoint(step_);
    }
  }
  // Once more: a run that was killed while it pruned behind its last step ends here at once.
  prune_snapshots(run_.job.run, settings.keep);
  write_adapter(run_.job.run / "adapter.safetensors", adapters_, run_.job.identity);
}

void Trainer::run() {
  try {
    open_record();
    take_all_steps();
  } catch (const std::exception&) {
    // Without one of its own, the breadcrumb of the start before stays as it is.
    if (breadcrumb_) breadcrumb_->stop();
    throw;
  }
  breadcrumb_->remove();
}

}  // namespace engine::train
