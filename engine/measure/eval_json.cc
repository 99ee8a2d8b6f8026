#include <nlohmann/json.hpp>

#include "engine/base/math.h"
#include "engine/measure/eval_results.h"

namespace engine::measure {
namespace {

using Json = nlohmann::ordered_json;

void put_score(Json& out, const TaskResult& task, const TaskScore& score, const char* filter) {
  const auto put = [&](const char* metric, const Json& value) {
    out[fmt::format("{},{}", metric, filter)] = value;
  };
  put("loss", score.loss());
  put("perplexity", score.perplexity());
  if (task.has_bytes) {
    put("bits_per_byte", score.bits_per_byte());
    put("byte_perplexity", score.byte_perplexity());
  }
  if (task.words > 0) {
    put("word_perplexity", base::exp(score.nll / static_cast<double>(task.words)));
  }
  put("top1", score.top1());
}

Json results_of(const TaskResult& task) {
  Json out{{"alias", task.name}};
  const bool adapted = !task.adapter_units.empty();
  put_score(out, task, adapted ? task.adapter : task.base, "none");
  if (!adapted) return out;
  put_score(out, task, task.base, "base");
  for (const Difference& d : task.differences) {
    out[d.metric + "_difference,paired"] = d.value;
    out[d.metric + "_difference_low,paired"] = d.interval ? Json(d.interval->low) : Json();
    out[d.metric + "_difference_high,paired"] = d.interval ? Json(d.interval->high) : Json();
  }
  return out;
}

// `seen`: the run was trained on just these sequences.
Json task_facts(const TaskResult& task, bool seen) {
  Json bytes, words;
  if (task.has_bytes) bytes = task.base.bytes;
  if (task.words > 0) words = task.words;
  Json facts = {{"kind", task.kind},
                {"sha256", task.sha256},
                {"trained_on", seen},
                {"units", task.base_units.size()},
                {"tokens", task.base.tokens},
                {"bytes", bytes},
                {"words", words}};
  if (task.origin) {
    facts["corpus"] = {{"sha256", task.origin->corpus_sha256},
                       {"after", task.origin->after},
                       {"date", task.origin->date},
                       {"revision", task.origin->revision},
                       {"source", task.origin->source}};
  }
  return facts;
}

Json run_of(const EvalRun& run) {
  Json losses = Json::array();
  for (const LossPoint& p : run.losses) {
    losses.push_back({{"step", p.step}, {"loss", p.loss}, {"line", p.line}});
  }
  return {{"run", run.run_id},
          {"data_sha256", run.data_sha256},
          {"log_sha256", run.log_sha256},
          {"log_lines", run.log_lines},
          {"log_head", run.log_head},
          {"losses", losses}};
}

Json layers_of(const Evaluation& e) {
  Json layers = Json::array();
  for (const LayerNorms& layer : e.layers) {
    Json gradient;
    if (!e.gradient_of.empty()) gradient = layer.gradient;
    layers.push_back({{"layer", layer.layer}, {"change", layer.change}, {"gradient", gradient}});
  }
  return layers;
}

// Of every task: experts chosen under the adapter against those under the base model.
Json routing_of(const Evaluation& e) {
  Json tasks = Json::object();
  for (const TaskResult& task : e.tasks) {
    if (task.routing.empty()) continue;
    Json layers = Json::array();
    for (const auto& [layer, overlap] : task.routing) {
      layers.push_back(
          {{"layer", layer}, {"jaccard", *overlap.jaccard()}, {"same_set", *overlap.equal()}});
    }
    const Overlap all = over_layers(task.routing);
    tasks[task.name] = {{"tokens", task.routing.front().overlap.pairs()},
                        {"jaccard", *all.jaccard()},
                        {"same_set", *all.equal()},
                        {"jaccard_by_chance", chance_jaccard(e.experts, e.chosen)},
                        {"layers", layers}};
  }
  return tasks;
}

Json registration_of(const Evaluation& e) {
  const RegistrationFacts& facts = e.registration;
  Json primary;
  if (facts.registered && e.verdict.outcome != Outcome::kRefused) {
    primary = {{"task", facts.registered->task}, {"metric", facts.registered->metric}};
  }
  Json json{{"name", facts.registered ? Json(facts.registered->name) : Json()},
            {"run_sha256", facts.run_sha256.empty() ? Json() : Json(facts.run_sha256)},
            {"file_sha256", facts.file_sha256.empty() ? Json() : Json(facts.file_sha256)},
            {"time", e.verdict.time_proof},
            {"primary", primary}};
  // Absent for a registration of format 1, whose evaluations are as they were.
  if (facts.registered && facts.registered->settings) {
    json["settings"] = json["model"] = "as registered";
    json["weights"] = e.weights;
  }
  return json;
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

std::string evaluation_json(const Evaluation& e) {
  Json results = Json::object(), versions = Json::object(), samples = Json::object(),
       tasks = Json::object();
  for (const TaskResult& task : e.tasks) {
    results[task.name] = results_of(task);
    versions[task.name] = 1;
    samples[task.name] = {{"original", task.base_units.size()},
                          {"effective", task.base_units.size()}};
    tasks[task.name] = task_facts(task, e.run && e.run->data_sha256 == task.sha256);
  }
  const Json json = {{"results", results},
                     {"versions", versions},
                     {"n-samples", samples},
                     {"config",
                      {{"model", "lazylora"},
                       {"chunk", e.chunks.chunk},
                       {"stride", e.chunks.stride},
                       {"bos", kBosNames[static_cast<std::size_t>(e.chunks.bos)]},
                       {"bos_id", e.chunks.bos == Bos::kNone ? Json() : Json(e.chunks.bos_id)},
                       {"bootstrap_iters", kResamples},
                       {"random_seed", e.seed}}},
                     {"lazylora",
                      {{"format", "lazylora eval 1"},
                       {"title", e.verdict.title},
                       {"verdict", name_of(e.verdict.outcome)},
                       {"why", e.verdict.why},
                       {"preregistration", registration_of(e)},
                       {"config_sha256", e.config_sha256},
                       {"headers_sha256", e.headers_sha256},
                       {"adapter_sha256", or_null(e.adapter_sha256)},
                       {"tokenizer_sha256", or_null(e.tokenizer_sha256)},
                       {"tasks", tasks},
                       {"run", e.run ? run_of(*e.run) : Json()},
                       {"gradient_of", or_null(e.gradient_of)},
                       {"layers", layers_of(e)},
                       {"routing", routing_of(e)}}}};
  return json.dump(1) + "\n";
}

std::string unit_lines(const Evaluation& e) {
  std::string lines;
  for (const TaskResult& task : e.tasks) {
    for (std::size_t i = 0; i < task.base_units.size(); ++i) {
      const UnitScore& base = task.base_units[i];
      Json line{{"task", task.name}, {"unit", i}, {"tokens", base.tokens}};
      if (task.has_bytes) line["bytes"] = task.unit_bytes[i];
      line["nll_base"] = base.nll;
      line["correct_base"] = base.correct;
      if (!task.adapter_units.empty()) {
        line["nll"] = task.adapter_units[i].nll;
        line["correct"] = task.adapter_units[i].correct;
      }
      lines += line.dump() + "\n";
    }
  }
  return lines;
}

}  // namespace engine::measure
