#include "engine/train/record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/data/line_reader.h"
#include "engine/store/at_path.h"
#include "engine/store/file.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLog = "log.jsonl";
constexpr const char* kTimings = "timings.jsonl";

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

// Moves everything behind the first `bytes` of RUN/name to the end of RUN/abandoned.
void move_tail(const fs::path& run, const char* name, const char* abandoned, std::uint64_t bytes) {
  const store::File file(run / name);
  if (file.size() <= bytes) return;
  AppendFile kept(run / abandoned);
  std::string chunk;
  for (std::uint64_t at = bytes; at < file.size(); at += chunk.size()) {
    chunk.resize(std::min<std::uint64_t>(kChunkBytes, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(chunk)));
    kept.write(chunk);
  }
  kept.sync();
  store::resize_file(run / name, bytes);
}

// Bytes up to the end of the line of timings that stands beside the log's line `at`; nothing if
// there is none. Found by digest, not by counting: timings may have begun anew.
std::optional<std::uint64_t> end_of_timing(const fs::path& timings, const LogPosition& at) {
  if (at.lines == 0) return 0;
  const std::string wanted = fmt::format("\"line\":\"{}\"", at.head);
  std::optional<std::uint64_t> end;
  try {
    data::LineReader lines(timings, kMostLineBytes);
    while (const auto line = lines.next()) {
      const std::uint64_t behind = line->offset + line->text.size() + 1;
      const bool found = line->text.find(wanted) != std::string_view::npos;
      if (found && behind <= lines.bytes()) end = behind;
    }
  } catch (const base::Error&) {
    // No line of ours from here on. What cannot be read at all, cannot be moved either, and is an Error then.
  }
  return end;
}

template <class Clock>
std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

}  // namespace

AppendFile::AppendFile(const fs::path& path)
    : path_(path),
      descriptor_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw base::Error("{}: {}", path.string(), std::strerror(errno));
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw base::Error("{}: {} bytes could not be added: {}", path_.string(), text.size(),
                        std::strerror(errno));
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AppendFile::sync() {
  if (::fsync(descriptor_) != 0) {
    throw base::Error("{}: fsync: {}", path_.string(), std::strerror(errno));
  }
}

void JsonLine::key(std::string_view name) {
  if (!body_.empty()) body_ += ',';
  body_ += fmt::format("\"{}\":", name);
}

JsonLine& JsonLine::text(std::string_view name, std::string_view value) {
  key(name);
  body_ += nlohmann::json(value).dump();
  return *this;
}

JsonLine& JsonLine::integer(std::string_view name, std::int64_t value) {
  key(name);
  body_ += fmt::format("{}", value);
  return *this;
}

JsonLine& JsonLine::integers(std::string_view name, std::span<const std::int64_t> values) {
  key(name);
  body_ += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    body_ += fmt::format("{}{}", i == 0 ? "" : ",", values[i]);
  }
  body_ += ']';
  return *this;
}

JsonLine& JsonLine::real(std::string_view name, double value) {
  if (!std::isfinite(value)) {
    null(name);
    const char* kind = std::isnan(value) ? "nan" : value > 0.0 ? "infinity" : "-infinity";
    return text(std::string(name) + "_is", kind);
  }
  key(name);
  body_ += fmt::format("{}", value);
  return *this;
}

JsonLine& JsonLine::null(std::string_view name) {
  key(name);
  body_ += "null";
  return *this;
}

JsonLine& JsonLine::all(const JsonLine& other) {
  if (!body_.empty() && !other.body_.empty()) body_ += ',';
  body_ += other.body_;
  return *this;
}

Timing timing_now() {
  Timing timing;
  timing.wall_ns = nanoseconds_now<std::chrono::system_clock>();
  timing.monotonic_ns = nanoseconds_now<std::chrono::steady_clock>();
  timing.rss_bytes = base::rss_bytes();
  timing.peak_rss_bytes = base::peak_rss_bytes();
  timing.swap_bytes = base::swap_bytes();
  return timing;
}

Record::Record(const fs::path& run, std::string run_id, const LogPosition& at)
    : run_(run), run_id_(std::move(run_id)), at_(at), log_(run / kLog), timings_(run / kTimings) {
  if (::flock(log_.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    throw base::Error("{}: another process is writing it", (run / kLog).string());
  }
  check_log(run / kLog, &at_);
  open_timings();
  move_tail(run, kLog, "log.abandoned.jsonl", at_.bytes);
  last_.monotonic_ns = nanoseconds_now<std::chrono::steady_clock>();
}

void Record::open_timings() {
  const std::optional<std::uint64_t> end = end_of_timing(run_ / kTimings, at_);
  move_tail(run_, kTimings, "timings.abandoned.jsonl", end.value_or(0));
  if (end) return;
  notice_ = fmt::format(
      "{}: has no line for line {} of {}, behind which the run goes on: it begins anew; nothing "
      "depends on it",
      (run_ / kTimings).string(), at_.lines, kLog);
}

void Record::write(std::int64_t step, std::string_view phase, const JsonLine& fields,
                   const Timing& timing) {
  const JsonLine begin = JsonLine().text("run", run_id_).integer("step", step).text("phase", phase);
  const std::string line = JsonLine(begin).all(fields).text("prev", at_.head).str();
  log_.write(line + "\n");
  at_ = {at_.lines + 1, at_.bytes + line.size() + 1, base::sha256_hex(line)};

  JsonLine measured(begin);
  measured.integer("wall_ns", timing.wall_ns)
      .integer("monotonic_ns", timing.monotonic_ns)
      .real("seconds", static_cast<double>(timing.monotonic_ns - last_.monotonic_ns) * 1e-9)
      .integer("bytes_read", static_cast<std::int64_t>(timing.bytes_read - last_.bytes_read))
      .integer("reads_retried",
               static_cast<std::int64_t>(timing.reads_retried - last_.reads_retried))
      .integer("rss_bytes", static_cast<std::int64_t>(timing.rss_bytes))
      .integer("peak_rss_bytes", static_cast<std::int64_t>(timing.peak_rss_bytes))
      .integer("swap_bytes", static_cast<std::int64_t>(timing.swap_bytes))
      .text("line", at_.head);
  timings_.write(measured.str() + "\n");
  last_ = timing;
}

void Record::sync() {
  log_.sync();
  timings_.sync();
}

}  // namespace engine::train
