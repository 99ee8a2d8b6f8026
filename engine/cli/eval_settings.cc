#include "engine/cli/eval_settings.h"

#include <limits>

#include "engine/base/error.h"

namespace engine::cli {

void add_eval_settings(CLI::App& command, EvalSettingOptions& options) {
  measure::EvalSettings& given = options.given;
  options.chunk = add_whole_number<std::int64_t>(command, "--chunk", given.chunk, 1,
                                                 measure::kMostChunk, "predictions of a chunk");
  options.stride = add_whole_number<std::int64_t>(
                       command, "--stride", given.stride, 1, measure::kMostChunk,
                       "from one chunk to the next, at most --chunk (default: --chunk)")
                       ->default_str("");
  options.bos =
      command
          .add_option(
              "--bos", given.bos,
              "begin-of-text id: none, first (before the text) or each (before every chunk)")
          ->check(CLI::IsMember({"none", "first", "each"}));
  options.seed =
      add_whole_number<std::int64_t>(command, "--seed", given.seed, 0,
                                     std::numeric_limits<std::int64_t>::max(), "of the bootstrap");
}

measure::EvalSettings settings_of(const EvalSettingOptions& options) {
  measure::EvalSettings settings = options.given;
  if (options.stride->empty()) settings.stride = settings.chunk;
  if (settings.stride > settings.chunk) {
    throw CLI::ValidationError(
        fmt::format("--stride is {}, --chunk is {}: what lies between would not be scored",
                    settings.stride, settings.chunk));
  }
  return settings;
}

void require_registered(const EvalSettingOptions& options, const measure::EvalSettings& registered,
                        const std::string& registration) {
  const auto same = [&](const CLI::Option* flag, const auto& given, const auto& frozen) {
    if (flag->empty() || given == frozen) return;
    throw base::Error("{} is {}, and {} has {}: without the flag it is as registered",
                      flag->get_name(), given, registration, frozen);
  };
  same(options.chunk, options.given.chunk, registered.chunk);
  same(options.stride, options.given.stride, registered.stride);
  same(options.bos, options.given.bos, registered.bos);
  same(options.seed, options.given.seed, registered.seed);
}

}  // namespace engine::cli
