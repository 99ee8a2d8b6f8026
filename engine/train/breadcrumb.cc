#include "engine/train/breadcrumb.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/budget.h"
#include "engine/base/error.h"

namespace engine::train {
namespace {

constexpr std::size_t kLineBytes = 256;  // with the newline; the longest line has about 190

std::optional<Whereabouts> parse(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  try {
    return Whereabouts{json.at("step"),      json.at("phase"),          json.at("layer"),
                       json.at("rss_bytes"), json.at("peak_rss_bytes"), json.at("stopped")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

Breadcrumb::Breadcrumb(const std::filesystem::path& run)
    : path_(run / "breadcrumb.json"),
      descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw base::Error("{}: {}", path_.string(), std::strerror(errno));
  std::array<char, kLineBytes> text{};
  const ssize_t bytes = ::pread(descriptor_, text.data(), text.size(), 0);
  if (bytes > 0) left_behind_ = parse({text.data(), static_cast<std::size_t>(bytes)});
}

Breadcrumb::~Breadcrumb() { ::close(descriptor_); }

void Breadcrumb::drop(std::int64_t step, std::string_view phase, std::int64_t layer) {
  here_ = {step, std::string(phase), layer, base::rss_bytes(), base::peak_rss_bytes(), false};
  write();
}

void Breadcrumb::stop() {
  here_.stopped = true;
  write();
}

void Breadcrumb::remove() { ::unlink(path_.c_str()); }

void Breadcrumb::write() {
  std::string line = fmt::format(
      "{{\"step\":{},\"phase\":\"{}\",\"layer\":{},\"rss_bytes\":{},\"peak_rss_bytes\":{},"
      "\"stopped\":{}}}",
      here_.step, here_.phase, here_.layer, here_.rss_bytes, here_.peak_rss_bytes, here_.stopped);
  line.resize(kLineBytes - 1, ' ');
  line += '\n';
  // What pwrite answers is of no use: see drop().
  static_cast<void>(::pwrite(descriptor_, line.data(), line.size(), 0) < 0);
}

std::string place(const Whereabouts& where) {
  if (where.step == 0) return "the time before its first step";
  std::string text = fmt::format("step {}, {}", where.step, where.phase);
  if (where.layer >= 0) text += fmt::format(", after layer {}", where.layer);
  return text;
}

std::string describe(const Whereabouts& where) {
  return fmt::format("{}, with {} resident (at most {})", place(where),
                     base::format_bytes(where.rss_bytes), base::format_bytes(where.peak_rss_bytes));
}

}  // namespace engine::train
