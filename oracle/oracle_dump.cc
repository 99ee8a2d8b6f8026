// oracle_dump --model DIR --ids FILE [--adapter FILE.safetensors [--alpha A]] OUT.h5
//
// Runs the oracle in double over one sequence and writes every layer's trace. Exit codes: 0
// written, 1 failed, 2 bad usage.
#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "oracle/adapter_file.h"
#include "oracle/dump.h"
#include "oracle/model.h"
#include "oracle/sha256.h"

namespace {

// Ids separated by commas, blanks or line ends.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& where) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    while (at != end && (*at == ',' || std::isspace(static_cast<unsigned char>(*at)))) ++at;
    if (at == end) return ids;
    const auto [next, error] = std::from_chars(at, end, ids.emplace_back());
    if (error != std::errc() ||
        (next != end && *next != ',' && !std::isspace(static_cast<unsigned char>(*next)))) {
      throw std::runtime_error(fmt::format("{}: no token id at byte {}", where, at - text.data()));
    }
    at = next;
  }
}

double number(const std::string& text, const std::string& where) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    throw std::runtime_error(fmt::format("{} {}: not a number", where, text));
  }
  return value;
}

// To `where`; `code` is handed on.
int usage(std::FILE* where, int code) {
  fmt::print(where,
             "usage: oracle_dump --model DIR --ids FILE [--adapter FILE.safetensors [--alpha A]] "
             "OUT.h5\n");
  return code;
}
int bad_usage() { return usage(stderr, 2); }

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> option;
  std::string out;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--help" || arg == "-h") return usage(stdout, 0);
    if (arg == "--model" || arg == "--ids" || arg == "--adapter" || arg == "--alpha") {
      if (i + 1 == argc || !option.emplace(arg, argv[++i]).second) return bad_usage();
    } else if (out.empty() && !arg.starts_with("-")) {
      out = arg;
    } else {
      return bad_usage();
    }
  }
  if (!option.contains("--model") || !option.contains("--ids") || out.empty()) return bad_usage();
  if (option.contains("--alpha") && !option.contains("--adapter")) return bad_usage();

  try {
    oracle::require_free(out);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // what fails is said once, below
    const oracle::Checkpoint checkpoint(option["--model"]);
    oracle::Batch batch;
    batch.tokens = parse_ids(oracle::read_text(option["--ids"]), option["--ids"]);
    oracle::Adapters<double> adapters;
    if (option.contains("--adapter")) {
      std::optional<double> alpha;
      if (option.contains("--alpha")) alpha = number(option["--alpha"], "--alpha");
      adapters = oracle::load_adapters<double>(option["--adapter"], alpha);
    }
    const oracle::Trace<double> trace = oracle::forward<double>(checkpoint, adapters, batch);
    oracle::write_dump(out, checkpoint.config(), batch, trace,
                       oracle::sha256(checkpoint.config_text()));
  } catch (const std::exception& e) {
    fmt::print(stderr, "oracle_dump: {}\n", e.what());
    return 1;
  }
  return 0;
}
