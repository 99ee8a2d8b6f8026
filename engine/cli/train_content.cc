#include "engine/cli/train_content.h"

#include <fmt/format.h>

#include <vector>

#include "engine/base/sha256.h"
#include "engine/store/digests.h"
#include "engine/store/durable.h"
#include "engine/store/pack.h"
#include "engine/store/packed_copy.h"

namespace engine::cli {

store::ScaleScan scan_scales(const store::ShardReader& shards, bool strict,
                             ProgressLine& progress) {
  std::vector<store::Finding> findings;
  const store::ScaleScan scales = store::scan_scales(shards, strict, findings);
  store::throw_first_error(findings);
  if (scales.nan_groups > 0) {
    progress.note(fmt::format("scale byte 255: {} of {} groups, {} with non-zero codes, taken as 0",
                              scales.nan_groups, scales.groups, scales.nan_groups_with_codes));
  }
  return scales;
}

namespace {

// The same of the packed copy, from which the trunk is read: its index has the manifest's digests,
// and its bytes those of the index. Kept beside the checkpoint's verification, which holds without it.
void verify_copy(const std::string& digests, const std::string& cache_file,
                 const std::string& folder, const OpenModel& open, const std::string& key,
                 const std::function<void(const std::string&)>& note) {
  const store::ShardReader& shards = open.model->shards();
  const store::PackedCopy copy(folder, shards, open.model->config().sha256,
                               {.direct = store::DirectReads::kAlways});
  copy.require_verified();  // as the model's own was: these are the same files
  const std::string cache = cache_file + ".pack", now = key + copy.verification();
  const bool known = !key.empty() && store::verification_is_cached(cache, now);
  if (!known) {
    base::Buffer<std::byte> room = open.budget->take_room(
        "a piece of a tensor", static_cast<std::int64_t>(store::kPackRoomBytes));
    store::throw_first_error(store::compare_digests(copy, digests), "");
    store::throw_first_error(store::verify_pack(copy, shards, store::PackCheck::kCopy, room.span()),
                             "; `lazylora pack MODEL OUT --verify` lists them");
    if (!key.empty()) store::write_file_durably(cache, std::string_view(now));
  }
  note(fmt::format("packed copy {}: content {} against {}", folder,
                   known ? "verified before" : "verified", digests));
}

}  // namespace

std::string verify_content(const std::string& digests, const std::string& cache,
                           const std::string& pack, const OpenModel& open,
                           const std::function<void(const std::string&)>& note) {
  if (digests.empty()) {
    note("content not verified (--digests FILE compares every tensor with its digest)");
    return "";
  }
  const model::Model& model = *open.model;
  const std::string& config = model.config().sha256;
  const std::string key =
      cache.empty() ? "" : store::verification_key(digests, model.shards(), config);
  const bool known = !key.empty() && store::verification_is_cached(cache, key);
  if (!known) {
    store::throw_first_error(store::verify_digests(digests, model.shards(), config));
    if (!key.empty()) store::write_file_durably(cache, std::string_view(key));
  }
  note(fmt::format("content {} against {}", known ? "verified before" : "verified", digests));
  if (!pack.empty()) verify_copy(digests, cache, pack, open, key, note);
  return base::sha256_hex_of_file(digests);
}

}  // namespace engine::cli
