#include "reports/figure_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace reports {
namespace {

using Json = nlohmann::ordered_json;

// Names of tasks stand in the figure's key: what would end a column's head is a blank.
std::string head_of(std::string task) {
  std::ranges::replace_if(
      task, [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '"'; }, ' ');
  return task;
}

}  // namespace

std::string loss_rows(const EvidenceLines& evidence) {
  std::string rows = "step\tloss\n";
  const Json& run = evidence.at("/lazylora/run");
  if (run.is_null()) return rows;
  for (const Json& point : run.at("losses")) {
    rows += fmt::format("{}\t{}\n", point.at("step").dump(), point.at("loss").dump());
  }
  return rows;
}

std::string norm_rows(const EvidenceLines& evidence) {
  std::string rows = "layer\tchange\tgradient\n";
  for (const Json& layer : evidence.at("/lazylora/layers")) {
    const Json& gradient = layer.at("gradient");
    rows += fmt::format("{}\t{}\t{}\n", layer.at("layer").dump(), layer.at("change").dump(),
                        gradient.is_null() ? "nan" : gradient.dump());
  }
  return rows;
}

std::string routing_rows(const EvidenceLines& evidence) {
  const Json& routing = evidence.at("/lazylora/routing");
  std::string rows = "layer";
  for (const auto& [task, unused] : routing.items()) {
    rows += fmt::format("\t{0}\t{0}, same set", head_of(task));
  }
  rows += "\n";
  if (routing.empty()) return rows;
  const Json& layers = routing.front().at("layers");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    rows += layers.at(i).at("layer").dump();
    for (const Json& task : routing) {
      const Json& layer = task.at("layers").at(i);
      rows += fmt::format("\t{}\t{}", layer.at("jaccard").dump(), layer.at("same_set").dump());
    }
    rows += "\n";
  }
  return rows;
}

}  // namespace reports
