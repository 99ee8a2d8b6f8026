#include "engine/cli/generate.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "engine/base/sha256.h"
#include "engine/cli/common.h"
#include "engine/cli/progress.h"
#include "engine/data/chat.h"
#include "engine/data/ids.h"
#include "engine/data/tokenizer.h"
#include "engine/data/utf8_stream.h"
#include "engine/model/decoder.h"
#include "engine/model/expert_stream.h"
#include "engine/model/sampler.h"
#include "engine/store/file.h"

namespace engine::cli {
namespace {

// A prompt is held whole, as its ids are.
constexpr std::uint64_t kMostPromptBytes = std::uint64_t{1} << 30;
constexpr std::int64_t kMostTokens = 1'000'000;

struct GenerateOptions {
  std::string model, prompt, prompt_file, ids, adapter;
  std::string form = "chat";
  bool foreign_adapter = false, compare = false, json = false, strict = false;
  std::int64_t max_tokens = 128;
  model::SamplingSettings sampling;
  MachineOptions machine;
};

// What is continued, and which ids end the answer.
struct Prompt {
  std::vector<std::int32_t> ids, ends;
};

// Without a tokenizer ids go in and out.
Prompt read_prompt(const GenerateOptions& options, const data::Tokenizer* tokenizer_or_none,
                   std::int64_t vocabulary, base::RamBudget& budget, base::Charge& held) {
  Prompt prompt;
  if (tokenizer_or_none == nullptr) {
    prompt.ids = data::read_ids(options.ids, vocabulary, &budget);
    if (prompt.ids.empty()) throw base::Error("{}: holds no token ids", options.ids);
    return prompt;
  }
  const data::Tokenizer& tokenizer = *tokenizer_or_none;
  // Text is in memory as such, as segment and as ids.
  const std::uint64_t bytes =
      options.prompt_file.empty() ? options.prompt.size() : file_bytes(options.prompt_file);
  held.grow(bytes * (2 + data::kBytesAnId));
  const std::string where = options.prompt_file.empty() ? "--prompt" : options.prompt_file;
  const std::string text = options.prompt_file.empty()
                               ? options.prompt
                               : store::read_text(options.prompt_file, kMostPromptBytes);
  for (const char* name : {"<|end_of_msg|>", "[EOS]"}) {
    const std::int32_t id = tokenizer.special().find(name);
    if (id >= 0) prompt.ends.push_back(id);
  }
  if (options.form == "plain") {
    prompt.ids = tokenizer.encode(text, where);
  } else {
    // All in front of the answer: what is not trained.
    const data::ChatForm chat(tokenizer, options.model);
    const data::Exchange exchange = chat.exchange(text, "", where);
    const auto answer = std::ranges::find(exchange.trained, std::uint8_t{1});
    prompt.ids.assign(exchange.ids.begin(),
                      exchange.ids.begin() + (answer - exchange.trained.begin()));
  }
  if (prompt.ids.empty()) throw base::Error("{}: holds no tokens", where);
  return prompt;
}

// What some sweeps took.
struct Cost {
  double seconds = 0.0;
  std::int64_t sweeps = 0;
  std::uint64_t bytes_read = 0, bytes_kept = 0;  // kept: wanted, and found in memory
  std::uint64_t expert_bytes = 0, expert_bytes_kept = 0;

  double hit_rate() const {
    return expert_bytes == 0
               ? 0.0
               : static_cast<double>(expert_bytes_kept) / static_cast<double>(expert_bytes);
  }
};

struct Answer {
  std::vector<std::int32_t> ids;
  std::string text;
  bool ended = false;  // by an id that ends it, which is the last of ids
  std::string logits_sha256;
  Cost prompt, tokens;
};

// Shows an answer while it grows. Text ends at the first control token: what follows are marks.
class Teller {
 public:
  Teller(const data::Tokenizer* tokenizer, bool aloud) : tokenizer_(tokenizer), aloud_(aloud) {}

  void token(std::int32_t id) {
    if (tokenizer_ == nullptr) return put(fmt::format("{}{}", text_.empty() ? "" : ",", id));
    marks_ |= id >= tokenizer_->special().first();
    if (!marks_) put(stream_.push(tokenizer_->decode(std::span(&id, 1))));
  }
  std::string finish() {
    put(stream_.finish());
    if (aloud_) say("\n");
    return text_;
  }

 private:
  void put(const std::string& text) {
    text_ += text;
    if (!aloud_ || text.empty()) return;
    // Into a file or a program it goes as it is.
    fmt::print("{}", terminal_ ? harmless(text) : text);
    std::fflush(stdout);
  }

