// check_forward: the engine's forward pass against the oracle, or against a dump of an independent
// program, layer by layer. Without arguments: everything that is found (see `make check-forward`).

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "checks/engine_run.h"
#include "checks/forward_table.h"
#include "engine/cli/waiting.h"
#include "engine/data/ids.h"

namespace {

using checks::ForwardReference;
using checks::ForwardTable;
using checks::LayerRow;

void print_rows(const char* title, const std::vector<LayerRow>& rows) {
  fmt::print("{}\n{:>5}  {:<9} {:>13} {:>10} {:>10} {:>10} {:>9} {:>8} {:>10} {:>9}\n", title,
             "layer", "kind", "cosine", "max diff", "std got", "std want", "err/allow", "routing",
             "least gap", "certified");
  for (const LayerRow& row : rows) {
    const std::string routing =
        row.compared_routing ? fmt::format("{} differ", row.routing_differs) : "-";
    const std::string gap = row.smallest_gap ? fmt::format("{:.3e}", *row.smallest_gap) : "-";
    const std::string certified = row.uncertified > 0 ? fmt::format("all but {}", row.uncertified)
                                  : row.smallest_gap && !row.compared_routing ? "all"
                                                                              : "-";
    fmt::print(
        "{:>5}  {:<9} {:>13.10f} {:>10.3e} {:>10.4f} {:>10.4f} {:>9.2e} {:>8} {:>10} {:>9} {}{}\n",
        row.layer, row.kind, row.cosine, row.largest_difference, row.deviation_got,
        row.deviation_want, row.worst, routing, gap, certified, row.worst_stage,
        row.holds ? "" : "  DOES NOT HOLD");
  }
}

checks::TableRecord::Figures figures_of(const LayerRow& row) {
  checks::TableRecord::Figures record = {{"layer", row.layer},
                                         {"kind", row.kind},
                                         {"cosine", row.cosine},
                                         {"max_difference", row.largest_difference},
                                         {"std_got", row.deviation_got},
                                         {"std_want", row.deviation_want},
                                         {"worst", row.worst},
                                         {"worst_stage", row.worst_stage},
                                         {"uncertified", row.uncertified}};
  if (row.compared_routing) record["routing_differs"] = row.routing_differs;
  if (row.smallest_gap) record["smallest_gap"] = *row.smallest_gap;
  return record;
}

class Report {
 public:
  explicit Report(const std::string& out) : record_("check_forward", out) {}

  void add(const std::string& title, const ForwardTable& table) {
    fmt::print("\n== {}\n", title);
    print_rows("free-running: |difference| <= 1e-3 std, cosine >= 0.999999, same routing",
               table.free_running);
    print_rows("layer by layer from the reference's inputs: every stage within its rounding bound",
               table.layer_by_layer);
    bool all = table.logits_hold;
    for (const auto* rows : {&table.free_running, &table.layer_by_layer}) {
      for (const LayerRow& row : *rows) {
        tally.record(row.holds);
        all = all && row.holds;
        const char* how = rows == &table.free_running ? "free-running" : "layer by layer";
        record_.row(title, fmt::format("{}, layer {}", how, row.layer),
                    row.holds ? "holds" : "fails", figures_of(row));
      }
    }
    if (table.argmax_differs >= 0) {
      tally.record(table.logits_hold);
      record_.row(title, "logits", table.logits_hold ? "holds" : "fails",
                  {{"worst", table.logits_worst}, {"argmax_differs", table.argmax_differs}});
      fmt::print("logits: error over allowed {:.2e}, {} argmax differ{}\n", table.logits_worst,
                 table.argmax_differs, table.logits_hold ? "" : "  DOES NOT HOLD");
    }
    // What the reference does not have was not compared, and is no pass.
    if (table.argmax_differs < 0) {
      tally.skip(title + ": the reference has no logits");
      record_.row(title, "logits", "skipped");
    }
    std::size_t unrouted = 0;
    for (const LayerRow& row : table.free_running) {
      unrouted += row.smallest_gap && !row.compared_routing ? 1 : 0;
    }
    if (unrouted > 0) {
      tally.skip(fmt::format("{}: the reference has no routing of {} layers", title, unrouted));
    }
    fmt::print("verdict: {}\n", all ? "agrees" : "DOES NOT AGREE");
  }

  // A fault that was planted in the reference: its row must not hold.
  void add_planted(const std::string& what, bool refused) {
    fmt::print("planted: {} is {}\n", what, refused ? "refused" : "NOT REFUSED");
    tally.record(refused);
    record_.row("planted faults", what, refused ? "refused" : "not refused");
  }

  int finish() { return tally.finish(record_); }

  checks::Tally tally;

