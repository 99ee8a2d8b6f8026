#include "engine/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/at_path.h"
#include "engine/train/schedule.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

// An update that leaves float32 is never saved: the last checkpoint stays what a resume goes on from.
void require_finite(std::int64_t step, const model::AdapterSet& adapters) {
  for (const model::AdapterTensor& tensor : adapters.tensors()) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      if (std::isfinite(tensor.values[i])) continue;
      throw base::Error("step {}: the update made element {} of {} {}; it is not saved", step, i,
                        tensor.name, tensor.values[i]);
    }
    adapters.put_away(tensor);
  }
}

// Kept checkpoints and one more while it is written, less those that are there, and the final adapter; behind
// the last step that alone.
void require_disk(const OpenRun& run, const model::AdapterSet& adapters, std::int64_t step) {
  const Settings& settings = run.job.settings;
  const std::int64_t written =
      (settings.schedule.total + settings.checkpoint_every - 1) / settings.checkpoint_every;
  const std::int64_t kept = std::min(written, settings.keep);
  const std::int64_t there = count_snapshots(run.job.run);
  const std::int64_t more =
      step < settings.schedule.total ? std::max<std::int64_t>(kept + 1 - there, 1) : 0;
  const std::uint64_t each = snapshot_bytes(adapters), adapter = each / 3;
  // In double: a billion checkpoints of a large model are beyond 64 bits.
  const double needed =
      static_cast<double>(more) * static_cast<double>(each) + static_cast<double>(adapter);

  fs::path existing = store::absolute_path(run.job.run);
  while (!store::is_there(existing)) existing = existing.parent_path();
  const std::uint64_t free = store::free_bytes(existing);
  if (static_cast<double>(free) < needed) {
    throw base::Error(
        "{}: {} bytes free, {:.0f} needed: {} checkpoints of {} ({} kept and one being written, {} "
        "there) and the final adapter of {}; nothing was started",
        run.job.run.string(), free, needed, more, each, kept, there, adapter);
  }
}

double seconds(const Timing& begin, const Timing& end) {
  return static_cast<double>(end.monotonic_ns - begin.monotonic_ns) * 1e-9;
}

std::uint64_t bytes_read(const Timing& begin, const Timing& end) {
  return end.bytes_read - begin.bytes_read;
}

}  // namespace

Trainer::Trainer(OpenRun run, model::AdapterSet& adapters, base::RamBudget& budget,
                 SweepFunctions sweep, Observer observer)
    : run_(std::move(run)),
      adapters_(adapters),
      moments_(adapters, budget),
      sweep_(std::move(sweep)),
      observer_(std::move(observer)),
      order_(order_of(run_, budget)),
      clock_(run_.job.settings.adamw) {
  if (!run_.from) {
    require_disk(run_, adapters_, 0);
    adapters_.initialize(static_cast<std::uint64_t>(run_.job.settings.seed));
    return;
  }
  const SnapshotState& state = run_.from->state;
  load_tensors(run_.from->folder, adapters_, moments_);
  step_ = state.step;
  cursor_ = state.cursor;
  skipped_ = state.skipped;
  evaluated_ = state.evaluated;
  saved_ = state.step;
  clock_ = AdamwClock(run_.job.settings.adamw, step_);
  finished_ = is_finished();
  if (!finished_) require_disk(run_, adapters_, step_);
}