  const data::Tokenizer* tokenizer_;
  bool aloud_;
  bool terminal_ = ::isatty(STDOUT_FILENO) == 1;
  bool marks_ = false;
  data::Utf8Stream stream_;
  std::string text_;
};

// Sweeps over the next tokens; the last one's logits are in `sampler` afterwards.
class Continued {
 public:
  Continued(model::Decoder& decoder, model::Sampler& sampler, const model::Config& config)
      : decoder_(decoder), sampler_(sampler), config_(config) {}

  void run(std::span<const std::int32_t> tokens, Cost& cost) {
    const auto started = std::chrono::steady_clock::now();
    while (!tokens.empty()) {
      const auto count = std::min(static_cast<std::size_t>(decoder_.most_at_once()), tokens.size());
      model::SweepHooks hooks;
      hooks.logits = [&](std::int64_t first, std::int64_t rows, std::span<const float> band) {
        std::ranges::copy(band.last(static_cast<std::size_t>(rows)),
                          sampler_.logits().begin() + first);
      };
      const std::uint64_t kept_before = decoder_.expert_bytes_saved();
      const model::SweepResult result = decoder_.run(tokens.first(count), hooks);
      tokens = tokens.subspan(count);
      const std::int64_t experts = std::accumulate(result.distinct_experts.begin(),
                                                   result.distinct_experts.end(), std::int64_t{0});
      ++cost.sweeps;
      cost.bytes_read += result.bytes_read;
      cost.bytes_kept += result.bytes_saved;
      cost.expert_bytes +=
          static_cast<std::uint64_t>(experts * model::ExpertStream::bytes(config_));
      cost.expert_bytes_kept += decoder_.expert_bytes_saved() - kept_before;
    }
    cost.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  }

