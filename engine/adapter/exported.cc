#include "engine/adapter/exported.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cassert>

#include "engine/adapter/exported_tensors.h"
#include "engine/base/error.h"
#include "engine/store/at_path.h"

namespace engine::adapter {
namespace {

using base::Error;
namespace fs = std::filesystem;

constexpr std::int64_t kChunk = 1 << 16;  // values

std::string expert_words(std::int64_t expert) {
  return expert < 0 ? "" : fmt::format(" of expert {}", expert);
}

}  // namespace

Coverage::Coverage(std::span<const Module> modules)
    : modules_(modules), seen_(4 * modules.size()) {}

std::vector<bool>& Coverage::slot(std::size_t module, char slot) {
  return seen_[4 * module + std::string_view("ABab").find(slot)];
}

void Coverage::tick(std::size_t module, char name, std::int64_t expert) {
  std::vector<bool>& seen = slot(module, name);
  seen.resize(static_cast<std::size_t>(modules_[module].matrices()), false);
  if (expert < 0) {
    seen.assign(seen.size(), true);
  } else {
    seen[static_cast<std::size_t>(expert)] = true;
  }
}

std::vector<std::string> Coverage::complete(const std::string& file, bool value_halves) const {
  std::vector<std::string> targets;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const auto first = seen_.begin() + static_cast<std::ptrdiff_t>(4 * i);
    if (std::all_of(first, first + 4, [](const auto& seen) { return seen.empty(); })) continue;
    if (std::ranges::find(targets, modules_[i].target) == targets.end()) {
      targets.push_back(modules_[i].target);
    }
  }
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const Module& module = modules_[i];
    if (std::ranges::find(targets, module.target) == targets.end()) continue;
    const std::size_t slots = value_halves && module.heads > 0 ? 4 : 2;
    for (std::size_t s = 0; s < slots; ++s) {
      const std::vector<bool>& seen = seen_[4 * i + s];
      const auto missing = std::ranges::find(seen, false);
      if (!seen.empty() && missing == seen.end()) continue;
      const std::int64_t expert = module.experts > 0 && !seen.empty() ? missing - seen.begin() : -1;
      throw Error("{}: there is no {}{} for {}{}, though other modules of target {} have one", file,
                  s % 2 == 0 ? "A" : "B", s < 2 ? "" : " of the value half", module.path(),
                  expert_words(expert), module.target);
    }
  }
  return targets;
}

void require_shape(const std::string& file, const FoundTensor& tensor,
                   std::span<const std::int64_t> wanted) {
  if (std::ranges::equal(tensor.shape, wanted)) return;
  throw Error("{}: tensor {} has shape [{}], [{}] is wanted by the checkpoint and the rank", file,
              tensor.name, fmt::join(tensor.shape, ","), fmt::join(wanted, ","));
}

Exported open_exported(const fs::path& folder, const Base& base) {
  if (store::is_there(folder / "adapter.gguf")) return open_gguf(folder / "adapter.gguf", base);
  if (store::is_there(folder / "adapter_config.json")) return open_peft(folder, base);
  const fs::path native = store::is_file(folder) ? folder : folder / "adapter.safetensors";
  if (store::is_file(native) && is_native_adapter(native)) {
    throw Error("{}: is a native adapter, which needs no import: --adapter takes it",
                native.string());
  }
  if (store::is_file(folder)) return open_gguf(folder, base);
  throw Error("{}: holds neither adapter_config.json nor adapter.gguf", folder.string());
}

void read_values(const Exported& exported, const ReadValues& use) {
  const store::File file(exported.file);
  std::vector<float> values;
  std::vector<std::uint16_t> halves;
  for (const Part& part : exported.parts) {
    for (std::int64_t first = 0; first < part.walk.size(); first += kChunk) {
      const std::int64_t count = std::min(kChunk, part.walk.size() - first);
      values.resize(static_cast<std::size_t>(count));
      const std::uint64_t at =
          part.offset + static_cast<std::uint64_t>(first * base::size_of(exported.dtype));
      if (exported.dtype == base::Dtype::kF32) {
        file.read(at, std::as_writable_bytes(std::span(values)));
      } else {
        halves.resize(values.size());
        file.read(at, std::as_writable_bytes(std::span(halves)));
        std::ranges::transform(halves, values.begin(), base::bf16_to_float);
      }
      use(part, first, values);
    }
  }
}

void import_values(const Exported& exported, std::span<const Module> modules,
                   const std::function<std::span<float>(const std::string&)>& matrix_of) {
  struct Matrix {
    std::span<float> values;
    std::vector<bool> filled;
  };
  std::map<std::string, Matrix> matrices;
  read_values(exported, [&](const Part& part, std::int64_t first, std::span<const float> values) {
    require_finite(exported.file, part.name, first, values);
    const std::string name = modules[part.module].native(part.matrix);
    Matrix& matrix = matrices[name];
    if (matrix.filled.empty()) {
      matrix.values = matrix_of(name);
      matrix.filled.resize(matrix.values.size(), false);
    }
    auto value = values.begin();
    for_runs(part.walk, first, static_cast<std::int64_t>(values.size()),
             [&](std::int64_t place, std::int64_t step, std::int64_t count) {
               for (; count > 0; --count, place += step, ++value) {
                 const auto at = static_cast<std::size_t>(place);
                 if (!matrix.filled[at]) {
                   matrix.values[at] = *value;
                   matrix.filled[at] = true;
                 } else if (std::bit_cast<std::uint32_t>(matrix.values[at]) !=
                            std::bit_cast<std::uint32_t>(*value)) {
                   throw Error(
                       "{}: tensor {} says {} where an expert before it, or another part, says {} "
                       "for value {} of {}: a native adapter is one for all experts",
                       exported.file, part.name, *value, matrix.values[at], place, name);
                 }
               }
             });
  });
  // Every value of every matrix has come: Coverage has seen to it.
  for (const auto& [name, matrix] : matrices) {
    assert(std::ranges::find(matrix.filled, false) == matrix.filled.end());
  }
}

NativeAdapter import_native(const Exported& exported, std::span<const Module> modules) {
  NativeAdapter adapter;
  adapter.rank = exported.rank;
  adapter.alpha = exported.alpha;
  adapter.targets = exported.targets;
  std::size_t values = 0;
  for (const Module& module : modules) {
    if (std::ranges::find(exported.targets, module.target) == exported.targets.end()) continue;
    adapter.tensors.push_back({module.native('A'), {exported.rank, module.in}, {}});
    adapter.tensors.push_back({module.native('B'), {module.out, exported.rank}, {}});
    values += static_cast<std::size_t>(exported.rank * (module.in + module.out));
  }
  std::ranges::sort(adapter.tensors, {}, &NativeTensor::name);
  adapter.storage.resize(values);
  std::map<std::string, std::span<float>> places;
  std::span<float> left(adapter.storage);
  for (NativeTensor& tensor : adapter.tensors) {
    const auto count = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]);
    places[tensor.name] = left.first(count);
    tensor.values = left.first(count);
    left = left.subspan(count);
  }
  import_values(exported, modules, [&](const std::string& name) { return places.at(name); });
  return adapter;
}

}  // namespace engine::adapter
