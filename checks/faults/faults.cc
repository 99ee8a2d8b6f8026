// For LD_PRELOAD: makes a program's reads and writes go wrong at chosen calls. With it no io_uring is
// to be had, so that reads of a checkpoint are preads.
//
//   FAULTS        rules CALL:FIRST[-[LAST]]:ACTION, separated by commas. CALL is pread, pwrite,
//                 write, fsync (fdatasync too), rename; pread-direct and open-direct are those with
//                 O_DIRECT; statvfs, of which every action but count is a disk with nothing free. Every rule counts its calls from 1; "5-" is the fifth and all later.
//                 ACTION is EIO, ENODEV, ENOSPC or EINVAL; eintr (EINTR three times of four);
//                 short (a part of what is asked for); term, kill (SIGTERM, SIGKILL before the call), torn (half
//                 of a write, then SIGKILL); flip (a read whose first bit is wrong); count (nothing).
//   FAULTS_UNDER  only files whose path begins so; default: all.
//   FAULTS_LOG    file to which one line a rule is appended at the end: the rule, how many calls
//                 it counted, how often it acted.
//
// A rule that cannot be read ends the program with status 120: a typing error is no passed check.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace {

struct Rule {
  std::string text, call, action;
  long first = 0, last = 0;
  std::atomic<long> counted = 0, acted = 0;
};

constexpr int kMostRules = 8;
const std::map<std::string_view, int> kErrors = {
    {"EIO", EIO}, {"ENODEV", ENODEV}, {"ENOSPC", ENOSPC}, {"EINVAL", EINVAL}};

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const std::string& rule) {
  std::fprintf(stderr, "FAULTS: cannot read the rule \"%s\"\n", rule.c_str());
  std::_Exit(120);
}

class Rules {
 public:
  Rules() {
    std::string rest = variable("FAULTS");
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      if (count_ == kMostRules) refuse(rest);
      parse(rest.substr(0, comma), rules_[count_++]);
      rest.erase(0, comma + 1);
    }
  }
  ~Rules() {
    if (log_.empty()) return;
    std::FILE* log = std::fopen(log_.c_str(), "a");
    if (log == nullptr) return;
    for (int i = 0; i < count_; ++i) {
      std::fprintf(log, "%s %ld %ld\n", rules_[i].text.c_str(), rules_[i].counted.load(),
                   rules_[i].acted.load());
    }
    std::fclose(log);
  }

  // What is to happen at this call: an action, or nothing.
  std::string_view at(std::string_view call, const std::string& path) {
    if (!path.starts_with(under_)) return "";
    std::string_view action;
    for (int i = 0; i < count_; ++i) {
      Rule& rule = rules_[i];
      if (rule.call != call) continue;
      const long n = ++rule.counted;
      if (n < rule.first || n > rule.last) continue;
      if (rule.action == "count" || (rule.action == "eintr" && n % 4 == 0)) continue;
      ++rule.acted;
      action = rule.action;
    }
    if (action == "kill") kill(getpid(), SIGKILL);
    if (action == "term") kill(getpid(), SIGTERM);
    return action;
  }

 private:
  static void parse(const std::string& text, Rule& rule) {
    char call[16] = "", action[16] = "", range[32] = "";
    if (std::sscanf(text.c_str(), "%15[a-z-]:%31[0-9-]:%15[a-zA-Z]", call, range, action) != 3) {
      refuse(text);
    }
    char* end = nullptr;
    rule.text = text;
    rule.call = call;
    rule.action = action;
    rule.first = std::strtol(range, &end, 10);
    rule.last = *end == '\0' ? rule.first : end[1] == '\0' ? LONG_MAX : std::atol(end + 1);
    constexpr std::string_view kActions = " eintr short term kill torn flip count ";
    constexpr std::string_view kCalls =
        " pread pread-direct open-direct pwrite write fsync rename statvfs ";
    const bool known = (kErrors.contains(action) ||
                        kActions.find(" " + rule.action + " ") != std::string_view::npos) &&
                       kCalls.find(" " + rule.call + " ") != std::string_view::npos;
    if (!known || rule.first < 1 || rule.last < rule.first) refuse(text);
  }

  Rule rules_[kMostRules];
  int count_ = 0;
  std::string under_ = variable("FAULTS_UNDER"), log_ = variable("FAULTS_LOG");
};

