#include "engine/cli/eval_model.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/digest_manifest.h"
#include "engine/train/manifest.h"

namespace engine::cli {

measure::RegisteredModel model_of(const model::Config& config, const store::ShardReader& shards,
                                  const std::string& digests) {
  const std::filesystem::path& folder = shards.folder();
  measure::RegisteredModel model{config.sha256,
                                 train::headers_digest(shards),
                                 base::sha256_hex_of_file(folder / "tiktoken.model"),
                                 base::sha256_hex_of_file(folder / "tokenizer_config.json"),
                                 {}};
  if (digests.empty()) return model;
  const auto skip = [](const store::ManifestRow&) {};
  const std::string of = store::read_manifest(digests, skip, skip);
  if (of != config.sha256) {
    throw base::Error("{}: is of a config.json of SHA-256 {}, that of {} has {}", digests, of,
                      folder.string(), config.sha256);
  }
  model.digests_sha256 = base::sha256_hex_of_file(digests);
  return model;
}

void require_registered(const measure::RegisteredModel& here,
                        const measure::Preregistration& registered, const std::string& registration,
                        const std::string& folder) {
  if (!registered.settings) return;
  const auto same = [&](const char* what, const std::string& now, const std::string& then) {
    if (now == then) return;
    throw base::Error(
        "{}: SHA-256 of its {} is {}, and {} was registered with {}: nothing else is judged by it",
        folder, what, now, registration, then);
  };
  const measure::RegisteredModel& frozen = registered.model;
  same("config.json", here.config_sha256, frozen.config_sha256);
  same("shards' headers", here.headers_sha256, frozen.headers_sha256);
  same("tiktoken.model", here.tokenizer_sha256, frozen.tokenizer_sha256);
  same("tokenizer_config.json", here.tokenizer_config_sha256, frozen.tokenizer_config_sha256);
  if (here.digests_sha256.empty() || frozen.digests_sha256.empty()) return;
  same("--digests", here.digests_sha256, frozen.digests_sha256);
}

std::string words_of_weights(const std::string& verified,
                             const measure::RegisteredModel& registered) {
  const std::string& frozen = registered.digests_sha256;
  if (verified.empty()) {
    return "content not verified" +
           (frozen.empty() ? "" : " against the registered digests, SHA-256 " + frozen);
  }
  if (frozen.empty()) {
    return fmt::format(
        "content verified against digests of SHA-256 {}, which are not in the registration",
        verified);
  }
  return fmt::format("content verified against the registered digests, SHA-256 {}", verified);
}

}  // namespace engine::cli
