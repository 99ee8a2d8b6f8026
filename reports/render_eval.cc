// Usage: render_eval tables DIR    loss.tsv, layers.tsv and routing.tsv of DIR/results.json, to be drawn
//        render_eval pages DIR     report.md and report.html, with the figures that are in DIR
// What `lazylora eval --out DIR` recorded as pages whose every number links to the line of
// results.json that it is read from.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "reports/evidence_lines.h"
#include "reports/figure_rows.h"
#include "reports/page.h"

namespace reports {
namespace {

using Json = nlohmann::ordered_json;

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw engine::base::Error("{}: cannot be written", path);
}

Cell words(std::string text) { return {std::move(text)}; }

// The value at `pointer`, rounded for a reader, with its line.
Cell value(const EvidenceLines& evidence, const std::string& pointer) {
  const Json& json = evidence.at(pointer);
  Cell cell{"", evidence.line_of(pointer)};
  if (json.is_null()) {
    cell.text = "-";
  } else if (json.is_number_float()) {
    const auto number = json.get<double>();
    cell.text = number < 1e7 ? fmt::format("{:.6f}", number) : fmt::format("{:.6e}", number);
  } else {
    cell.text = json.is_string() ? json.get<std::string>() : json.dump();
  }
  return cell;
}

Block heading(const std::string& text) { return {Block::Kind::kHeading, {{words(text)}}, ""}; }
Block paragraph(std::vector<Cell> cells) {
  return {Block::Kind::kParagraph, {std::move(cells)}, ""};
}

// "-" where the metric is not defined for the task.
Cell metric(const EvidenceLines& evidence, const std::string& task, const std::string& name) {
  const std::string pointer = "/results" + step(task);
  if (!evidence.at(pointer).contains(name)) return words("-");
  return value(evidence, pointer + step(name));
}

constexpr const char* kMetrics[] = {"loss", "perplexity", "bits_per_byte", "top1"};

Block subject_table(const EvidenceLines& evidence) {
  Block table{Block::Kind::kTable, {{words("what"), words("SHA-256, or as recorded")}}, ""};
  const std::pair<const char*, const char*> rows[] = {
      {"config.json", "/lazylora/config_sha256"},
      {"headers of the shards", "/lazylora/headers_sha256"},
      {"tokenizer", "/lazylora/tokenizer_sha256"},
      {"adapter", "/lazylora/adapter_sha256"},
      {"run", "/lazylora/run/run"},
      {"its log.jsonl", "/lazylora/run/log_sha256"},
      {"preregistration", "/lazylora/preregistration/name"},
      {"its file", "/lazylora/preregistration/file_sha256"},
      {"time of registration", "/lazylora/preregistration/time"},
      {"the model and tokenizer above", "/lazylora/preregistration/model"},
      {"its weights", "/lazylora/preregistration/weights"},
      {"the five settings below", "/lazylora/preregistration/settings"},
      {"chunk, predictions", "/config/chunk"},
      {"stride", "/config/stride"},
      {"begin-of-text id", "/config/bos"},
      {"resamples", "/config/bootstrap_iters"},
      {"seed of the bootstrap", "/config/random_seed"}};
  for (const auto& [name, pointer] : rows) {
    const Json::json_pointer place{std::string(pointer)};
    if (!evidence.json().contains(place) || evidence.json().at(place) == "") continue;
    table.rows.push_back({words(name), value(evidence, pointer)});
  }
  return table;
}

// What a task's numbers are good for.
std::string role(const EvidenceLines& evidence, const std::string& task, const std::string& name) {
  const Json& primary = evidence.at("/lazylora/preregistration/primary");
  if (primary.is_null()) return "exploratory";
  return primary.at("task") == task && primary.at("metric") == name ? "primary" : "secondary";
}

Block task_table(const EvidenceLines& evidence) {
  Block table{Block::Kind::kTable, {{}}, ""};
  for (const char* head : {"task", "trained on", "units", "tokens", "bytes", "words"}) {
    table.rows[0].push_back(words(head));
  }
  for (const auto& [task, facts] : evidence.at("/lazylora/tasks").items()) {
    const std::string at = "/lazylora/tasks" + step(task);
    std::vector<Cell> row{words(task)};
    for (const char* fact : {"trained_on", "units", "tokens", "bytes", "words"}) {
      row.push_back(value(evidence, at + "/" + fact));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Where the texts of corpora come from; a heading alone: there are none.
Block origin_table(const EvidenceLines& evidence) {
  Block table{Block::Kind::kTable, {{}}, ""};
  for (const char* head : {"task", "dated", "all after", "revision", "source", "corpus"}) {
    table.rows[0].push_back(words(head));
  }
  for (const auto& [task, facts] : evidence.at("/lazylora/tasks").items()) {
    if (!facts.contains("corpus")) continue;
    const std::string at = "/lazylora/tasks" + step(task) + "/corpus/";
    std::vector<Cell> row{words(task)};
    for (const char* fact : {"date", "after", "revision", "source", "sha256"}) {
      row.push_back(value(evidence, at + fact));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Block score_table(const EvidenceLines& evidence) {
  const bool adapted = !evidence.at("/lazylora/adapter_sha256").is_null();
  Block table{Block::Kind::kTable, {{}}, ""};
  for (const char* head :
       {"task", "metric", "base", "adapter", "adapter - base", "95 % from", "to", "role"}) {
    table.rows[0].push_back(words(head));
  }
  for (const auto& [task, unused] : evidence.at("/results").items()) {
    for (const std::string name : kMetrics) {
      const Cell base = metric(evidence, task, name + (adapted ? ",base" : ",none"));
      if (base.line == 0) continue;
      table.rows.push_back({words(task), words(name), base,
                            adapted ? metric(evidence, task, name + ",none") : words("-"),
                            metric(evidence, task, name + "_difference,paired"),
                            metric(evidence, task, name + "_difference_low,paired"),
                            metric(evidence, task, name + "_difference_high,paired"),
                            words(role(evidence, task, name))});
    }
  }
  return table;
}

// Experts chosen under the adapter against those under the base model; a heading alone: no adapter,
// or no layer with experts.
Block routing_table(const EvidenceLines& evidence) {
  Block table{Block::Kind::kTable, {{}}, ""};
  for (const char* head : {"task", "tokens", "Jaccard index", "by chance", "same experts",
                           "layer that changed most", "its Jaccard index"}) {
    table.rows[0].push_back(words(head));
  }
  for (const auto& [task, routing] : evidence.at("/lazylora/routing").items()) {
    const std::string at = "/lazylora/routing" + step(task);
    std::vector<Cell> row{words(task)};
    for (const char* fact : {"tokens", "jaccard", "jaccard_by_chance", "same_set"}) {
      row.push_back(value(evidence, at + "/" + fact));
    }
    const Json& layers = routing.at("layers");
    const auto least = std::ranges::min_element(
        layers, {}, [](const Json& layer) { return layer.at("jaccard").get<double>(); });
    const std::string layer = fmt::format("{}/layers/{}", at, least - layers.begin());
    row.push_back(value(evidence, layer + "/layer"));
    row.push_back(value(evidence, layer + "/jaccard"));
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_figure(Page& page, const std::string& folder, const std::string& file,
                const std::string& caption) {
  if (std::filesystem::exists(folder + file)) {
    page.blocks.push_back({Block::Kind::kFigure, {{words(caption)}}, file});
  } else {
    page.blocks.push_back(paragraph({words(fmt::format("({} was not drawn: {})", file, caption))}));
  }
}

Page page_of(const EvidenceLines& evidence, const std::string& folder) {
  Page page;
  page.title = evidence.at("/lazylora/title").get<std::string>();
  page.evidence = "results.json";
  page.evidence_lines = evidence.lines();
  page.blocks.push_back(
      paragraph({words("Verdict: "), value(evidence, "/lazylora/verdict"), words(".")}));
  for (std::size_t i = 0; i < evidence.at("/lazylora/why").size(); ++i) {
    page.blocks.push_back(paragraph({value(evidence, fmt::format("/lazylora/why/{}", i))}));
  }
  if (evidence.at("/lazylora/preregistration").contains("weights")) {
    page.blocks.push_back(paragraph(
        {words("Weights: "), value(evidence, "/lazylora/preregistration/weights"), words(".")}));
  }
  page.blocks.push_back(heading("Numbers"));
  page.blocks.push_back(score_table(evidence));
  page.blocks.push_back(paragraph({words(
      "loss is in nats a scored token; bits_per_byte = loss * tokens / (bytes * ln 2), with the "
      "tokens and bytes below; top1 is the share of scored tokens with the highest logit. The "
      "interval is of the paired difference, by bootstrap over units (units.jsonl).")}));
  page.blocks.push_back(task_table(evidence));
  if (const Block origins = origin_table(evidence); origins.rows.size() > 1) {
    page.blocks.push_back(origins);
  }
  const Block routing = routing_table(evidence);
  const bool routed = routing.rows.size() > 1;
  if (routed) {
    page.blocks.push_back(heading("Routing, before and after"));
    page.blocks.push_back(routing);
    page.blocks.push_back(paragraph({words(
        "Experts that a token chooses with the adapter against those that it chooses without, over "
        "all layers with experts and all scored tokens: mean Jaccard index of the two sets (1: the "
        "same), what two sets drawn at random would show, and the share of choices that are the "
        "same "
        "set.")}));
  }
  page.blocks.push_back(heading("What was evaluated"));
  page.blocks.push_back(subject_table(evidence));
  page.blocks.push_back(heading("Figures"));
  if (!evidence.at("/lazylora/run").is_null()) {
    add_figure(page, folder, "loss.svg", "Training loss, step by step");
  }
  if (!evidence.at("/lazylora/layers").empty()) {
    add_figure(page, folder, "layers.svg",
               "Norm of the change of each layer's weights, and of the gradient where asked for");
    page.blocks.push_back(
        paragraph({words("Gradient: "), value(evidence, "/lazylora/gradient_of"), words(".")}));
  }
  if (routed) {
    add_figure(page, folder, "routing.svg",
               "Routing with the adapter against the base model's, layer by layer");
  }
  return page;
}

int run(const std::string& what, const std::string& folder) {
  const EvidenceLines evidence(folder + "results.json");
  if (what == "tables") {
    write(folder + "loss.tsv", loss_rows(evidence));
    write(folder + "layers.tsv", norm_rows(evidence));
    write(folder + "routing.tsv", routing_rows(evidence));
    return 0;
  }
  const Page page = page_of(evidence, folder);
  write(folder + "report.md", markdown(page));
  write(folder + "report.html", html(page, folder));
  return 0;
}

}  // namespace
}  // namespace reports

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "tables" && what != "pages") {
    std::fprintf(stderr, "usage: render_eval tables|pages DIR\n");
    return 2;
  }
  try {
    return reports::run(what, std::string(argv[2]) + "/");
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "render_eval: %s\n", wrong.what());
    return 1;
  }
}