Rules& rules() {
  static Rules rules;
  return rules;
}

std::string path_of(int descriptor) {
  char link[32], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "";
}

// Sets errno where the action is an error.
bool fails(std::string_view action) {
  const auto error = kErrors.find(action);
  if (action != "eintr" && error == kErrors.end()) return false;
  errno = action == "eintr" ? EINTR : error->second;
  return true;
}

std::size_t part_of(std::string_view action, std::size_t count) {
  static std::atomic<std::size_t> turn = 0;
  if (action == "torn") return count / 2;
  return action == "short" && count > 1 ? 1 + turn++ * 7919 % (count - 1) : count;
}

// A write that the rules may refuse, cut short or be the last thing the program does.
template <class Write>
ssize_t faulty_write(const char* call, int to, std::size_t count, const Write& write) {
  const std::string_view action = rules().at(call, path_of(to));
  if (fails(action)) return -1;
  const ssize_t done = write(part_of(action, count));
  if (action == "torn") kill(getpid(), SIGKILL);
  return done;
}

// Comes up short by whole sectors, as a device may; what was not transferred is not as it was.
template <class Read>
ssize_t direct_read(std::string_view action, Read* read, int from, std::byte* out,
                    std::size_t count, off_t offset) {
  constexpr std::size_t kSector = 512;
  const ssize_t got = read(from, out, count, offset);
  if (action != "short" || got <= static_cast<ssize_t>(kSector)) return got;
  const std::size_t part = std::max(part_of(action, count) / kSector * kSector, kSector);
  if (part >= static_cast<std::size_t>(got)) return got;
  std::memset(out + part, 0x7F, static_cast<std::size_t>(got) - part);
  return static_cast<ssize_t>(part);
}

}  // namespace

extern "C" {

int io_uring_queue_init(unsigned, struct io_uring*, unsigned) { return -ENOSYS; }

ssize_t pread(int from, void* out, size_t count, off_t offset) {
  static auto* const real = next<decltype(pread)>("pread");
  const std::string path = path_of(from);
  const bool direct = (fcntl(from, F_GETFL) & O_DIRECT) != 0;
  std::string_view action = rules().at("pread", path);
  if (action.empty() && direct) action = rules().at("pread-direct", path);
  if (fails(action)) return -1;
  if (direct) return direct_read(action, real, from, static_cast<std::byte*>(out), count, offset);
  const ssize_t got = real(from, out, part_of(action, count), offset);
  if (action == "flip" && got > 0) *static_cast<unsigned char*>(out) ^= 1u;
  return got;
}

ssize_t pwrite(int to, const void* data, size_t count, off_t offset) {
  static auto* const real = next<decltype(pwrite)>("pwrite");
  return faulty_write("pwrite", to, count,
                      [&](std::size_t part) { return real(to, data, part, offset); });
}

ssize_t write(int to, const void* data, size_t count) {
  static auto* const real = next<decltype(write)>("write");
  return faulty_write("write", to, count, [&](std::size_t part) { return real(to, data, part); });
}

int fsync(int descriptor) {
  static auto* const real = next<decltype(fsync)>("fsync");
  return fails(rules().at("fsync", path_of(descriptor))) ? -1 : real(descriptor);
}

int fdatasync(int descriptor) {
  static auto* const real = next<decltype(fdatasync)>("fdatasync");
  return fails(rules().at("fsync", path_of(descriptor))) ? -1 : real(descriptor);
}

int rename(const char* from, const char* to) {
  static auto* const real = next<decltype(rename)>("rename");
  return fails(rules().at("rename", to)) ? -1 : real(from, to);
}

int statvfs(const char* path, struct statvfs* out) {
  static auto* const real = next<int(const char*, struct statvfs*)>("statvfs");
  const int status = real(path, out);
  if (status == 0 && !rules().at("statvfs", path).empty()) out->f_bavail = 0;
  return status;
}

int open(const char* path, int flags, ...) {
  using Open = int(const char*, int, mode_t);
  static auto* const real = next<Open>("open");
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if ((flags & O_DIRECT) != 0 && fails(rules().at("open-direct", path))) return -1;
  return real(path, flags, mode);
}

}  // extern "C"
