#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <sstream>
#include <string>

#include "engine/cli/analyze.h"
#include "engine/cli/command_tree.h"
#include "engine/cli/common.h"
#include "engine/cli/data.h"
#include "engine/cli/disk.h"
#include "engine/cli/eval.h"
#include "engine/cli/export.h"
#include "engine/cli/forward.h"
#include "engine/cli/generate.h"
#include "engine/cli/import.h"
#include "engine/cli/make_model.h"
#include "engine/cli/pack.h"
#include "engine/cli/plan.h"
#include "engine/cli/preregister.h"
#include "engine/cli/reference.h"
#include "engine/cli/shards.h"
#include "engine/cli/status.h"
#include "engine/cli/stop_signals.h"
#include "engine/cli/tokenize.h"
#include "engine/cli/trace.h"
#include "engine/cli/train.h"
#include "engine/cli/version.h"
#include "engine/cli/waiting.h"
#include "engine/cli/watch.h"

namespace {

// A closed standard stream would be the number of the next file that is opened, which would then get
// what is printed. Opened the wrong way round, so that printing to it fails as it should.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

// What was printed may still be on its way; a disk that is full says so only now.
int finish(int code) {
  const bool failed = std::fflush(stdout) != 0;
  const int reason = errno;
  if (!failed && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "lazylora: standard output could not be written%s%s\n", failed ? ": " : "",
               failed ? std::strerror(reason) : "");
  return code == 0 ? 1 : code;
}

int fail(const char* why) {
  std::fflush(stdout);
  std::fprintf(stderr, "lazylora: %s\n", engine::cli::harmless(why).c_str());
  return 1;
}

}  // namespace

// Exit codes: engine/cli/common.h.
int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  occupy_standard_streams();
  // A file that may not grow is then an error like any other, with its name, instead of a death.
  std::signal(SIGXFSZ, SIG_IGN);
  engine::cli::hear_signals();
  CLI::App app("LazyLoRA: train LoRA adapters for a Kimi K3 checkpoint by streaming it from disk");
  app.set_version_flag("--version", LAZYLORA_VERSION);
  app.footer(engine::cli::kExitCodes);
  app.require_subcommand(1);
  engine::cli::add_make_model_command(app);
  engine::cli::add_shards_command(app);
  engine::cli::add_tokenize_command(app);
  engine::cli::add_data_command(app);
  engine::cli::add_forward_command(app);
  engine::cli::add_train_command(app);
  engine::cli::add_status_command(app);
  engine::cli::add_watch_command(app);
  engine::cli::add_generate_command(app);
  engine::cli::add_eval_command(app);
  engine::cli::add_preregister_command(app);
  engine::cli::add_export_command(app);
  engine::cli::add_import_command(app);
  engine::cli::add_trace_command(app);
  engine::cli::add_analyze_command(app);
  engine::cli::add_disk_command(app);
  engine::cli::add_plan_command(app);
  engine::cli::add_pack_command(app);
  engine::cli::add_reference_command(app);
  engine::cli::refuse_empty_required(app);
  for (const char* writes :
       {"train", "data", "trace", "analyze", "eval", "preregister", "export"}) {
    engine::cli::refuse_unless_utf8(*app.get_subcommand(writes));
  }
  int code = 0;
  try {
    const std::string unknown = engine::cli::unknown_command(
        app, std::span(argv + 1, static_cast<std::size_t>(std::max(argc, 1) - 1)));
    if (!unknown.empty()) throw CLI::ParseError(unknown, 2);
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& done) {
    code = done.get_exit_code();
  } catch (const CLI::ParseError& error) {
    // Help, the version, or what is wrong with the arguments, which may hold anything.
    std::ostringstream out, wrong;
    code = app.exit(error, out, wrong) == 0 ? 0 : 2;
    std::fputs(engine::cli::harmless(out.str()).c_str(), stdout);
    std::fputs(engine::cli::harmless(wrong.str()).c_str(), stderr);
  } catch (const std::bad_alloc&) {
    code = fail("out of memory: the machine has less than the budget allows (--ram)");
  } catch (const std::exception& error) {
    code = fail(error.what());
  }
  return finish(code);
}
