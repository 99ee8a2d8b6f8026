#include "engine/cli/eval_time.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/cli/common.h"
#include "engine/measure/ots_proof.h"
#include "engine/measure/time_proof.h"
#include "engine/store/file.h"

namespace engine::cli {

void add_time_proof_options(CLI::App& command, CLI::Option* registration, TimeProofFiles& files) {
  CLI::Option* answer =
      command
          .add_option("--time-proof", files.answer,
                      "RFC 3161 answer for the registration's file, verified offline")
          ->check(refuse_empty)
          ->needs(registration);
  answer->needs(command
                    .add_option("--time-authorities", files.authorities,
                                "certificates that the proof's signature has to lead to, PEM")
                    ->check(refuse_empty)
                    ->needs(answer));
  CLI::Option* ots = command
                         .add_option("--ots-proof", files.ots,
                                     "OpenTimestamps proof (.ots) of the registration's file")
                         ->check(refuse_empty)
                         ->needs(registration)
                         ->excludes(answer);
  command
      .add_option("--block-header", files.block_header,
                  "header of the Bitcoin block that it leads to: 80 bytes, or 160 hex digits")
      ->check(refuse_empty)
      ->needs(ots);
}

void require_readable(const TimeProofFiles& files) {
  for (const std::string& name : {files.answer, files.authorities, files.ots, files.block_header}) {
    if (!name.empty()) store::File{name};
  }
}

std::string prove_time(const TimeProofFiles& files, measure::RegistrationFacts& facts) {
  if (!facts.registered) return "";
  try {
    if (!files.ots.empty()) {
      const measure::OtsTime proven =
          measure::verify_ots_proof(files.ots, facts.file_sha256, files.block_header);
      facts.proven_unix_s = proven.unix_s;
      return proven.words;
    }
    if (files.answer.empty()) return "own clock only";
    const measure::ProvenTime proven =
        measure::verify_time_proof(files.answer, facts.file_sha256, files.authorities);
    facts.proven_unix_s = proven.unix_s;
    return fmt::format("RFC 3161: existed at {}, certificates SHA-256 {}", proven.text,
                       base::sha256_hex_of_file(files.authorities));
  } catch (const base::Error& wrong) {
    facts.time_proof_wrong = wrong.what();
    return "own clock only: the time proof does not hold";
  }
}

}  // namespace engine::cli
