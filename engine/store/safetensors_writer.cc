#include "engine/store/safetensors_writer.h"

#include <array>
#include <cassert>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"

namespace engine::store {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLengthBytes = 8;

// The header is put together as text: an ordered JSON object looks for a duplicate of every key it
// is given, which takes minutes at the half million tensors of the released model.
std::string header_text(std::span<const TensorSpec> tensors,
                        const std::map<std::string, std::string>& metadata, std::size_t alignment) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump();
  std::uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    if (text.size() > 1) text += ',';
    const std::uint64_t end = offset + tensor.bytes();
    text += Json(tensor.name).dump() + ':' +
            Json{{"dtype", base::name_of(tensor.dtype)},
                 {"shape", tensor.shape},
                 {"data_offsets", {offset, end}}}
                .dump();
    offset = end;
  }
  text += '}';
  text.append((alignment - (kLengthBytes + text.size()) % alignment) % alignment, ' ');
  return text;
}

bool names_are_distinct(std::span<const TensorSpec> tensors) {
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) return false;
  }
  return true;
}

}  // namespace

std::uint64_t TensorSpec::bytes() const {
  std::uint64_t count = static_cast<std::uint64_t>(base::size_of(dtype));
  for (const std::int64_t extent : shape) count *= static_cast<std::uint64_t>(extent);
  return count;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     std::size_t alignment)
    : tensors_(std::move(tensors)), file_(path) {
  assert(names_are_distinct(tensors_));
  std::string header;
  try {
    header = header_text(tensors_, metadata, alignment);
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: header cannot be written: {}", path.string(), wrong.what());
  }
  std::array<std::byte, kLengthBytes> length;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length[i] = static_cast<std::byte>(header.size() >> (8 * i));
  file_.write(length);
  file_.write(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  assert(next_ < tensors_.size() && written_ + bytes.size() <= tensors_[next_].bytes());
  file_.write(bytes);
  written_ += bytes.size();
  if (written_ < tensors_[next_].bytes()) return;
  written_ = 0;
  ++next_;
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  assert(next_ < tensors_.size() && tensors_[next_].name == name);
  assert(tensors_[next_].bytes() == bytes.size());
  append(bytes);
}

void SafetensorsWriter::skip(std::string_view name) {
  assert(next_ < tensors_.size() && tensors_[next_].name == name && written_ == 0);
  file_.skip(tensors_[next_++].bytes());
}

void SafetensorsWriter::finish() {
  assert(next_ == tensors_.size());
  file_.commit();
}

}  // namespace engine::store
