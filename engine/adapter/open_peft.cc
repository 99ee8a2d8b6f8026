#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "engine/adapter/exported_tensors.h"
#include "engine/adapter/peft_config.h"
#include "engine/base/error.h"
#include "engine/store/safetensors_header.h"

namespace engine::adapter {
namespace {

using base::Error;

std::vector<FoundTensor> read_tensors(const store::File& file) {
  std::vector<store::Finding> findings;
  const store::ShardHeader header = store::read_header(file, findings);
  store::throw_first_error(findings);
  const std::string where = file.path().string();
  if (header.tensors.empty()) throw Error("{}: an adapter without tensors", where);
  std::vector<FoundTensor> tensors;
  tensors.reserve(header.tensors.size());
  for (const store::CheckedTensor& tensor : header.tensors) {
    if (tensor.dtype != base::Dtype::kF32 && tensor.dtype != base::Dtype::kBf16) {
      throw Error("{}: tensor {} is {}, F32 or BF16 is wanted", where, tensor.name,
                  tensor.dtype_name);
    }
    if (*tensor.dtype != header.tensors[0].dtype) {
      throw Error("{}: tensor {} is {}, {} is {}", where, tensor.name, tensor.dtype_name,
                  header.tensors[0].name, header.tensors[0].dtype_name);
    }
    tensors.push_back({tensor.name, tensor.shape, *tensor.dtype, tensor.offset});
  }
  return tensors;
}

// PEFT's key: base_model.model.PATH.lora_A.weight.
struct Key {
  std::string_view path;
  bool is_a = false;
};
Key parse_key(std::string_view name, const std::string& file) {
  constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight",
                             kB = ".lora_B.weight";
  const bool is_a = name.ends_with(kA);
  if (!name.starts_with(kPrefix) || !(is_a || name.ends_with(kB)) ||
      name.size() <= kPrefix.size() + kA.size()) {
    throw Error(
        "{}: tensor {} is not named base_model.model.MODULE.lora_A.weight or .lora_B.weight", file,
        name);
  }
  return {name.substr(kPrefix.size(), name.size() - kPrefix.size() - kA.size()), is_a};
}

// What a loader makes of lora_A [r,in] and lora_B [out,r]: delta = scale * B A.
Walk linear(const FoundTensor& tensor, const Module& module, bool is_a, std::int64_t rank,
            bool leading_one, const std::string& file) {
  std::vector<std::int64_t> shape =
      is_a ? std::vector{rank, module.in} : std::vector{module.out, rank};
  if (leading_one) shape.insert(shape.begin(), 1);
  require_shape(file, tensor, shape);
  const std::size_t axes = tensor.shape.size();
  return walk({1, 0}, {tensor.shape[axes - 2], tensor.shape[axes - 1]},
              {tensor.shape[axes - 1], 1});
}

// PEFT's ParamWrapper of a parameter [E, d1, d2]: lora_A is cut into [E, r, x], lora_B into
// [y, r, E], and sum_r B[y,r,e] A[e,r,x] is delta[e] with x for its input. From 0.19.1 on x is d2,
// the columns; before, x is d1, the rows: then what it calls lora_A acts as our B.
void fused(const FoundTensor& tensor, const Module& module, bool is_a, std::int64_t rank,
           FusedInput input, const std::string& file, Part& part) {
  const std::int64_t x = input == FusedInput::kLast ? module.in : module.out;
  const std::int64_t y = input == FusedInput::kLast ? module.out : module.in;
  const std::int64_t experts = module.experts;
  require_shape(file, tensor,
                is_a ? std::vector{experts * rank, x} : std::vector{y, rank * experts});
  const bool rows_of_native_a = is_a == (input == FusedInput::kLast);
  part.matrix = rows_of_native_a ? 'A' : 'B';
  // Steps of the rank and of the width in the native matrix, A [r,in] or B [out,r].
  const std::int64_t rank_step = rows_of_native_a ? module.in : 1;
  const std::int64_t width_step = rows_of_native_a ? 1 : rank;
  part.walk = is_a ? walk({experts, 0}, {rank, rank_step}, {x, width_step})
                   : walk({y, width_step}, {rank, rank_step}, {experts, 0});
}

// The form of the experts' adapters is seen from the tensors; no config says it.
class Forms {
 public:
  explicit Forms(std::string file) : file_(std::move(file)) {}
  void see(Format format, const std::string& name) {
    if (first_.empty()) {
      first_ = name;
      format_ = format;
    } else if (format != format_) {
      throw Error("{}: tensors {} and {} have the experts' adapters in two forms", file_, first_,
                  name);
    }
  }
  Format format() const { return format_; }

