#include "engine/store/shard_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
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
    findings.push_back({Severity::kError,
                        table.files[static_cast<std::size_t>(second.shard)].path(),
                        std::string(second.name), second.offset,
                        fmt::format("the same name stands in {} at byte {}", table.file_name(first),
                                    first.offset)});
  }
}

}  // namespace

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
  for (const auto& path : paths) {
    try {
      File file(path, settings);
      const ShardHeader header = read_header(file, findings);
      table.files.push_back(std::move(file));
      table.header_sha256.push_back(header.sha256);
      append(table, header);
    } catch (const base::Error& error) {
      findings.push_back(finding_of(path.string(), error.what()));
    }
  }
  sort_names(table, findings);
  check_index(folder / "model.safetensors.index.json", table, findings);
  return table;
}

}  // namespace engine::store
