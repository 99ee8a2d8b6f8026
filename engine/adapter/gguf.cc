#include "engine/adapter/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <set>

#include "engine/base/error.h"

namespace engine::adapter {
namespace {

using base::Error;

static_assert(std::endian::native == std::endian::little, "GGUF version 3 is little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kAlignment = 32;  // where general.alignment does not say otherwise
constexpr std::size_t kNameLimit = 64;    // GGML_MAX_NAME, with the ending zero
constexpr std::uint32_t kMaxAxes = 4;
constexpr std::uint32_t kTypeU32 = 4, kTypeF32 = 6, kTypeString = 8, kTypeArray = 9;
constexpr std::uint32_t kTensorF32 = 0, kTensorBf16 = 30;
// Bytes of a key's value by its type; 0: a string or an array.
constexpr std::uint64_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::uint64_t padded(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

void put_value(std::string& out, const GgufValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    put(out, kTypeString);
    put_text(out, *text);
  } else if (const auto* number = std::get_if<float>(&value)) {
    put(out, kTypeF32);
    put(out, *number);
  } else {
    put(out, kTypeU32);
    put(out, std::get<std::uint32_t>(value));
  }
}

std::string header_of(std::span<const std::pair<std::string, GgufValue>> keys,
                      std::span<const store::TensorSpec> tensors) {
  std::string out(kMagic);
  put(out, kVersion);
  put(out, static_cast<std::uint64_t>(tensors.size()));
  put(out, static_cast<std::uint64_t>(keys.size()));
  for (const auto& [key, value] : keys) {
    put_text(out, key);
    put_value(out, value);
  }
  std::uint64_t offset = 0;
  for (const store::TensorSpec& tensor : tensors) {
    assert(tensor.name.size() < kNameLimit && tensor.shape.size() <= kMaxAxes);
    assert(tensor.dtype == base::Dtype::kF32 || tensor.dtype == base::Dtype::kBf16);
    put_text(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
      put(out, *extent);
    }
    put(out, tensor.dtype == base::Dtype::kF32 ? kTensorF32 : kTensorBf16);
    put(out, offset);
    offset += padded(tensor.bytes(), kAlignment);
  }
  return out;
}

// Reads a header from front to back and never beyond the file.
class Cursor {
 public:
  explicit Cursor(const store::File& file) : file_(file), where_(file.path().string()) {}

  template <class T>
  T number(const char* what) {
    T value{};
    need(sizeof(T), what);
    file_.read(at_, std::as_writable_bytes(std::span(&value, 1)));
    at_ += sizeof(T);
    return value;
  }
  std::string text(const char* what) {
    const auto size = number<std::uint64_t>(what);
    need(size, what);
    std::string value(size, '\0');
    file_.read(at_, std::as_writable_bytes(std::span(value)));
    at_ += size;
    return value;
  }
  // A number of things that take `least` bytes each.
  std::uint64_t count(std::uint64_t least, const char* what) {
    const auto value = number<std::uint64_t>(what);
    if (value > (file_.size() - at_) / least) {
      throw Error("{}: at byte {}: {} {} do not fit into the {} bytes that follow", where_, at_ - 8,
                  value, what, file_.size() - at_);
    }
    return value;
  }
  void skip(std::uint64_t bytes, const char* what) {
    need(bytes, what);
    at_ += bytes;
  }

  std::uint64_t at() const { return at_; }

 private:
  void need(std::uint64_t bytes, const char* what) const {
    if (bytes > file_.size() - at_) {
      throw Error("{}: at byte {}: {} takes {} bytes, {} follow", where_, at_, what, bytes,
                  file_.size() - at_);
    }
  }

  const store::File& file_;
  const std::string where_;
  std::uint64_t at_ = 0;
};

std::uint64_t value_bytes(std::uint32_t type, const std::string& key, const std::string& where) {
  if (type < std::size(kValueBytes)) return kValueBytes[type];
  throw Error("{}: key {} has value type {}, GGUF has 0 to 12", where, key, type);
}

GgufValue read_value(Cursor& cursor, const std::string& key, const std::string& where) {
  const auto type = cursor.number<std::uint32_t>("a value's type");
  if (type == kTypeString) return cursor.text("a value");
  if (type == kTypeF32) return cursor.number<float>("a value");
  if (type == kTypeU32) return cursor.number<std::uint32_t>("a value");
  if (type != kTypeArray) {
    cursor.skip(value_bytes(type, key, where), "a value");
    return {};
  }
  const auto element = cursor.number<std::uint32_t>("an array's type");
  const std::uint64_t bytes = value_bytes(element, key, where);
  if (element == kTypeArray) throw Error("{}: key {} is an array of arrays", where, key);
  const std::uint64_t size = cursor.count(bytes > 0 ? bytes : 8, "array elements");
  for (std::uint64_t i = 0; bytes == 0 && i < size; ++i) cursor.text("an array's text");
  cursor.skip(bytes * size, "an array");
  return {};
}

GgufTensor read_tensor(Cursor& cursor, const std::string& where) {
  GgufTensor tensor;
  tensor.name = cursor.text("a tensor's name");
  if (tensor.name.empty() || tensor.name.size() >= kNameLimit) {
    throw Error("{}: tensor name \"{}\" has {} bytes, 1 to {} are possible", where,
                tensor.name.substr(0, 2 * kNameLimit), tensor.name.size(), kNameLimit - 1);
  }
  const auto axes = cursor.number<std::uint32_t>("a number of dimensions");
  if (axes > kMaxAxes) {
    throw Error("{}: tensor {} has {} dimensions, at most {} are possible", where, tensor.name,
                axes, kMaxAxes);
  }
  std::int64_t values = 1;
  for (std::uint32_t i = 0; i < axes; ++i) {
    const auto extent = cursor.number<std::int64_t>("an extent");
    if (extent < 1 || __builtin_mul_overflow(values, extent, &values)) {
      throw Error("{}: tensor {} has an extent of {}", where, tensor.name, extent);
    }
    tensor.shape.insert(tensor.shape.begin(), extent);
  }
  const auto type = cursor.number<std::uint32_t>("a tensor's type");
  if (type != kTensorF32 && type != kTensorBf16) {
    throw Error("{}: tensor {} has type {}, only F32 ({}) and BF16 ({}) are read", where,
                tensor.name, type, kTensorF32, kTensorBf16);
  }
  tensor.dtype = type == kTensorF32 ? base::Dtype::kF32 : base::Dtype::kBf16;
  if (values > (std::int64_t{1} << 60)) {
    throw Error("{}: tensor {} has {} values", where, tensor.name, values);
  }
  tensor.bytes = static_cast<std::uint64_t>(values * base::size_of(tensor.dtype));
  tensor.offset = cursor.number<std::uint64_t>("an offset");
  return tensor;
}

// Offsets count from the data section, and each is the end of the tensor before it, padded.
void place_tensors(GgufHeader& header, std::uint64_t start, const store::File& file) {
  std::uint64_t alignment = kAlignment;
  if (const auto key = header.keys.find("general.alignment"); key != header.keys.end()) {
    const auto* value = std::get_if<std::uint32_t>(&key->second);
    if (value == nullptr || !std::has_single_bit(*value)) {
      throw Error("{}: general.alignment is no power of two", file.path().string());
    }
    alignment = *value;
  }
  const std::uint64_t data = padded(start, alignment);
  std::uint64_t next = 0;
  std::uint64_t end = data;  // of the last tensor, without padding
  for (GgufTensor& tensor : header.tensors) {
    if (tensor.offset != next) {
      throw Error("{}: tensor {} has offset {}, {} is wanted", file.path().string(), tensor.name,
                  tensor.offset, next);
    }
    if (data > file.size() ||
        tensor.bytes > file.size() - data - std::min(next, file.size() - data)) {
      throw Error("{}: tensor {} ends at byte {}, the file at {}", file.path().string(),
                  tensor.name, data + next + tensor.bytes, file.size());
    }
    tensor.offset += data;
    end = tensor.offset + tensor.bytes;
    next += padded(tensor.bytes, alignment);
  }
  if (file.size() != end && file.size() != data + next) {
    throw Error("{}: {} tensors end at byte {}, the file at {}", file.path().string(),
                header.tensors.size(), data + next, file.size());
  }
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path,
                       std::span<const std::pair<std::string, GgufValue>> keys,
                       std::vector<store::TensorSpec> tensors)
    : tensors_(std::move(tensors)), path_(path), file_(path) {
  const std::string header = header_of(keys, tensors_);
  file_.write(std::as_bytes(std::span(header)));
  pad();
  if (!tensors_.empty()) left_ = tensors_[0].bytes();
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  assert(next_ < tensors_.size() && bytes.size() <= left_);
  file_.write(bytes);
  left_ -= bytes.size();
  if (left_ > 0) return;
  pad();
  if (++next_ < tensors_.size()) left_ = tensors_[next_].bytes();
}

void GgufWriter::pad() {
  static constexpr std::byte kZeros[kAlignment] = {};
  file_.write(std::span(kZeros).first(padded(file_.size(), kAlignment) - file_.size()));
}

void GgufWriter::finish() {
  assert(next_ == tensors_.size());
  file_.commit();
  const std::size_t stated = read_gguf(store::File(path_)).tensors.size();
  if (stated != next_) {
    throw Error("{}: the header says {} tensors, {} were written", path_.string(), stated, next_);
  }
}

GgufHeader read_gguf(const store::File& file) {
  const std::string where = file.path().string();
  Cursor cursor(file);
  const auto magic = cursor.number<std::array<char, 4>>("the first word");
  if (std::string_view(magic.data(), magic.size()) != kMagic) {
    throw Error("{}: does not begin with \"GGUF\"", where);
  }
  const auto version = cursor.number<std::uint32_t>("the version");
  if (version != kVersion) throw Error("{}: GGUF version {}, {} is read", where, version, kVersion);
  const std::uint64_t tensors = cursor.count(8 + 1 + 4 + 4 + 8, "tensors");
  const std::uint64_t keys = cursor.count(8 + 4 + 1, "keys");
  GgufHeader header;
  for (std::uint64_t i = 0; i < keys; ++i) {
    const std::string key = cursor.text("a key");
    if (!header.keys.emplace(key, read_value(cursor, key, where)).second) {
      throw Error("{}: key {} stands there twice", where, key);
    }
  }
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    header.tensors.push_back(read_tensor(cursor, where));
    if (!names.insert(header.tensors.back().name).second) {
      throw Error("{}: tensor {} stands there twice", where, header.tensors.back().name);
    }
  }
  place_tensors(header, cursor.at(), file);
  return header;
}

}  // namespace engine::adapter
