// A small reader of safetensors: one file, or every *.safetensors of a folder in name order.
// Tensors are decoded one at a time, to double; every supported type is exact in it.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/strict_json.h"

namespace oracle {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

struct TensorInfo {
  std::filesystem::path file;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // within the file
  uint64_t bytes = 0;
  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
  }
};

inline uint64_t dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, uint64_t> kBytes = {{"U8", 1},  {"BF16", 2}, {"F16", 2},
                                                         {"F32", 4}, {"I32", 4},  {"F64", 8}};
  const auto it = kBytes.find(dtype);
  return it == kBytes.end() ? 0 : it->second;
}

inline double decode_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? (fraction ? NAN : INFINITY)
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

class SafeTensors {
 public:
  // Errors  throws std::runtime_error naming file and tensor: a header that is no header, a range
  //         that does not fit the shape, overlaps, a name in two files
  explicit SafeTensors(const std::filesystem::path& path) {
    std::vector<std::filesystem::path> files{path};
    if (std::filesystem::is_directory(path)) {
      files.clear();
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
      }
      std::sort(files.begin(), files.end());
    }
    if (files.empty()) throw std::runtime_error(path.string() + ": no *.safetensors");
    for (const auto& file : files) add_file(file);
  }

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const TensorInfo& info(const std::string& name) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) throw std::runtime_error(name + ": no such tensor");
    return it->second;
  }

  std::vector<uint8_t> bytes(const std::string& name) const {
    const TensorInfo& t = info(name);
    std::vector<uint8_t> raw(t.bytes);
    std::ifstream in(t.file, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(t.offset));
    in.read(reinterpret_cast<char*>(raw.data()), static_cast<std::streamsize>(raw.size()));
    if (!in) throw std::runtime_error(fmt::format("{}: {} cannot be read", t.file.string(), name));
    return raw;
  }

  // Decodes a whole tensor; integers as numbers.
  std::vector<double> load(const std::string& name) const {
    const TensorInfo& t = info(name);
    const std::vector<uint8_t> raw = bytes(name);
    std::vector<double> out(t.elements());
    const auto decode = [&]<class Stored>(Stored, auto widen) {
      for (size_t j = 0; j < out.size(); ++j) {
        Stored x;
        std::memcpy(&x, &raw[j * sizeof(Stored)], sizeof(Stored));
        out[j] = widen(x);
      }
    };
    const auto plain = [](auto x) { return static_cast<double>(x); };
    if (t.dtype == "U8") decode(uint8_t{}, plain);
    if (t.dtype == "I32") decode(int32_t{}, plain);
    if (t.dtype == "F32") decode(float{}, plain);
    if (t.dtype == "F64") decode(double{}, plain);
    if (t.dtype == "F16") decode(uint16_t{}, decode_half);
    if (t.dtype == "BF16") {
      decode(uint16_t{}, [](uint16_t x) {
        return static_cast<double>(std::bit_cast<float>(uint32_t{x} << 16));
      });
    }
    return out;
  }

 private:
  void add_file(const std::filesystem::path& file) {
    const auto fail = [&](const std::string& what) {
      throw std::runtime_error(file.string() + ": " + what);
    };
    if (!std::filesystem::is_regular_file(file)) fail("not a regular file");
    const uint64_t file_bytes = std::filesystem::file_size(file);
    std::ifstream in(file, std::ios::binary);
    uint64_t header_bytes = 0;
    in.read(reinterpret_cast<char*>(&header_bytes), 8);
    if (!in || header_bytes > 100'000'000 || header_bytes > file_bytes - 8) {
      fail(fmt::format("no safetensors header (length {} in a file of {} bytes)", header_bytes,
                       file_bytes));
    }
    std::string text(header_bytes, '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(header_bytes)))
      fail("header cannot be read");
    const nlohmann::json header = parse_strict_json(text, file.string());
    if (!header.is_object()) fail("header is no object");

    std::map<std::pair<uint64_t, uint64_t>, std::string> ranges;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        for (const auto& [key, value] : entry.items()) metadata_[key] = value.get<std::string>();
        continue;
      }
      TensorInfo t;
      t.file = file;
      uint64_t begin = 0, end = 0, expected = 0;
      try {
        t.dtype = entry.at("dtype").get<std::string>();
        expected = dtype_bytes(t.dtype);
        for (const auto& d : entry.at("shape")) {
          if (!d.is_number_unsigned()) fail(name + ": a dimension is no count");
          t.shape.push_back(d.get<int64_t>());
          if (__builtin_mul_overflow(expected, d.get<uint64_t>(), &expected) || expected >> 62) {
            fail(name + ": shape overflows");
          }
        }
        const auto& offsets = entry.at("data_offsets");
        if (offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
            !offsets[1].is_number_unsigned()) {
          fail(name + ": data_offsets are no two counts");
        }
        begin = offsets[0].get<uint64_t>();
        end = offsets[1].get<uint64_t>();
      } catch (const nlohmann::json::exception& e) {
        fail(name + ": " + e.what());
      }
      if (dtype_bytes(t.dtype) == 0) continue;  // a type that the language model does not use
      if (begin > end || end > file_bytes - 8 - header_bytes || end - begin != expected) {
        fail(fmt::format("{}: bytes {} to {} for {} {}", name, begin, end, t.dtype,
                         fmt::join(t.shape, "x")));
      }
      t.offset = 8 + header_bytes + begin;
      t.bytes = end - begin;
      ranges.emplace(std::pair(begin, end), name);
      if (!tensors_.emplace(name, t).second) fail(name + " stands in two files");
    }
    uint64_t reached = 0;
    for (const auto& [range, name] : ranges) {
      if (range.first < reached) fail(name + " overlaps another tensor");
      reached = range.second;
    }
  }

  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace oracle
