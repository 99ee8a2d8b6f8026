#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "engine/cli/forward.h"
#include "engine/cli/make_model.h"
#include "engine/cli/shards.h"
#include "engine/cli/train.h"
#include "engine/cli/version.h"
#include "engine/cli/waiting.h"

// Exit codes: 0 holds, 1 does not hold or failed, 2 bad usage.
int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  CLI::App app("LazyLoRA: train LoRA adapters for a Kimi K3 checkpoint by streaming it from disk");
  app.set_version_flag("--version", LAZYLORA_VERSION);
  app.require_subcommand(1);
  engine::cli::add_make_model_command(app);
  engine::cli::add_shards_command(app);
  engine::cli::add_forward_command(app);
  engine::cli::add_train_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "lazylora: %s\n", error.what());
    return 1;
  }
  return 0;
}
