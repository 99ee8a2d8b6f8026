#include "engine/store/safetensors_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "engine/store/json_text.h"

namespace engine::store {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxRank = 64;
constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

// Follows the header with one state; a value that does not belong where it stands is reported and,
// if it is an object or an array, passed over whole.
class HeaderSax : public nlohmann::json_sax<json> {
 public:
  HeaderSax(const std::string& file, std::vector<Finding>& findings)
      : file_(file), findings_(findings) {}

  HeaderContent take() { return std::move(content_); }

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return scalar(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool binary(json::binary_t&) override { return false; }

  bool number_unsigned(std::uint64_t value) override {
    if (skipped_ > 0) return true;
    std::vector<std::uint64_t>* list = place_ == Place::kShape     ? &tensor_.shape
                                       : place_ == Place::kOffsets ? &tensor_.data_offsets
                                                                   : nullptr;
    if (list == nullptr) return scalar(std::to_string(value));
    const std::size_t limit = place_ == Place::kShape ? kMaxRank : 2;
    if (list->size() < limit) {
      list->push_back(value);
    } else if (sound_) {
      report(fmt::format("{} has more than {} numbers", field_, limit));
    }
    return true;
  }

  bool string(std::string& value) override {
    if (skipped_ == 0 && place_ == Place::kMetadata) return true;
    if (skipped_ == 0 && place_ == Place::kTensor && field_ == "dtype") {
      tensor_.dtype = value;
      return true;
    }
    return scalar('"' + shortened(value) + '"');
  }

  bool start_object(std::size_t) override {
    if (skipped_ > 0) return skip();
    switch (place_) {
      case Place::kFile:
        place_ = Place::kRoot;
        return true;
      case Place::kRoot:
        place_ = name_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
        tensor_ = {};
        tensor_.name = name_;
        seen_.clear();
        return true;
      default:
        scalar("an object");
        return skip();
    }
  }

  bool end_object() override {
    if (skipped_ > 0) return unskip();
    if (place_ == Place::kTensor) finish_tensor();
    place_ = place_ == Place::kRoot ? Place::kFile : Place::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (skipped_ > 0) return skip();
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      scalar("an array");
      return skip();
    }
    return true;
  }

  bool end_array() override {
    if (skipped_ > 0) return unskip();
    place_ = Place::kTensor;
    return true;
  }

  bool key(std::string& value) override {
    if (skipped_ > 0) return true;
    if (place_ == Place::kRoot) {
      name_ = value;
      sound_ = true;
      if (!names_.insert(value).second) report("the name stands in this header twice");
      return true;
    }
    field_ = value;
    if (!seen_.insert(value).second) {
      report(fmt::format("the field \"{}\" stands there twice", shortened(value)));
    } else if (place_ == Place::kTensor && std::ranges::find(kFields, value) == kFields.end()) {
      report(fmt::format("unknown field \"{}\"", shortened(value)));
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const json::exception& exception) override {
    content_.complete = false;
    findings_.push_back({Severity::kError, file_, "", 8 + (position > 0 ? position - 1 : 0),
                         "the header is not valid JSON: " + json_reason(exception.what())});
    return false;
  }

 private:
  enum class Place { kFile, kRoot, kTensor, kShape, kOffsets, kMetadata };

  bool skip() {
    ++skipped_;
    return true;
  }
  bool unskip() {
    --skipped_;
    return true;
  }

  void report(const std::string& message) {
    sound_ = false;
    content_.complete = false;
    add(findings_, {Severity::kError, file_, name_, std::nullopt, message});
  }

  // A value that stands in a wrong place.
  bool scalar(const std::string& value) {
    if (skipped_ > 0) return true;
    switch (place_) {
      case Place::kFile:
        report(fmt::format("the header is {}, not an object", value));
        break;
      case Place::kRoot:
        report(fmt::format("is {}, not an object", value));
        break;
      case Place::kTensor:
        if (field_ == "dtype") report(fmt::format("dtype is {}, not a string", value));
        if (field_ == "shape" || field_ == "data_offsets") {
          report(fmt::format("{} is {}, not an array", field_, value));
        }
        break;
      case Place::kShape:
        report(fmt::format("shape[{}] is {}, not a non-negative integer", tensor_.shape.size(),
                           value));
        tensor_.shape.push_back(0);
        break;
      case Place::kOffsets:
        report(fmt::format("data_offsets[{}] is {}, not a non-negative integer",
                           tensor_.data_offsets.size(), value));
        tensor_.data_offsets.push_back(0);
        break;
      case Place::kMetadata:
        report(fmt::format("\"{}\" is {}, not a string", shortened(field_), value));
        break;
    }
    return true;
  }

  void finish_tensor() {
    for (const std::string_view field : kFields) {
      if (!seen_.contains(std::string(field))) report(fmt::format("has no {}", field));
    }
    if (sound_ && tensor_.data_offsets.size() != 2) {
      report(fmt::format("data_offsets has {} numbers, not 2", tensor_.data_offsets.size()));
    }
    if (sound_) content_.tensors.push_back(std::move(tensor_));
  }

  const std::string& file_;
  std::vector<Finding>& findings_;
  HeaderContent content_;
  Place place_ = Place::kFile;
  int skipped_ = 0;    // open objects and arrays of a value that is passed over
  std::string name_;   // of the tensor, or "__metadata__"
  std::string field_;  // inside it
  bool sound_ = true;  // no finding about this tensor yet
  HeaderTensor tensor_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

HeaderContent parse_header(std::string_view text, const std::string& file,
                           std::vector<Finding>& findings) {
  HeaderSax sax(file, findings);
  json::sax_parse(text.begin(), text.end(), &sax);
  return sax.take();
}

}  // namespace engine::store
