#include "engine/store/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <tuple>

#include "engine/base/sha256.h"
#include "engine/store/not_safetensors.h"
#include "engine/store/safetensors_json.h"

namespace engine::store {
namespace {

// The format's own limit (100 MB in its reference implementation).
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;

struct StoredDtype {
  const char* name;
  std::uint64_t bits;
  std::optional<base::Dtype> dtype;
};

// Every dtype of the format.
constexpr std::array<StoredDtype, 22> kDtypes = {{
    {"BF16", 16, base::Dtype::kBf16}, {"U8", 8, base::Dtype::kU8},
    {"F32", 32, base::Dtype::kF32},   {"F16", 16, base::Dtype::kF16},
    {"BOOL", 8, std::nullopt},        {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},     {"F6_E3M2", 6, std::nullopt},
    {"I8", 8, std::nullopt},          {"F8_E5M2", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},     {"F8_E8M0", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt},
    {"I16", 16, std::nullopt},        {"U16", 16, std::nullopt},
    {"I32", 32, std::nullopt},        {"U32", 32, std::nullopt},
    {"I64", 64, std::nullopt},        {"U64", 64, std::nullopt},
    {"F64", 64, std::nullopt},        {"C64", 64, std::nullopt},
}};

const StoredDtype* dtype_called(std::string_view name) {
  const auto found =
      std::ranges::find_if(kDtypes, [&](const StoredDtype& dtype) { return name == dtype.name; });
  return found == kDtypes.end() ? nullptr : &*found;
}

// Bytes that the shape takes; nothing if that is no number of bytes below 2^63.
std::optional<std::uint64_t> bytes_of(const std::vector<std::uint64_t>& shape, std::uint64_t bits) {
  constexpr std::uint64_t kLimit = std::numeric_limits<std::int64_t>::max();
  std::uint64_t product = bits;
  for (const std::uint64_t extent : shape) {
    if (extent > kLimit || __builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  return product % 8 == 0 ? std::optional(product / 8) : std::nullopt;
}

class Checker {
 public:
  Checker(const File& file, std::uint64_t data_start, std::vector<Finding>& findings)
      : file_(file.path().string()),
        data_start_(data_start),
        data_bytes_(file.size() - data_start),
        findings_(findings) {}

  // Nothing, and a finding, if anything but the place among its neighbours is wrong.
  std::optional<CheckedTensor> check(const HeaderTensor& tensor) {
    const std::uint64_t begin = tensor.data_offsets[0];
    const std::uint64_t end = tensor.data_offsets[1];
    if (begin > end) {
      return report(tensor, fmt::format("data_offsets [{}, {}] run backwards", begin, end));
    }
    if (end > data_bytes_) {
      return report(tensor,
                    fmt::format("data_offsets end at {}, but the file holds {} bytes of data "
                                "({} bytes, of which {} are header)",
                                end, data_bytes_, data_start_ + data_bytes_, data_start_));
    }
    const StoredDtype* dtype = dtype_called(tensor.dtype);
    if (dtype == nullptr) {
      return report(tensor, fmt::format("dtype \"{}\" is none of safetensors'", tensor.dtype));
    }
    const auto bytes = bytes_of(tensor.shape, dtype->bits);
    if (!bytes) {
      return report(tensor,
                    fmt::format("shape [{}] of {} is no number of bytes that a file can hold",
                                fmt::join(tensor.shape, ","), dtype->name));
    }
    if (*bytes != end - begin) {
      return report(
          tensor,
          fmt::format("data_offsets [{}, {}] span {} bytes, but shape [{}] of {} takes {}", begin,
                      end, end - begin, fmt::join(tensor.shape, ","), dtype->name, *bytes));
    }
    return CheckedTensor{tensor.name,         {tensor.shape.begin(), tensor.shape.end()},
                         data_start_ + begin, *bytes,
                         dtype->dtype,        dtype->name};
  }

  // Whether the tensors tile the data. `complete` says that none was left out above: a hole that
  // one of those leaves is no finding of its own.
  void check_tiling(const std::vector<CheckedTensor>& tensors, bool complete) {
    std::uint64_t next = data_start_;
    const CheckedTensor* before = nullptr;  // the one that reaches furthest so far
    for (const CheckedTensor& tensor : tensors) {
      if (tensor.offset < next && tensor.bytes > 0) {
        report(tensor, fmt::format("bytes [{}, {}) overlap those of tensor {}, [{}, {})",
                                   tensor.offset, tensor.offset + tensor.bytes, before->name,
                                   before->offset, before->offset + before->bytes));
      }
      if (tensor.offset > next && complete) {
        report(tensor, before == nullptr
                           ? fmt::format("the data begins at byte {}, but the first tensor at {}",
                                         next, tensor.offset)
                           : fmt::format("a gap of {} bytes after tensor {}, which ends at {}",
                                         tensor.offset - next, before->name, next));
      }
      if (before == nullptr || tensor.offset + tensor.bytes >= next) {
        before = &tensor;
        next = tensor.offset + tensor.bytes;
      }
    }
    const std::uint64_t end = data_start_ + data_bytes_;
    if (next < end && complete) {
      add(findings_, {Severity::kError, file_, "", next,
                      fmt::format("{} bytes after the last tensor: the tensors end at {}, the "
                                  "file at {}",
                                  end - next, next, end)});
    }
  }

 private:
  std::nullopt_t report(const HeaderTensor& tensor, const std::string& message) {
    add(findings_, {Severity::kError, file_, tensor.name, std::nullopt, message});
    return std::nullopt;
  }
  void report(const CheckedTensor& tensor, const std::string& message) {
    add(findings_, {Severity::kError, file_, tensor.name, tensor.offset, message});
  }

  const std::string file_;
  const std::uint64_t data_start_;
  const std::uint64_t data_bytes_;
  std::vector<Finding>& findings_;
};

// The length field and the header, or nothing and a finding.
std::optional<std::string> header_bytes(const File& file, std::vector<Finding>& findings,
                                        std::uint64_t memory) {
  const auto refuse = [&](const std::string& message) {
    add(findings, {Severity::kError, file.path().string(), "", 0, message});
    return std::nullopt;
  };
  if (file.size() < kLengthBytes + 2) {
    return refuse(fmt::format("{} bytes are too few for a safetensors file, which has {} at least",
                              file.size(), kLengthBytes + 2));
  }
  std::string start(std::min<std::uint64_t>(file.size(), 1024), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  if (const auto kind = kind_of_text(start)) return refuse(*kind);

  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), sizeof(length));
  if (length > file.size() - kLengthBytes) {
    return refuse(fmt::format("the header is said to take {} bytes, but only {} follow", length,
                              file.size() - kLengthBytes));
  }
  if (length > kMaxHeaderBytes) {
    return refuse(fmt::format("the header takes {} bytes, more than the format's {}", length,
                              kMaxHeaderBytes));
  }
  if (length > memory / kHeaderTimes) {
    return refuse(
        fmt::format("the header takes {} bytes, and {} times as much memory while it is "
                    "read, of which {} bytes are free (--ram)",
                    length, kHeaderTimes, memory));
  }
  if (length < 2 || start[kLengthBytes] != '{') {
    return refuse(fmt::format("the header of {} bytes does not begin with '{{'", length));
  }
  std::string bytes(kLengthBytes + length, '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

ShardHeader read_header(const File& file, std::vector<Finding>& findings, std::uint64_t memory) {
  ShardHeader header;
  const auto bytes = header_bytes(file, findings, memory);
  if (!bytes) return header;
  header.sha256 = base::sha256_hex(*bytes);
  const HeaderContent content =
      parse_header(std::string_view(*bytes).substr(kLengthBytes), file.path().string(), findings);
  Checker checker(file, bytes->size(), findings);
  bool complete = content.complete;
  header.tensors.reserve(content.tensors.size());
  for (const HeaderTensor& tensor : content.tensors) {
    if (auto checked = checker.check(tensor)) {
      header.tensors.push_back(std::move(*checked));
    } else {
      complete = false;
    }
  }
  std::ranges::sort(header.tensors, [](const CheckedTensor& a, const CheckedTensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  checker.check_tiling(header.tensors, complete);
  return header;
}

}  // namespace engine::store
