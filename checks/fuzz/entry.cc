// libFuzzer's way in; which reader is fuzzed says LAZYLORA_FUZZ_TARGET. Built by the preset `fuzz` only.

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "checks/fuzz/targets.h"

namespace {
const checks::FuzzTarget* target = nullptr;
}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("LAZYLORA_FUZZ_TARGET");
  try {
    target = &checks::fuzz_target(name == nullptr ? "" : name);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: %s; LAZYLORA_FUZZ_TARGET is one of\n", error.what());
    for (const auto& each : checks::fuzz_targets()) {
      std::fprintf(stderr, "  %.*s\n", static_cast<int>(each.name.size()), each.name.data());
    }
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  target->run({data, size});
  return 0;
}
