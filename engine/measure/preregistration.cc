#include "engine/measure/preregistration.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/utf8.h"
#include "engine/measure/eval_units.h"
#include "engine/store/json_text.h"

namespace engine::measure {
namespace {

using Json = nlohmann::ordered_json;

// Of 1, and of what is written now: with the settings and the model.
constexpr const char* kFormats[] = {"lazylora preregistration 1", "lazylora preregistration 2"};
constexpr std::uint64_t kMostBytes = 64'000'000;
constexpr std::string_view kBlanks = " \t\r\n\v\f";

bool is_name(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.size() < 6 || text[4] != '-' || !std::ranges::all_of(text.substr(0, 4), digit)) {
    return false;
  }
  return std::ranges::all_of(
      text.substr(5), [&](char c) { return digit(c) || (c >= 'a' && c <= 'z') || c == '-'; });
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Json json_of(const Preregistration& r) {
  Json data = Json::array();
  for (const RegisteredData& d : r.data) data.push_back({{"name", d.name}, {"sha256", d.sha256}});
  Json json{{"format", kFormats[r.settings ? 1 : 0]},
            {"name", r.name},
            {"question", r.question},
            {"data", data},
            {"task", r.task},
            {"metric", r.metric},
            {"compared", "adapter minus base"},
            {"direction", r.direction},
            {"threshold", r.threshold},
            {"units", r.units}};
  if (r.settings) {
    json["chunk"] = r.settings->chunk;
    json["stride"] = r.settings->stride;
    json["bos"] = r.settings->bos;
    json["seed"] = r.settings->seed;
    json["resamples"] = r.settings->resamples;
    const RegisteredModel& m = r.model;
    json["model"] = {
        {"config_sha256", m.config_sha256},
        {"headers_sha256", m.headers_sha256},
        {"tokenizer_sha256", m.tokenizer_sha256},
        {"tokenizer_config_sha256", m.tokenizer_config_sha256},
        {"digests_sha256", m.digests_sha256.empty() ? Json() : Json(m.digests_sha256)}};
  }
  json["stopping_rule"] = r.stopping_rule;
  json["refuted_by"] = r.refuted_by;
  json["expected"] = r.expected;
  json["registered_unix_ns"] = r.registered_unix_ns;
  return json;
}

void require_valid(const EvalSettings& settings, std::string_view where) {
  const auto& [chunk, stride, bos, seed, resamples] = settings;
  if (chunk < 1 || chunk > kMostChunk) {
    throw base::Error("{}: chunk is {}, wanted is 1 ... {}", where, chunk, kMostChunk);
  }
  if (stride < 1 || stride > chunk) {
    throw base::Error(
        "{}: stride is {}, wanted is 1 ... {}, the chunk: what lies between would not be "
        "scored",
        where, stride, chunk);
  }
  if (std::ranges::find(kBosNames, bos) == std::end(kBosNames)) {
    throw base::Error("{}: bos is \"{}\", there are {}", where, bos, fmt::join(kBosNames, ", "));
  }
  if (seed < 0) throw base::Error("{}: seed is {}, wanted is 0 or more", where, seed);
  if (resamples != kResamples) {
    throw base::Error("{}: resamples is {}, this program draws {}", where, resamples, kResamples);
  }
}

void require_valid(const RegisteredModel& model, std::string_view where) {
  const std::pair<const char*, const std::string*> digests[] = {
      {"config_sha256", &model.config_sha256},
      {"headers_sha256", &model.headers_sha256},
      {"tokenizer_sha256", &model.tokenizer_sha256},
      {"tokenizer_config_sha256", &model.tokenizer_config_sha256},
      {"digests_sha256", &model.digests_sha256}};
  for (const auto& [name, digest] : digests) {
    if (is_digest(*digest) || (digest == &model.digests_sha256 && digest->empty())) continue;
    throw base::Error("{}: model: {} is \"{}\", which is no SHA-256", where, name, *digest);
  }
}

// Somebody's words as one paragraph of Markdown that says just them: no heading, list, link or HTML.
std::string escaped(std::string_view text) {
  std::string out;
  bool blank = false;
  for (const char c : text) {
    if (kBlanks.find(c) != std::string_view::npos) {
      blank = true;
      continue;
    }
    if (blank && !out.empty()) out += ' ';
    blank = false;
    // What begins a block does so only where the text begins.
    const bool number = out.find_first_not_of("0123456789") == std::string::npos;
    if (std::string_view("\\`*_[]<>&#|~!$").find(c) != std::string_view::npos ||
        (number && std::string_view("-+=.)").find(c) != std::string_view::npos)) {
      out += '\\';
    }
    out += c;
  }
  return out;
}

std::string read_text(const std::filesystem::path& path) {
  try {
    return store::read_json_text(path, kMostBytes);
  } catch (const base::Error& wrong) {
    throw base::Error("{} (a registration is the NNNN-slug.json of `lazylora preregister`)",
                      wrong.what());
  }
}

}  // namespace

void require_valid(const Preregistration& r, std::string_view where) {
  if (!is_name(r.name)) {
    throw base::Error(
        "{}: name is \"{}\", wanted is NNNN-slug: four digits, '-', then small "
        "letters, digits and '-'",
        where, r.name);
  }
  const std::pair<const char*, const std::string*> texts[] = {{"question", &r.question},
                                                              {"task", &r.task},
                                                              {"stopping_rule", &r.stopping_rule},
                                                              {"refuted_by", &r.refuted_by},
                                                              {"expected", &r.expected}};
  for (const auto& [name, text] : texts) {
    if (text->empty()) throw base::Error("{}: {} is empty", where, name);
    if (text->find_first_not_of(kBlanks) == std::string::npos) {
      throw base::Error("{}: {} is blanks alone, which say nothing", where, name);
    }
    data::require_utf8(*text, fmt::format("{}: {}", where, name));
  }
  if (std::ranges::find(kMetrics, r.metric) == std::end(kMetrics)) {
    throw base::Error("{}: metric is \"{}\", there are {}", where, r.metric,
                      fmt::join(kMetrics, ", "));
  }
  if (r.direction != "below" && r.direction != "above") {
    throw base::Error("{}: direction is \"{}\", wanted is below or above", where, r.direction);
  }
  if (!std::isfinite(r.threshold)) throw base::Error("{}: threshold is {}", where, r.threshold);
  if (r.units < 2) {
    throw base::Error("{}: units is {}: an interval takes 2 at least", where, r.units);
  }
  if (r.settings) {
    require_valid(*r.settings, where);
    require_valid(r.model, where);
  }
  if (r.data.empty()) throw base::Error("{}: data is empty", where);
  for (const RegisteredData& data : r.data) {
    data::require_utf8(data.name, fmt::format("{}: a name of data", where));
    if (!is_digest(data.sha256)) {
      throw base::Error("{}: data {}: \"{}\" is no SHA-256", where, data.name, data.sha256);
    }
  }
  std::vector<std::string> names;
  for (const RegisteredData& data : r.data) names.push_back(data.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    throw base::Error("{}: data: {} stands there twice: a task is one text or set of that name",
                      where, *twice);
  }
  // Ids are a run's own, and have no file of their own name.
  for (const char* kind : {"text:", "set:"}) {
    if (!r.task.starts_with(kind)) continue;
    const std::string named = r.task.substr(std::strlen(kind));
    if (std::ranges::find(r.data, named, &RegisteredData::name) == r.data.end()) {
      throw base::Error("{}: task is {}, but {} is not among the data", where, r.task, named);
    }
  }
}

std::string preregistration_json(const Preregistration& registered) {
  return json_of(registered).dump(1) + "\n";
}

std::string preregistration_page(const Preregistration& r, std::string_view json_sha256) {
  std::string data;
  for (const RegisteredData& d : r.data)
    data += fmt::format("* `{}` {}\n", d.sha256, escaped(d.name));
  std::string settings, model;
  if (r.settings) {
    const RegisteredModel& m = r.model;
    model = fmt::format(
        "\n## Model\n\n* `{}` config.json\n* `{}` headers of the shards\n* `{}` tiktoken.model\n* "
        "`{}` "
        "tokenizer_config.json\n",
        m.config_sha256, m.headers_sha256, m.tokenizer_sha256, m.tokenizer_config_sha256);
    model += m.digests_sha256.empty()
                 ? "\nIts weights are not registered.\n"
                 : fmt::format("* `{}` digests of all tensors\n", m.digests_sha256);
    settings = fmt::format(
        "\n\nIn chunks of {} predictions, a stride of {}, begin-of-text id {}; {} resamples of "
        "seed {}.",
        r.settings->chunk, r.settings->stride, r.settings->bos, r.settings->resamples,
        r.settings->seed);
  }
  return fmt::format(
      "# {}\n\n{}\n\nFrozen as `{}.json`, SHA-256 `{}`. Nothing here is changed after the run has "
      "begun; its manifest carries that digest.\n\n## Decided by\n\n{} of {}, adapter minus base, "
      "is to lie {} {}: **met** if the whole 95 % interval (paired bootstrap over units) does, "
      "**not met** if the whole interval lies on the other side, **not decidable** otherwise, or "
      "with fewer than {} units. Every other number is secondary.{}\n\n## Data\n\n{}{}\n## When to "
      "stop\n\n{}\n\n## What would refute it\n\n{}\n\n## Expected\n\n{}\n",
      r.name, escaped(r.question), r.name, json_sha256, r.metric, escaped(r.task), r.direction,
      r.threshold, r.units, settings, data, model, escaped(r.stopping_rule), escaped(r.refuted_by),
      escaped(r.expected));
}

Preregistration read_preregistration(const std::filesystem::path& path) {
  try {
    const Json json = Json::parse(read_text(path));
    Preregistration r;
    r.name = json.at("name");
    r.question = json.at("question");
    for (const Json& data : json.at("data")) {
      r.data.push_back({data.at("name"), data.at("sha256")});
    }
    r.task = json.at("task");
    r.metric = json.at("metric");
    r.direction = json.at("direction");
    r.threshold = json.at("threshold");
    r.units = json.at("units");
    if (json.at("format") == kFormats[1]) {
      r.settings = {json.at("chunk"), json.at("stride"), json.at("bos"), json.at("seed"),
                    json.at("resamples")};
      const Json& model = json.at("model");
      const Json& digests = model.at("digests_sha256");
      r.model = {model.at("config_sha256"), model.at("headers_sha256"),
                 model.at("tokenizer_sha256"), model.at("tokenizer_config_sha256"),
                 digests.is_null() ? "" : digests.get<std::string>()};
    }
    r.stopping_rule = json.at("stopping_rule");
    r.refuted_by = json.at("refuted_by");
    r.expected = json.at("expected");
    r.registered_unix_ns = json.at("registered_unix_ns");
    // A field more, less or doubled, or a number written otherwise: not what was frozen.
    if (json != json_of(r)) {
      throw base::Error("{}: holds other fields than a {}", path.string(),
                        fmt::join(kFormats, " or a "));
    }
    require_valid(r, path.string());
    return r;
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", path.string(), store::json_reason(wrong.what()));
  }
}

std::vector<std::string> objections(const RegistrationFacts& facts) {
  std::vector<std::string> found;
  if (!facts.given) {
    if (!facts.run_sha256.empty()) {
      found.push_back(fmt::format(
          "missing: the run began with the preregistration of SHA-256 {}, none is given here",
          facts.run_sha256));
    }
    return found;
  }
  if (!facts.unreadable.empty()) {
    found.push_back((facts.there ? "unreadable: " : "missing: ") + facts.unreadable);
  }
  if (!facts.has_run) {
    found.push_back("no run is given, so nothing says that the registration came before it");
    return found;
  }
  if (facts.run_sha256.empty()) {
    found.push_back("the run began without a preregistration and cannot get one afterwards");
  } else if (!facts.file_sha256.empty() && facts.run_sha256 != facts.file_sha256) {
    found.push_back(fmt::format("changed: the run began with SHA-256 {}, the file has {}",
                                facts.run_sha256, facts.file_sha256));
  }
  if (facts.registered && facts.registered->registered_unix_ns > facts.run_start_unix_ns) {
    found.push_back(fmt::format("younger: registered at {} ns, the run began at {} ns",
                                facts.registered->registered_unix_ns, facts.run_start_unix_ns));
  }
  if (!facts.time_proof_wrong.empty()) found.push_back("time proof: " + facts.time_proof_wrong);
  // Whole seconds: a token of the second in which the run began does not come before it.
  if (facts.proven_unix_s > 0 && facts.proven_unix_s >= facts.run_start_unix_ns / 1'000'000'000) {
    found.push_back(fmt::format("younger: proven for {} s, the run began at {} ns",
                                facts.proven_unix_s, facts.run_start_unix_ns));
  }
  return found;
}

}  // namespace engine::measure