 private:
  model::Decoder& decoder_;
  model::Sampler& sampler_;
  const model::Config& config_;
};

Answer answer(const GenerateOptions& options, const OpenModel& open,
              const data::Tokenizer* tokenizer, const Prompt& prompt,
              const model::AdapterSet* adapters) {
  const model::Config& config = open.model->config();
  model::Sampler sampler(options.sampling, config.vocabulary, *open.budget);
  const std::int64_t known = std::ssize(prompt.ids);
  // The last token is chosen, not run.
  const auto decoder = open.model->decode(adapters, known, known + options.max_tokens - 1);
  Continued continued(*decoder, sampler, config);
  Teller teller(tokenizer, !options.json);
  base::Sha256 hash;
  Answer answer;
  continued.run(prompt.ids, answer.prompt);
  for (std::int64_t step = 0;; ++step) {
    hash.update_values(std::span<const float>(sampler.logits()));
    const std::int32_t id = sampler.choose(static_cast<std::uint64_t>(step));
    answer.ids.push_back(id);
    answer.ended = std::ranges::find(prompt.ends, id) != prompt.ends.end();
    teller.token(id);
    if (answer.ended || step + 1 == options.max_tokens) break;
    continued.run(std::span(&id, 1), answer.tokens);
  }
  answer.text = teller.finish();
  answer.logits_sha256 = hash.hex();
  return answer;
}

nlohmann::ordered_json json_of(const Cost& cost) {
  return {{"sweeps", cost.sweeps},
          {"seconds", cost.seconds},
          {"bytes_read", cost.bytes_read},
          {"bytes_kept", cost.bytes_kept},
          {"expert_hit_rate", cost.hit_rate()}};
}

void report(const char* what, const Cost& cost) {
  if (cost.sweeps == 0) return;
  const auto sweeps = static_cast<std::uint64_t>(cost.sweeps);
  say(stderr, "{:<18} {} times {}, {} read, {} found in memory; experts found {:.1f} %\n", what,
      cost.sweeps, format_seconds(cost.seconds / static_cast<double>(sweeps)),
      base::format_bytes(cost.bytes_read / sweeps), base::format_bytes(cost.bytes_kept / sweeps),
      100.0 * cost.hit_rate());
}

void run(const GenerateOptions& options) {
  apply_machine_options(options.machine);
  // First, so that its memory is part of what the process holds when the budget is opened.
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (options.ids.empty()) {
    tokenizer = std::make_unique<data::Tokenizer>(options.model,
                                                  model::load_config(options.model).vocabulary);
  }
  const OpenModel open = open_model(options.model, options.machine, options.strict);
  // Less than one token takes no answer does: whatever is charged from here on, fits beside it or is itself
  // too large, and the table of all that is needed comes before the first refusal.
  open.model->require_budget(std::array<std::int64_t, 2>{0, 1}, nullptr, false);
  const std::int64_t vocabulary = open.model->config().vocabulary;
  base::Charge held(*open.budget, "prompt");
  const Prompt prompt = read_prompt(options, tokenizer.get(), vocabulary, *open.budget, held);
  std::unique_ptr<model::AdapterSet> adapters;
  if (!options.adapter.empty()) {
    adapters = open_adapter(options.adapter, *open.model, options.foreign_adapter, *open.budget,
                            model::Gradients::kNone);
  }
  std::vector<const model::AdapterSet*> sets;
  if (options.compare) sets.push_back(nullptr);
  sets.push_back(adapters.get());

  nlohmann::ordered_json out;
  out["prompt_tokens"] = prompt.ids.size();
  for (const model::AdapterSet* set : sets) {
    const std::string with = set == nullptr ? "without adapter" : "with " + options.adapter;
    if (options.compare && !options.json) say("--- {} ---\n", with);
    const Answer found = answer(options, open, tokenizer.get(), prompt, set);
    const char* end = found.ended ? "end of turn" : "limit";
    if (options.json) {
      nlohmann::ordered_json one;
      one["adapter"] = nullptr;
      if (set != nullptr) one["adapter"] = options.adapter;
      one["ids"] = found.ids;
      one["text"] = found.text;
      one["end"] = end;
      one["logits_sha256"] = found.logits_sha256;
      one["prompt"] = json_of(found.prompt);
      one["tokens"] = json_of(found.tokens);
      out["answers"].push_back(one);
      continue;
    }
    std::fflush(stdout);
    say(stderr, "{:<18} {}, ended by {}\n", "tokens", found.ids.size(), end);
    report("prompt", found.prompt);
    report("each token", found.tokens);
    say(stderr, "{:<18} {}\n", "logits SHA-256", found.logits_sha256);
  }
  report_pack(*open.model, options.machine);
  if (options.json) {
    out["config_sha256"] = open.model->config().sha256;
    out["peak_rss_bytes"] = base::peak_rss_bytes();
    say_json(out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
  }
}

// A number in [0, most] or, if zero is not allowed, in (0, most].
void add_real(CLI::App& command, const std::string& flag, double& member, bool zero, double most,
              const std::string& what) {
  const auto take = [flag, &member, zero, most](const std::string& text) {
    const std::optional<double> number = base::parse_decimal<double>(text);
    if (!number || *number < 0.0 || *number > most || (*number == 0.0 && !zero)) {
      throw CLI::ValidationError(
          fmt::format("{} is \"{}\": must be a decimal number {} 0 and at "
                      "most {}",
                      flag, text, zero ? "from" : "above", most));
    }
    member = *number;
  };
  command.add_option_function<std::string>(flag, take, what)
      ->type_name("X")
      ->default_str(fmt::format("{}", member));
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App& command = *app.add_subcommand("generate",
                                          "continue a prompt token by token; the answer on "
                                          "standard output, its cost on standard error");
  // One option of two names, each of which --help lists.
  command.add_option("--model,MODEL", options->model, "checkpoint folder")
      ->required()
      ->option_text("TEXT (MODEL or --model REQUIRED)");
  CLI::App& prompt = *command.add_option_group("prompt", "one of these");
  prompt.add_option("--prompt", options->prompt, "text")->check(refuse_empty);
  prompt.add_option("--prompt-file", options->prompt_file, "file of UTF-8 text")
      ->check(refuse_empty);
  prompt
      .add_option("--ids", options->ids,
                  "file of token ids; ids come out, and no id ends the answer")
      ->check(refuse_empty);
  prompt.require_option(1);
  command
      .add_option(
          "--form", options->form,
          "chat: the text is a user's message and what comes is the answer; plain: the text "
          "is continued as it stands")
      ->check(CLI::IsMember({"chat", "plain"}))
      ->capture_default_str();
  CLI::Option* adapter =
      command.add_option("--adapter", options->adapter, "adapter file, or a folder that holds one")
          ->check(refuse_empty);
  command.add_flag("--foreign-adapter", options->foreign_adapter, kForeignAdapter)->needs(adapter);
  command
      .add_flag("--compare", options->compare,
                "answer without the adapter first, then with it, from the same draws")
      ->needs(adapter);
  add_whole_number<std::int64_t>(command, "--max-tokens", options->max_tokens, 1, kMostTokens,
                                 "longest answer, in tokens");
  add_real(command, "--temperature", options->sampling.temperature, true, 1e6,
           "0: always the likeliest token; else what logits are divided by before one is drawn");
  add_real(command, "--top-p", options->sampling.top_p, false, 1.0,
           "draw among the likeliest tokens that make this part of the probability");
  add_whole_number<std::uint64_t>(command, "--seed", options->sampling.seed, 0, UINT64_MAX,
                                  "of the draws");
  command.add_flag("--json", options->json, "print one JSON object");
  command.add_flag("--strict", options->strict, "refuse E8M0 scale bytes of 255");
  add_machine_options(command, options->machine);
  add_pack_option(command, options->machine);
  command.callback([options] { run(*options); });
}

}  // namespace engine::cli
