#include "engine/cli/waiting.h"

#include <unistd.h>

#include <cstdlib>

namespace engine::cli {

void wait_passively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);
  // Without /proc the program runs on as it is: slower on a busy machine, with the same results.
}

}  // namespace engine::cli
