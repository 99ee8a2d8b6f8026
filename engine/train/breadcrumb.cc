#include "engine/train/breadcrumb.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/budget.h"
#include "engine/base/error.h"

namespace engine::train {
namespace {

constexpr std::size_t kLineBytes = 256;  // with the newline; the longest line has about 190

constexpr std::array<std::string_view, 3> kEndings = {"none", "error", "asked"};

std::optional<Whereabouts> parse(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  try {
    const auto found = std::ranges::find(kEndings, json.at("ending").get<std::string>());
    if (found == kEndings.end()) return std::nullopt;
    return Whereabouts{json.at("step"),           json.at("phase"),
                       json.at("layer"),          json.at("rss_bytes"),
                       json.at("peak_rss_bytes"), static_cast<Ending>(found - kEndings.begin())};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<Whereabouts> read_line(int descriptor) {
  std::array<char, kLineBytes> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size(), 0);
  if (bytes <= 0) return std::nullopt;
  return parse({text.data(), static_cast<std::size_t>(bytes)});
}

}  // namespace

Breadcrumb::Breadcrumb(const std::filesystem::path& run)
    : path_(run / "breadcrumb.json"),
      descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw base::Error("{}: {}", path_.string(), std::strerror(errno));
  left_behind_ = read_line(descriptor_);
}

Breadcrumb::~Breadcrumb() { ::close(descriptor_); }

void Breadcrumb::drop(std::int64_t step, std::string_view phase, std::int64_t layer) {
  here_ = {step,         std::string(phase), layer, base::rss_bytes(), base::peak_rss_bytes(),
           Ending::kNone};
  write();
}

void Breadcrumb::stop(Ending ending) {
  here_.ending = ending;
  write();
}

void Breadcrumb::remove() { ::unlink(path_.c_str()); }

void Breadcrumb::write() {
  std::string line = fmt::format(
      "{{\"step\":{},\"phase\":\"{}\",\"layer\":{},\"rss_bytes\":{},\"peak_rss_bytes\":{},"
      "\"ending\":\"{}\"}}",
      here_.step, here_.phase, here_.layer, here_.rss_bytes, here_.peak_rss_bytes,
      kEndings[static_cast<std::size_t>(here_.ending)]);
  line.resize(kLineBytes - 1, ' ');
  line += '\n';
  // What pwrite answers is of no use: see drop().
  static_cast<void>(::pwrite(descriptor_, line.data(), line.size(), 0) < 0);
}

std::optional<Whereabouts> read_breadcrumb(const std::filesystem::path& run) {
  const std::filesystem::path path = run / "breadcrumb.json";
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  const std::optional<Whereabouts> where = read_line(descriptor);
  ::close(descriptor);
  return where;
}

std::string_view verb_of(Ending ending) {
  constexpr std::array<std::string_view, 3> kVerbs = {"was killed", "stopped with an error",
                                                      "was asked to stop"};
  return kVerbs[static_cast<std::size_t>(ending)];
}

std::string place(const Whereabouts& where) {
  std::string text =
      where.step == 0 ? "the time before its first step" : fmt::format("step {}", where.step);
  if (where.phase != "start") text += ", " + where.phase;
  if (where.layer >= 0) text += fmt::format(", after layer {}", where.layer);
  return text;
}

std::string describe(const Whereabouts& where) {
  return fmt::format("{}, with {} resident (at most {})", place(where),
                     base::format_bytes(where.rss_bytes), base::format_bytes(where.peak_rss_bytes));
}

}  // namespace engine::train
