#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/measure/bootstrap.h"

namespace engine::measure {

struct RegisteredData {
  std::string name;
  std::string sha256;
};

// How an evaluation cuts its texts and draws its intervals: all of it that is free to choose and moves a number.
struct EvalSettings {
  std::int64_t chunk = 256;
  std::int64_t stride = 256;  // 1 ... chunk
  std::string bos = "none";   // of kBosNames
  std::int64_t seed = 1;      // of the bootstrap
  std::int64_t resamples = kResamples;

  friend bool operator==(const EvalSettings&, const EvalSettings&) = default;
};

inline constexpr std::int64_t kMostChunk = 1'000'000;

// The model and the tokenizer that a verdict is of, each by SHA-256. A header says nothing of the weights behind
// it: only digests_sha256 does.
struct RegisteredModel {
  std::string config_sha256, headers_sha256;              // as in a run's manifest
  std::string tokenizer_sha256, tokenizer_config_sha256;  // tiktoken.model, tokenizer_config.json
  std::string
      digests_sha256;  // of the manifest of `lazylora shards --write-digests`; empty: none was given
};

// What a run is to answer, fixed before it starts. The question is decided by one number: a metric
// of one task, adapter minus base.
struct Preregistration {
  std::string name;  // NNNN-slug
  std::string question;
  std::vector<RegisteredData> data;
  std::string task;                      // as results name it
  std::string metric;                    // of kMetrics
  std::string direction;                 // "below" or "above"
  double threshold = 0.0;                // the difference is to lie below or above it
  std::int64_t units = 0;                // the sample: at least so many units of the task
  std::optional<EvalSettings> settings;  // nothing: of format 1, which left them free
  RegisteredModel model;                 // with the settings; format 1 left it free as well
  std::string stopping_rule;
  std::string refuted_by;
  std::string expected;
  std::int64_t registered_unix_ns = 0;  // own clock
};

inline constexpr std::string_view kMetrics[] = {"loss", "bits_per_byte", "top1"};

// Errors    Error naming `where` and the field: a name that is not four digits, '-' and small letters,
//           digits, '-'; a text that is empty or not UTF-8; a metric, direction, number or setting that
//           cannot be
void require_valid(const Preregistration& registered, std::string_view where);

std::string preregistration_json(const Preregistration& registered);
std::string preregistration_page(const Preregistration& registered, std::string_view json_sha256);
// Errors    Error naming the file and the field; every field must be there, and no other
Preregistration read_preregistration(const std::filesystem::path& file);

// What a run says of its preregistration, and what became of the file.
struct RegistrationFacts {
  bool has_run = false;
  std::string run_sha256;              // in the run's manifest; empty: none
  std::int64_t run_start_unix_ns = 0;  // its first start
  bool given = false;                  // a file was named
  bool there = false;                  // something has that name
  std::string unreadable;              // why it could not be read; empty: it could
  std::string file_sha256;             // empty: it is no file
  std::optional<Preregistration> registered;
  // Of an external time proof; 0: none was given, or it does not hold, is pending or has no header.
  std::int64_t proven_unix_s = 0;
  std::string time_proof_wrong;  // why one that was given does not hold
};

// Why this run may not be judged by that file; empty: it may. Changed, missing, unreadable or younger
// than the run; a run that began without one cannot get one afterwards.
std::vector<std::string> objections(const RegistrationFacts& facts);

}  // namespace engine::measure
