#include "engine/data/set_manifest.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "engine/data/packed_set.h"

namespace engine::data {

namespace {

using Json = nlohmann::ordered_json;

Json range(const Range& range) {
  Json most = range.most;
  if (range.most == std::numeric_limits<std::int64_t>::max()) most = nullptr;
  return {{"least", range.least}, {"most", std::move(most)}};
}

const char* name_of(TooLong too_long) {
  if (too_long == TooLong::kRefuse) return "refuse";
  return too_long == TooLong::kDrop ? "drop" : "truncate";
}

Json rules(const BuildSettings& settings) {
  const FieldNames& names = settings.names;
  Json count = nullptr;
  if (settings.count) count = *settings.count;
  return {{"fields",
           {{"instruction", names.instruction},
            {"context", names.context},
            {"response", names.response},
            {"category", names.category}}},
          {"chat", "kimi_k3"},
          {"question", "instruction, and behind an empty line the context if there is one"},
          {"trained", "the answer and what closes it, up to <|end_of_msg|>"},
          {"categories", settings.filters.categories},
          {"question_characters", range(settings.filters.question)},
          {"response_characters", range(settings.filters.response)},
          {"required_characters", settings.filters.required},
          {"duplicates", settings.filters.keep_duplicates ? "kept" : "the first stays"},
          {"count", std::move(count)},
          {"seed", settings.seed},
          {"order", settings.shuffle ? "random" : "file"},
          {"too_long", name_of(settings.too_long)},
          {"packing", settings.packing == Packing::kInOrder ? "in-order" : "first-fit"}};
}

Json counts(const BuildReport& report) {
  Json dropped = Json::object();
  for (int reason = 0; reason < kReasons; ++reason) {
    dropped[name_of(static_cast<Reason>(reason))] = report.dropped[reason];
  }
  Json categories = Json::object();
  for (const auto& [name, category] : report.categories) {
    categories[name] = {{"left", category.left}, {"selected", category.selected}};
  }
  return {{"read", report.read},         {"dropped", std::move(dropped)},
          {"left", report.left},         {"truncated", report.truncated},
          {"selected", report.selected}, {"categories", std::move(categories)}};
}

Json digest(const FileDigest& file) { return {{"bytes", file.bytes}, {"sha256", file.sha256}}; }

}  // namespace

std::string record_row(const RecordRow& row) {
  const Json json = {{"record", row.digest}, {"line", row.line},       {"sequence", row.sequence},
                     {"ids", row.ids},       {"trained", row.trained}, {"category", row.category}};
  return json.dump() + '\n';
}

std::string set_manifest(const BuildSettings& settings, const BuildReport& report,
                         const SetSource& source, const Tokenizer& tokenizer) {
  const Json manifest = {
      {"format", kSetFormat},
      // The name alone: the folder is of one machine.
      {"input",
       {{"name", settings.records.filename().string()},
        {"bytes", source.bytes},
        {"sha256", source.sha256},
        {"blank_lines", report.blank_lines}}},
      {"tokenizer",
       {{"vocabulary", tokenizer.vocabulary()},
        {"tiktoken_model_sha256", tokenizer.ranks_sha256()},
        {"tokenizer_config_sha256", tokenizer.config_sha256()}}},
      {"rules", rules(settings)},
      {"not_in", source.not_in},
      {"records", counts(report)},
      {"set",
       {{"length", settings.length},
        {"sequences", report.sequences},
        {"documents", report.selected},
        {"ids", report.ids},
        {"trained", report.trained}}},
      {"files",
       {{"sequences.bin", digest(source.sequences)}, {"records.jsonl", digest(source.records)}}}};
  return manifest.dump(2) + '\n';
}

}  // namespace engine::data
