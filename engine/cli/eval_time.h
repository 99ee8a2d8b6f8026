#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/measure/preregistration.h"

namespace engine::cli {

// Proofs from outside of when a registration was there: one of the two, or none.
struct TimeProofFiles {
  std::string answer, authorities;  // RFC 3161
  std::string ots, block_header;    // OpenTimestamps
};

void add_time_proof_options(CLI::App& command, CLI::Option* registration, TimeProofFiles& files);

// Errors    Error naming the file: not there, or not to be opened. What stands in it is prove_time's.
void require_readable(const TimeProofFiles& files);

// What is known of when the registration was written, in words; into `facts` what judges. A proof that
// does not hold is an objection, not an error: the report is to say so.
std::string prove_time(const TimeProofFiles& files, measure::RegistrationFacts& facts);

}  // namespace engine::cli
