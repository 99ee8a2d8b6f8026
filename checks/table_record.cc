#include "checks/table_record.h"

#include <filesystem>
#include <stdexcept>
#include <utility>

namespace checks {

TableRecord::TableRecord(std::string check, const std::string& out)
    : check_(std::move(check)), path_(out) {
  if (out.empty()) return;
  if (std::filesystem::exists(out)) throw std::runtime_error(out + ": exists already");
  out_.open(out);
  if (!out_) throw std::runtime_error(out + ": cannot be written");
}

// A figure that is not finite has no number in JSON; nlohmann writes null.
void TableRecord::row(const std::string& table, const std::string& name, const std::string& outcome,
                      const Figures& figures) {
  if (!out_.is_open()) return;
  Figures line = {{"check", check_}, {"table", table}, {"name", name}, {"outcome", outcome}};
  if (!figures.is_null()) line.update(figures);
  out_ << line.dump() << '\n';
}

void TableRecord::finish(int passed, int failed, int skipped) {
  if (!out_.is_open()) return;
  const Figures line = {
      {"check", check_}, {"passed", passed}, {"failed", failed}, {"skipped", skipped}};
  out_ << line.dump() << '\n';
  out_.close();
  if (!out_) throw std::runtime_error(path_ + ": cannot be written");
}

}  // namespace checks