 private:
  checks::TableRecord record_;
};

ForwardReference reference_named(const std::string& name, const std::string& model,
                                 const std::vector<std::int32_t>& ids) {
  if (name == "oracle") return checks::oracle_reference(model, ids);
  if (!std::filesystem::exists(name)) {
    throw std::runtime_error(name + ": there is no such dump (oracle, a folder, or an HDF5 file)");
  }
  if (std::filesystem::is_directory(name)) {
    return checks::read_dump_folder(name, static_cast<std::int64_t>(ids.size()));
  }
  return checks::read_dump_file(name);
}

void check_one(Report& report, const std::string& title, const std::string& model,
               const std::vector<std::int32_t>& ids, const std::string& reference) {
  checks::Engine engine(model);
  report.add(title,
             checks::compare_forward(engine, model, ids, reference_named(reference, model, ids)));
}

// The tables themselves can fail: one value of one layer off by twice the gate, one choice of
// experts changed, the largest logit of one row changed. Each is found where it was planted, and by
// nobody else.
void check_planted(Report& report, const std::string& model, const std::vector<std::int32_t>& ids,
                   const ForwardReference& sound) {
  checks::Engine engine(model);
  constexpr std::int64_t kValueLayer = 5, kRoutingLayer = 8;
  ForwardReference wrong = sound;
  auto& values = wrong.values.at(fmt::format("h_layer_{:03}", kValueLayer)).data;
  values[values.size() / 2] += 2 * checks::kLargestDifference * checks::deviation(values);
  auto& routing = wrong.values.at(fmt::format("route_idx_{:03}", kRoutingLayer)).data;
  const auto chosen = static_cast<std::ptrdiff_t>(engine.config().chosen);
  for (double expert = 0.0;; expert += 1.0) {  // the lowest that the first token did not choose
    if (std::find(routing.begin(), routing.begin() + chosen, expert) != routing.begin() + chosen) {
      continue;
    }
    routing[0] = expert;
    break;
  }
  auto& logits = wrong.values.at("logits").data;
  logits[0] = *std::max_element(logits.begin(), logits.end()) + 1.0;

  const ForwardTable table = checks::compare_forward(engine, model, ids, wrong);
  bool others_hold = true;
  for (const LayerRow& row : table.free_running) {
    const bool planted = row.layer == kValueLayer || row.layer == kRoutingLayer;
    others_hold = others_hold && (planted || row.holds);
  }
  const auto held = [](const std::vector<LayerRow>& rows, std::int64_t layer) {
    return rows[static_cast<std::size_t>(layer)].holds;
  };
  report.add_planted(fmt::format("a value of h_layer_{:03} off by twice the gate", kValueLayer),
                     !held(table.free_running, kValueLayer) && others_hold);
  report.add_planted("the same, layer by layer", !held(table.layer_by_layer, kValueLayer));
  report.add_planted(fmt::format("another expert in route_idx_{:03}", kRoutingLayer),
                     !held(table.free_running, kRoutingLayer) && others_hold);
  report.add_planted("another largest logit", !table.logits_hold && table.argmax_differs > 0);
}

void check_tiny(Report& report, const std::string& tiny) {
  const std::vector<std::int32_t> ids = checks::random_ids(34, 512, 34);
  const ForwardReference reference = checks::oracle_reference(tiny, ids);
  checks::Engine engine(tiny);
  report.add("make-model tiny, seed 1, against the oracle",
             checks::compare_forward(engine, tiny, ids, reference));
  check_planted(report, tiny, ids, reference);
}

void check_everything(Report& report) {
  const std::string tiny = checks::tiny_checkpoint().string();
  check_tiny(report, tiny);
  const std::filesystem::path golden = checks::source_root() / "fixtures" / "golden";
  bool found_golden = false;
  if (std::filesystem::is_directory(golden)) {
    for (const auto& entry : std::filesystem::directory_iterator(golden)) {
      if (!entry.is_directory()) continue;
      found_golden = true;
      check_one(report, "make-model tiny, seed 1, against " + entry.path().filename().string(),
                tiny, engine::data::read_ids(entry.path() / "ids.txt", 512), entry.path().string());
    }
  }
  if (!found_golden) {
    report.tally.skip(
        "no dump of the C reference for make-model's tiny checkpoint in fixtures/golden");
  }
  const auto ids_file = checks::reference_data("ids/ids34.txt");
  for (const char* name : {"tiny", "tool"}) {
    const auto checkpoint = checks::reference_data(std::string("ckpt_") + name);
    const auto dump = checks::reference_data(std::string("dump/") + name + "_34");
    if (!ids_file || !checkpoint || !dump) {
      report.tally.absent(!ids_file ? ids_file : !checkpoint ? checkpoint : dump);
      continue;
    }
    const auto ids = engine::data::read_ids(*ids_file, 1 << 30);
    check_one(report, fmt::format("ckpt_{} against the C reference's dump", name),
              checkpoint->string(), ids, dump->string());
    check_one(report, fmt::format("ckpt_{} against the oracle", name), checkpoint->string(), ids,
              "oracle");
  }
}

}  // namespace

int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  CLI::App app("The engine's forward pass against an independent one, layer by layer.");
  std::string model, ids, reference = "oracle", out;
  auto* model_option = app.add_option("--model", model, "checkpoint folder");
  auto* ids_option = app.add_option("--ids", ids, "file of token ids");
  model_option->needs(ids_option);
  ids_option->needs(model_option);
  app.add_option("--reference", reference, "oracle, a folder of raw dumps, or an HDF5 dump")
      ->needs(model_option);
  app.add_option("--out", out, "write the tables as JSON lines");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    Report report(out);
    if (model.empty()) {
      check_everything(report);
    } else {
      checks::Engine engine(model);
      check_one(report, model + " against " + reference, model,
                engine::data::read_ids(ids, engine.config().vocabulary), reference);
    }
    return report.finish();
  } catch (const std::exception& error) {
    fmt::print(stderr, "check_forward: {}\n", error.what());
    return 1;
  }
}
