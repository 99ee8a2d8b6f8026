#include "engine/store/shard_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <regex>
#include <system_error>

#include "engine/base/error.h"
#include "engine/store/index_file.h"

namespace engine::store {
namespace {

std::vector<std::filesystem::path> shard_paths(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".safetensors") paths.push_back(at->path());
  }
  if (error) throw base::Error("{}: cannot be listed: {}", folder.string(), error.message());
  std::ranges::sort(paths, {}, [](const auto& path) { return path.filename().string(); });
  return paths;
}

void append(ShardTable& table, const ShardHeader& header) {
  std::size_t length = 0;
  for (const CheckedTensor& tensor : header.tensors) length += tensor.name.size();
  char* at = table.names.emplace_back(std::make_unique<char[]>(length)).get();
  const auto shard = static_cast<std::int32_t>(table.files.size()) - 1;
  for (const CheckedTensor& tensor : header.tensors) {
    TensorEntry entry;
    std::ranges::copy(tensor.name, at);
    entry.name = {at, tensor.name.size()};
    at += tensor.name.size();
    entry.shape = Shape(*table.shapes.insert(tensor.shape).first);
    entry.offset = tensor.offset;
    entry.bytes = tensor.bytes;
    entry.shard = shard;
    if (tensor.dtype) {
      entry.dtype = *tensor.dtype;
    } else {
      entry.foreign_dtype = tensor.dtype_name;
    }
    table.entries.push_back(entry);
  }
}

void sort_names(ShardTable& table, std::vector<Finding>& findings) {
  table.by_name.resize(table.entries.size());
  std::iota(table.by_name.begin(), table.by_name.end(), 0u);
  const auto name = [&](std::uint32_t i) { return table.entries[i].name; };
  std::ranges::stable_sort(table.by_name, {}, name);
  for (std::size_t i = 1; i < table.by_name.size(); ++i) {
    const TensorEntry& first = table.entries[table.by_name[i - 1]];
    const TensorEntry& second = table.entries[table.by_name[i]];
    if (first.name != second.name) continue;
    add(findings, {Severity::kError, table.files[static_cast<std::size_t>(second.shard)].path(),
                   std::string(second.name), second.offset,
                   fmt::format("the same name stands in {} at byte {}", table.file_name(first),
                               first.offset)});
  }
}

// Without an index, of names like model-00003-of-00009.safetensors: the first that others of its
// series lack. One a series: a name may claim 99,999.
void miss_numbers(ShardTable& table, const std::set<std::string>& present) {
  static const std::regex pattern(R"((.*-)(\d{5})-of-(\d{5})\.safetensors)");
  std::set<std::pair<std::string, std::string>> series;
  for (const std::string& name : present) {
    std::smatch parts;
    if (std::regex_match(name, parts, pattern)) series.emplace(parts[1], parts[3]);
  }
  for (const auto& [stem, count] : series) {
    for (int number = 1; number <= std::stoi(count); ++number) {
      const std::string name = fmt::format("{}{:05}-of-{}.safetensors", stem, number, count);
      if (present.contains(name)) continue;
      table.missing.insert(name);
      break;
    }
  }
}

// Missing shards in front: they explain much of what follows.
void report_unfound(const ShardTable& table, const UnfoundByShard& unfound,
                    std::vector<Finding>& findings) {
  std::vector<Finding> first;
  for (const std::string& name : table.missing) {
    const auto found = unfound.find(name);
    const std::string why =
        found == unfound.end()
            ? "there is no index, but others of its series are there; more may be missing"
            : fmt::format("the index places {} tensors in it, {} the first", found->second.count,
                          found->second.first);
    first.push_back({Severity::kError, (table.folder / name).string(), "", std::nullopt,
                     "the shard is missing: " + why});
  }
  findings.insert(findings.begin(), first.begin(), first.end());
  for (const std::string& name : table.broken) {
    const auto found = unfound.find(name);
    if (found == unfound.end()) continue;
    findings.push_back(
        {Severity::kNote, (table.folder / name).string(), "", std::nullopt,
         fmt::format("{} of the tensors that the index places in it cannot be judged, {} the "
                     "first: the errors above say why",
                     found->second.count, found->second.first)});
  }
}

}  // namespace

bool ShardTable::may_be_lost(std::string_view name) const {
  if (has_index) return lost.contains(std::string(name));
  return !broken.empty() || !missing.empty();
}

const TensorEntry* ShardTable::find(std::string_view name) const {
  const auto at =
      std::ranges::lower_bound(by_name, name, {}, [&](std::uint32_t i) { return entries[i].name; });
  if (at == by_name.end() || entries[*at].name != name) return nullptr;
  return &entries[*at];
}

std::string ShardTable::file_name(const TensorEntry& entry) const {
  return files[static_cast<std::size_t>(entry.shard)].path().filename().string();
}

ShardTable scan_folder(const std::filesystem::path& folder, const ReadSettings& settings,
                       std::vector<Finding>& findings) {
  ShardTable table;
  table.folder = folder;
  const auto paths = shard_paths(folder);
  if (paths.empty()) {
    findings.push_back(
        {Severity::kError, folder.string(), "", std::nullopt, "holds no *.safetensors file"});
  }
  std::set<std::string> present;
  for (const auto& path : paths) {
    const std::size_t before = count(findings, Severity::kError);
    present.insert(path.filename().string());
    try {
      File file(path, settings);
      const ShardHeader header = read_header(file, findings, settings.header_memory);
      table.files.push_back(std::move(file));
      table.header_sha256.push_back(header.sha256);
      append(table, header);
    } catch (const base::Error& error) {
      findings.push_back(finding_of(path.string(), error.what()));
    }
    if (count(findings, Severity::kError) > before) table.broken.insert(path.filename().string());
  }
  sort_names(table, findings);
  const UnfoundByShard unfound =
      check_index(folder / "model.safetensors.index.json", present, table, findings);
  if (!table.has_index) miss_numbers(table, present);
  report_unfound(table, unfound, findings);
  return table;
}

}  // namespace engine::store
