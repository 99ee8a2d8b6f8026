#pragma once

namespace engine::cli {

// Threads of an OpenMP team that wait for work spin by default, and on a shared machine every
// spinning thread takes the core that the others wait for. The runtime reads its settings before
// main, so a program that was started without OMP_WAIT_POLICY starts itself once more with it set
// to passive. Call first thing in main.
void wait_passively(char** argv);

}  // namespace engine::cli