 private:
  std::string file_, first_;
  Format format_ = Format::kPeft;
};

std::vector<Module> adapted(const Base& base, std::span<const std::string> targets, bool routed) {
  std::vector<Module> modules;
  for (const Module& module : base.modules) {
    if (module.experts > 0 && !routed) continue;
    if (std::ranges::find(targets, module.target) != targets.end()) modules.push_back(module);
  }
  return modules;
}

// target_parameters of fused experts: PATH.weight without "layers.N." in front, each of a module.
void resolve_parameters(const std::string& file, const PeftConfig& config,
                        std::span<const Module> modules) {
  std::vector<bool> hit(config.target_parameters.size(), false);
  for (const Module& module : modules) {
    if (module.experts == 0) continue;
    const std::string parameter = '.' + module.path() + ".weight";
    bool found = false;
    for (std::size_t i = 0; i < hit.size(); ++i) {
      if (!parameter.ends_with('.' + config.target_parameters[i])) continue;
      hit[i] = found = true;
    }
    if (!found) {
      throw Error("{}: no entry of target_parameters matches {}.weight", file, module.path());
    }
  }
  const auto idle = std::ranges::find(hit, false);
  if (idle != hit.end()) {
    throw Error("{}: target_parameters entry \"{}\" matches no adapter", file,
                config.target_parameters[static_cast<std::size_t>(idle - hit.begin())]);
  }
}

}  // namespace

Exported open_peft(const std::filesystem::path& folder, const Base& base) {
  const std::string config_file = (folder / "adapter_config.json").string();
  const PeftConfig config = read_peft_config(config_file);
  const store::File file(folder / "adapter_model.safetensors");
  Exported exported;
  exported.file = file.path().string();
  exported.rank = config.rank;
  exported.alpha = config.alpha;
  exported.scale = static_cast<float>(config.alpha / static_cast<double>(config.rank));

  const ModuleIndex index(base.modules);
  Coverage coverage(base.modules);
  Forms forms(exported.file);
  KeyDigest keys;
  for (FoundTensor& tensor : read_tensors(file)) {
    const Key key = parse_key(tensor.name, exported.file);
    const auto place = index.find(key.path);
    if (!place) {
      throw Error("{}: tensor {} is for no module of the checkpoint that can be adapted",
                  exported.file, tensor.name);
    }
    const Module& module = base.modules[place->module];
    Part part;
    part.module = place->module;
    part.expert = place->expert;
    part.matrix = key.is_a ? 'A' : 'B';
    part.offset = tensor.offset;
    if (module.experts > 0 && place->expert < 0 && tensor.shape.size() == 2) {
      forms.see(Format::kPeftFused, tensor.name);
      if (config.peft_version.empty()) {
        throw Error("{}: experts are fused, and there is no peft_version to say how", config_file);
      }
      fused(tensor, module, key.is_a, exported.rank, fused_input(config.peft_version),
            exported.file, part);
    } else {
      const bool shared = module.experts > 0 && place->expert < 0;
      if (module.experts > 0) {
        forms.see(shared ? Format::kPeft : Format::kPeftPerExpert, tensor.name);
      }
      part.walk = linear(tensor, module, key.is_a, exported.rank, shared, exported.file);
    }
    coverage.tick(part.module, part.matrix, part.expert);
    exported.dtype = tensor.dtype;
    keys.add(tensor.name, tensor.dtype, tensor.shape);
    part.name = std::move(tensor.name);
    exported.parts.push_back(std::move(part));
  }
  exported.format = forms.format();
  exported.targets = coverage.complete(exported.file, false);
  exported.keys = keys.count();
  exported.keys_sha256 = keys.sha256();

  const bool is_fused = exported.format == Format::kPeftFused;
  resolve_entries(config_file, config.target_modules, adapted(base, exported.targets, !is_fused),
                  base.names);
  resolve_parameters(config_file, config,
                     is_fused ? adapted(base, exported.targets, true) : std::vector<Module>{});
  return exported;
}

}  // namespace engine::adapter
