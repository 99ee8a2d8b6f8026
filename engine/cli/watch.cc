#include "engine/cli/watch.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cli/common.h"
#include "engine/cli/progress.h"
#include "engine/store/at_path.h"
#include "engine/train/restart.h"

namespace engine::cli {
namespace {

struct WatchArguments {
  std::string run;
  std::int64_t restarts = train::RestartLimits().restarts;
  std::string free_disk, free_memory;
};

constexpr std::int64_t kMostRestarts = 1'000'000;

// What the kernel would give to a program that asks now, without swapping.
std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  throw base::Error("/proc/meminfo: has no MemAvailable");
}

std::optional<std::uint64_t> bytes_of(const std::string& flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  std::uint64_t bytes = 0;
  as_usage([&] {
    try {
      bytes = base::parse_bytes(text);
    } catch (const base::Error& error) {
      throw base::Error("{}: {}", flag, error.what());
    }
  });
  return bytes;
}

// This process becomes the run, so that whoever looks after the one looks after the other.
[[noreturn]] void become(const train::Restart& restart) {
  std::vector<std::string> words{"lazylora"};
  words.insert(words.end(), restart.arguments.begin(), restart.arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  store::enter_folder(restart.folder);
  std::fflush(stdout);
  ::execv("/proc/self/exe", pointers.data());
  throw base::Error("/proc/self/exe cannot be run again: {}", std::strerror(errno));
}

void run_watch(const WatchArguments& given) {
  const train::RestartLimits limits{given.restarts, bytes_of("--free-disk", given.free_disk),
                                    bytes_of("--free-memory", given.free_memory)};
  const train::RunStatus status = train::read_status(given.run);
  const std::uint64_t memory = available_memory();
  say("{}: {}, {} of {} steps; {} of memory and {} of its disk free\n", given.run,
      train::name_of(status.standing), status.step, status.steps, base::format_bytes(memory),
      base::format_bytes(status.disk_free_bytes));
  if (status.standing == train::Standing::kStalled) {
    say("no sign of life for {}; it is left alone\n", format_seconds(status.silent_seconds));
    throw CLI::RuntimeError(static_cast<int>(train::Standing::kStalled));
  }
  if (status.standing != train::Standing::kDead) return;
  if (status.where) {
    say("it {} in {}\n", train::verb_of(status.where->ending), train::describe(*status.where));
  }
  const train::Restart restart = train::plan_restart(given.run, status, limits, memory);
  say("starting it again behind step {} (restart {} of {} there)\n", status.checkpoint_step,
      restart.restarts + 1, limits.restarts);
  train::count_restart(given.run, status, restart);
  become(restart);
}

}  // namespace

void add_watch_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("watch", "one look at a run; a dead one is started again (for a timer)");
  command->footer(
      "Exit codes: 0 finished or running, or the code of the run that was started again; 4 "
      "stalled: "
      "it is left alone; 1 dead, and a limit forbids to start it again; 2 bad usage. To stop a run "
      "that is watched, stop the timer first.");
  const auto given = std::make_shared<WatchArguments>();
  command->add_option("run", given->run, "run folder")->required();
  add_whole_number<std::int64_t>(*command, "--restarts", given->restarts, 0, kMostRestarts,
                                 "starts behind one checkpoint, whatever becomes of them");
  command
      ->add_option("--free-disk", given->free_disk,
                   "least free disk to start again with (default: what two checkpoints take)")
      ->check(refuse_empty);
  command
      ->add_option("--free-memory", given->free_memory,
                   "least free memory to start again with (default: the budget of the last start)")
      ->check(refuse_empty);
  command->callback([given] { run_watch(*given); });
}

}  // namespace engine::cli
