#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/store/durable.h"

namespace engine::store {

// A tensor that a file is going to hold.
struct TensorSpec {
  std::string name;
  base::Dtype dtype = base::Dtype::kF32;
  std::vector<std::int64_t> shape;

  std::uint64_t bytes() const;
};

// Writes one safetensors file: 8 bytes of header length, the JSON header padded with spaces so that
// the data begins at a multiple of `alignment`, then the tensors in the order given, without gaps. The
// final name appears in finish(), complete and durable (see durable.h).
class SafetensorsWriter {
 public:
  // Writes the header. `metadata` becomes "__metadata__", which is left out if empty. Names are
  // distinct, which is ours to see to.
  // Errors    Error naming the file: the disk's reasons, or metadata that is not UTF-8
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {},
                    std::size_t alignment = 8);

  // The next bytes of the tensors, which come in the order given, in parts of any size that end
  // with their tensor.
  // Errors    Error naming file, offset and bytes not written
  void append(std::span<const std::byte> bytes);

  // All bytes of the next tensor; `name` must be its name and the size must be its size.
  // Errors    Error naming file, offset and bytes not written
  void write(std::string_view name, std::span<const std::byte> bytes);

  // The next tensor, all zero and a hole in the file (see DurableFile::skip).
  // Errors    as write
  void skip(std::string_view name);

  // After the last tensor.
  void finish();

  // Bytes of the file so far.
  std::uint64_t size() const { return file_.size(); }

 private:
  std::vector<TensorSpec> tensors_;
  std::size_t next_ = 0;
  std::uint64_t written_ = 0;  // bytes of tensor next_
  DurableFile file_;
};

}  // namespace engine::store