void Trainer::open_record() {
  const Job& job = run_.job;
  const SettingTexts settings = texts_of(job.settings);
  if (!job.resume) {
    const Manifest manifest{run_.run_id, job.identity, settings, run_.feed.count};
    if (run_.lock) {
      begin_anew(job.run, manifest, job.scales, job.start);
    } else {
      create_run(job.run, manifest, job.scales, job.start);
      run_.lock = std::make_shared<RunLock>(job.run);
    }
  }
  record_.emplace(job.run, run_.run_id, run_.from ? run_.from->state.log : LogPosition());
  breadcrumb_.emplace(job.run);
  if (observer_.noticed) {
    if (const auto& left = breadcrumb_->left_behind()) {
      observer_.noticed(
          fmt::format("the previous start {} in {}", verb_of(left->ending), describe(*left)));
    }
    if (!record_->notice().empty()) observer_.noticed(record_->notice());
  }
  breadcrumb_->drop(0, "start");
  if (job.resume) add_start(job.run, job.start, step_);
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
        .text("held_out_sha256", job.identity.held_out_sha256)
        .integer("data_sequences", run_.feed.count)
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

data::Taken Trainer::next(std::int64_t step) {
  const std::int64_t together = run_.job.settings.sequences;
  for (;;) {
    data::Taken taken = data::take(run_.feed, order_, cursor_, together);
    cursor_ += together;
    skipped_ += taken.skipped;
    if (taken.sequences > 0) return taken;
    // Nothing to train on: no step is taken, the step that was due takes what comes next.
    log(step, "skipped", JsonLine().null("loss").integer("skipped", taken.skipped));
  }
}

// An error inside says where the walk was.
template <class Walk>
model::SweepResult Trainer::walk(std::int64_t step, std::string_view name, const Walk& walk,
                                 Timing& forward_end) {
  breadcrumb_->drop(step, name);
  const Timing begin = timing();
  model::SweepHooks hooks;
  hooks.progress = [&](std::string_view way, std::int64_t layer) {
    const std::string_view direction = way == "forward" ? name : way;
    const Timing now = timing();
    if (way == "forward") forward_end = now;
    breadcrumb_->drop(step, direction, layer);
    if (observer_.moved) {
      observer_.moved({step, direction, layer, seconds(begin, now), bytes_read(begin, now)});
    }
  };
  try {
    return walk(hooks);
  } catch (const base::Error& error) {
    throw base::Error("{}: {}", place(breadcrumb_->here()), error.what());
  }
}

void Trainer::take_step(std::int64_t step) {
  const Settings& settings = run_.job.settings;
  const std::int64_t skipped_before = skipped_;
  const Timing begin = timing();
  data::Taken taken = next(step);
  const model::Batch batch = batch_of(std::move(taken.joined));
  adapters_.clear_gradients();

  Timing forward_end = timing();
  const auto up_and_down = [&](const model::SweepHooks& hooks) {
    return sweep_.forward_backward(batch, adapters_, hooks);
  };
  const model::SweepResult result = walk(step, "forward", up_and_down, forward_end);
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
  const Timing end = timing();
  record_->write(step, "step_end",
                 JsonLine()
                     .real("loss", result.loss)
                     .real("lr", rate)
                     .real("grad_norm", norm.norm)
                     .real("clip_scale", norm.scale)
                     .integer("trained", result.trained)
                     .integer("sequences", taken.sequences)
                     .integer("skipped", skipped_ - skipped_before)
                     .integer("cursor", cursor_),
                 end);
  if (observer_.stepped) {
    observer_.stepped({step, result.loss, rate, norm.norm, result.trained, batch.size(),
                       seconds(begin, end), bytes_read(begin, end)});
  }
}

void Trainer::log_checkpoint(const SnapshotDigests& digests) {
  log(step_, "checkpoint",
      JsonLine().text("adapter_sha256", digests.adapter).text("moments_sha256", digests.moments));
}

// In turn, a checkpoint has a line in the log; out of turn it has none.
void Trainer::checkpoint(bool in_turn) {
  const Job& job = run_.job;
  const Timing begin = timing();
  breadcrumb_->drop(step_, "checkpoint");
  SnapshotWriter writer(job.run, step_);
  const SnapshotDigests digests = writer.write_tensors(adapters_, moments_, job.identity);
  if (in_turn) log_checkpoint(digests);
  record_->sync();
  writer.publish({run_.run_id, job.identity, texts_of(job.settings), step_, cursor_, skipped_,
                  evaluated_, record_->position()});
  prune_snapshots(job.run, job.settings.keep);
  saved_ = step_;
  if (observer_.saved) {
    observer_.saved(step_, job.run / "checkpoints", seconds(begin, timing()));
  }
}

bool Trainer::evaluation_is_due() const {
  const Settings& settings = run_.job.settings;
  if (settings.eval_every == 0 || evaluated_ == step_) return false;
  return step_ % settings.eval_every == 0 || step_ == settings.schedule.total;
}

// Behind the step's checkpoint, so that it puts no step at risk; a resume repeats it where it is due.
void Trainer::evaluate(const std::function<bool()>& stop) {
  if (!evaluation_is_due()) return;
  const Timing begin = timing();
  const auto forward = [&](const model::Batch& batch) {
    const auto up = [&](const model::SweepHooks& hooks) {
      return sweep_.forward(batch, adapters_, hooks);
    };
    Timing unused;
    return walk(step_, "evaluation", up, unused);
  };
  const std::optional<Evaluation> found = train::evaluate(data::feed_of(run_.job.held_out, false),
                                                          run_.held_out_together, forward, stop);
  if (!found) return;
  log(step_, "evaluation",
      JsonLine()
          .real("loss", found->loss)
          .integer("trained", found->trained)
          .integer("sequences", found->sequences));
  evaluated_ = step_;
  if (observer_.evaluated) observer_.evaluated(step_, *found, seconds(begin, timing()));
}

bool Trainer::take_all_steps(const std::function<bool()>& stop) {
  const Settings& settings = run_.job.settings;
  if (step_ == settings.schedule.total && run_.from && !run_.from_is_logged) {
    // Saved out of turn, and the run's last since --override said so: a finished run's log names its adapter.
    const fs::path& last = run_.from->folder;
    log_checkpoint({base::sha256_hex_of_file(last / "adapter.safetensors"),
                    base::sha256_hex_of_file(last / "moments.safetensors")});
  }
  evaluate(stop);
  while (step_ < settings.schedule.total) {
    if (stop()) {
      if (saved_ < step_) checkpoint(false);
      return false;
    }
    take_step(step_ + 1);
    if (step_ % settings.checkpoint_every == 0 || step_ == settings.schedule.total) {
      checkpoint(true);
    }
    evaluate(stop);
  }
  if (evaluation_is_due()) return false;
  // Once more: a run that was killed while it pruned behind its last step ends here at once.
  prune_snapshots(run_.job.run, settings.keep);
  write_adapter(run_.job.run / "adapter.safetensors", adapters_, run_.job.identity);
  return true;
}

// Behind its last checkpoint a finished run has at most the line of its last evaluation. Lines behind that,
// whole or not, are those of a start that would have gone on: as in any other run the record moves them away.
bool Trainer::log_is_at_its_end() const {
  const std::int64_t saved = run_.from->state.log.lines;
  const std::int64_t due = evaluation_is_due() ? 1 : 0;
  std::int64_t evaluations = 0;
  const auto each = [&](std::string_view line, const LogPosition& behind) {
    if (behind.lines > saved && text_of(line, "phase") == "evaluation") ++evaluations;
  };
  try {
    const LogPosition end = check_log(run_.job.run / "log.jsonl", nullptr, each);
    return end.lines == saved + due && evaluations == due;
  } catch (const base::Error&) {
    return false;  // up to the checkpoint it holds: open_run has followed it
  }
}

// RUN/adapter.safetensors is written last.
bool Trainer::is_finished() const {
  const fs::path adapter = run_.job.run / "adapter.safetensors";
  return run_.from && run_.changes.empty() && step_ == run_.job.settings.schedule.total &&
         store::is_there(adapter) &&
         base::sha256_hex_of_file(adapter) ==
             base::sha256_hex_of_file(run_.from->folder / "adapter.safetensors") &&
         log_is_at_its_end();
}

bool Trainer::run(const std::function<bool()>& stop) {
  if (finished_) return true;
  bool asked = false;
  const auto latched = [&] { return asked = asked || (stop && stop()); };
  bool complete = false;
  try {
    open_record();
    complete = take_all_steps(latched);
  } catch (const std::exception&) {
    // Without one of its own, the breadcrumb of the start before stays as it is.
    if (breadcrumb_) breadcrumb_->stop(Ending::kError);
    throw;
  }
  if (complete) {
    breadcrumb_->remove();
  } else {
    breadcrumb_->stop(Ending::kAsked);
  }
  return complete;
}

}  // namespace engine::train
