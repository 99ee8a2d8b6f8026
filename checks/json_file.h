#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "engine/store/json_text.h"

namespace checks {

// A JSON file of the reference data. Whatever is wrong is a std::runtime_error that names the file
// and the place in it ("/hyper/beta1"): a reader who gave the wrong folder is told so, not that key
// 'r' is not found.
class JsonFile {
 public:
  explicit JsonFile(const std::filesystem::path& path) : path_(path.string()) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(path_ + ": cannot be opened");
    try {
      root_ = nlohmann::json::parse(file);
    } catch (const nlohmann::json::exception& error) {
      throw std::runtime_error(
          fmt::format("{}: not valid JSON: {}", path_, engine::store::json_reason(error.what())));
    }
    if (!root_.is_object()) throw std::runtime_error(path_ + ": not a JSON object");
  }

  const nlohmann::json& root() const { return root_; }
  const std::string& path() const { return path_; }

  template <class T>
  T get(const std::string& place) const {
    const nlohmann::json::json_pointer pointer(place);
    if (!root_.contains(pointer)) {
      throw std::runtime_error(fmt::format("{}: {} is missing", path_, place));
    }
    try {
      return root_.at(pointer).get<T>();
    } catch (const nlohmann::json::exception&) {
      throw std::runtime_error(fmt::format("{}: {} is {}, of another type than it should be", path_,
                                           place, root_.at(pointer).dump().substr(0, 60)));
    }
  }

  // A double that is written down as {"repr": "shortest decimal", ...}.
  double number(const std::string& place) const {
    const auto text = get<std::string>(place + "/repr");
    try {
      return std::stod(text);
    } catch (const std::exception&) {
      throw std::runtime_error(fmt::format("{}: {}/repr is {}, no number", path_, place, text));
    }
  }

 private:
  std::string path_;
  nlohmann::json root_;
};

}  // namespace checks
