#include "engine/model/checkpoint_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace engine::model {
namespace {

using base::Dtype;
using store::Finding;
using store::Severity;
using store::TensorEntry;

constexpr std::string_view kTextPrefix = "language_model.";
// A configuration that asks for this many tensors more than there are is told so once, not a
// million times: its numbers may come from anybody.
constexpr std::int64_t kMostMissing = 1'000'000;

class LayoutCheck {
 public:
  LayoutCheck(const Config& config, const store::ShardReader& reader)
      : config_(config), reader_(reader), expected_(reader.entries().size(), false) {}

  std::vector<Finding> run() {
    const std::int64_t wanted = tensor_count(config_);
    const auto present = static_cast<std::int64_t>(reader_.entries().size());
    if (wanted - present > kMostMissing) {
      report(Severity::kError, nullptr, "",
             fmt::format("the configuration wants {} tensors, the files hold {}", wanted, present));
      return std::move(findings_);
    }
    for (const ExpectedTensor& tensor : model_tensors(config_)) check(tensor);
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) check_layer(layer);
    check_rest();
    if (lost_ > 0) {
      report(Severity::kNote, nullptr, first_lost_,
             fmt::format("is not judged, and {} other tensors of the configuration neither: they "
                         "may be in the shards that are missing or cannot be read",
                         lost_ - 1));
    }
    if (!config_.quantization_stated) {
      report(Severity::kNote, nullptr, "",
             "no quantization_config: that the experts are MXFP4 is taken from the names "
             "weight_packed and weight_scale");
    }
    return std::move(findings_);
  }

 private:
  void report(Severity severity, const TensorEntry* entry, const std::string& tensor,
              const std::string& message) {
    Finding finding{severity, reader_.folder().string(), tensor, std::nullopt, message};
    if (entry != nullptr) {
      finding.file = reader_.file_of(*entry).path().string();
      finding.offset = entry->offset;
    }
    store::add(findings_, std::move(finding));
  }

  const TensorEntry* check(const ExpectedTensor& tensor) {
    const TensorEntry* entry = reader_.find_if_any(tensor.name);
    if (entry == nullptr && reader_.may_be_lost(tensor.name)) {
      if (lost_++ == 0) first_lost_ = tensor.name;
      return nullptr;
    }
    if (entry == nullptr) {
      report(Severity::kError, nullptr, tensor.name,
             fmt::format("is missing; the configuration wants it with shape [{}]",
                         fmt::join(tensor.shape, ",")));
      return nullptr;
    }
    expected_[static_cast<std::size_t>(entry - reader_.entries().data())] = true;
    const bool bytes = tensor.role == Role::kPacked || tensor.role == Role::kScale;
    if (entry->foreign_dtype != nullptr || (entry->dtype == Dtype::kU8) != bytes) {
      report(Severity::kError, entry, tensor.name,
             fmt::format("dtype is {}, where {} belongs",
                         entry->foreign_dtype != nullptr ? entry->foreign_dtype
                                                         : base::name_of(entry->dtype),
                         bytes ? "U8" : "BF16, F16 or F32"));
    }
    if (entry->shape != tensor.shape) {
      report(Severity::kError, entry, tensor.name,
             fmt::format("shape is [{}], the configuration wants [{}]",
                         fmt::join(entry->shape, ","), fmt::join(tensor.shape, ",")));
    }
    return entry;
  }

  void check_layer(std::int64_t layer) {
    for (const ExpectedTensor& tensor : layer_tensors(config_, layer)) check(tensor);
    if (config_.is_dense(layer)) return;
    check_latent_width(layer);
    std::int64_t scattered = 0;
    const TensorEntry* first_scattered = nullptr;
    for (std::int64_t expert = 0; expert < config_.experts; ++expert) {
      std::array<const TensorEntry*, 6> entries{};
      const auto tensors = expert_tensors(config_, layer, expert);
      std::ranges::transform(tensors, entries.begin(),
                             [&](const ExpectedTensor& tensor) { return check(tensor); });
      if (std::ranges::find(entries, nullptr) != entries.end()) continue;
      check_groups(entries);
      if (is_one_run(entries)) continue;
      if (scattered++ == 0) first_scattered = entries[0];
    }
    if (scattered > 0) {
      report(Severity::kNote, first_scattered, std::string(first_scattered->name),
             fmt::format(
                 "{} of the {} experts of layer {}, this the first, are not one run of bytes in "
                 "the order w1 w2 w3, packed before scale: correct, but several reads each",
                 scattered, config_.experts, layer));
    }
  }

  // The width the experts work in is not the model's: a program that takes hidden_size for it
  // plans, and multiplies, with the wrong one.
  void check_latent_width(std::int64_t layer) {
    const TensorEntry* entry = reader_.find_if_any(fmt::format(
        "language_model.model.layers.{}.block_sparse_moe.routed_expert_down_proj.weight", layer));
    if (entry == nullptr || entry->shape.size() != 2 || entry->shape[0] == config_.latent) return;
    report(Severity::kError, entry, std::string(entry->name),
           fmt::format("its rows make the latent width {}, but routed_expert_hidden_size is {}",
                       entry->shape[0], config_.latent));
  }

  // Of each pair: as many rows, and one scale for 32 columns, two of which share a byte of packed.
  void check_groups(const std::array<const TensorEntry*, 6>& entries) {
    for (std::size_t i = 0; i < entries.size(); i += 2) {
      const TensorEntry& packed = *entries[i];
      const TensorEntry& scale = *entries[i + 1];
      if (packed.shape.size() == 2 && scale.shape.size() == 2 &&
          packed.shape[0] == scale.shape[0] && packed.shape[1] % 16 == 0 &&
          packed.shape[1] / 16 == scale.shape[1]) {
        continue;
      }
      report(Severity::kError, &scale, std::string(scale.name),
             fmt::format(
                 "shape [{}] does not fit the packed codes' [{}]: one scale for 16 bytes of a row",
                 fmt::join(scale.shape, ","), fmt::join(packed.shape, ",")));
    }
  }

  static bool is_one_run(const std::array<const TensorEntry*, 6>& entries) {
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (entries[i]->shard != entries[0]->shard ||
          entries[i]->offset != entries[i - 1]->offset + entries[i - 1]->bytes) {
        return false;
      }
    }
    return true;
  }

  void check_rest() {
    const auto entries = reader_.entries();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (expected_[i] || !entries[i].name.starts_with(kTextPrefix)) continue;
      const bool unused_norm =
          !config_.latent_norm && entries[i].name.ends_with(".routed_expert_norm.weight");
      report(unused_norm ? Severity::kWarning : Severity::kError, &entries[i],
             std::string(entries[i].name),
             unused_norm
                 ? "is not used: latent_moe_use_norm is false"
                 : "the configuration has no place for this tensor, and to leave it out would "
                   "be another model");
    }
  }

  const Config& config_;
  const store::ShardReader& reader_;
  std::vector<bool> expected_;  // [entry]
  std::vector<Finding> findings_;
  std::int64_t lost_ = 0;
  std::string first_lost_;
};

}  // namespace

std::vector<Finding> check_layout(const Config& config, const store::ShardReader& reader) {
  return LayoutCheck(config, reader).run();
}

}  // namespace engine::model
