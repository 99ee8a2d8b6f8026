#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/store/durable.h"
#include "engine/store/file.h"
#include "engine/store/safetensors_writer.h"

namespace engine::adapter {

// GGUF version 3, as far as adapters need it: "GGUF", version, number of tensors, number of keys;
// keys with a type and a value; tensors with a name, extents (innermost first), a type and an
// offset; then, each padded to a multiple of the alignment, the tensors in that order.
// Source    https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

// Other types of a key are passed over: nothing is asked of them.
using GgufValue = std::variant<std::monostate, std::string, float, std::uint32_t>;

class GgufWriter {
 public:
  // Writes header, keys and tensor table. F32 and BF16 only, which is ours to see to.
  // Errors    Error naming the file and the disk's reason
  GgufWriter(const std::filesystem::path& path,
             std::span<const std::pair<std::string, GgufValue>> keys,
             std::vector<store::TensorSpec> tensors);

  // The next bytes of the tensors, which come in the order given; padding is added.
  void append(std::span<const std::byte> bytes);

  // After the last byte of the last tensor. Reads the header back: the number of tensors in it is
  // the number written.
  // Errors    Error naming the file and both numbers
  void finish();

 private:
  void pad();

  std::vector<store::TensorSpec> tensors_;
  std::size_t next_ = 0;
  std::uint64_t left_ = 0;  // bytes of tensor next_ still to come
  std::filesystem::path path_;
  store::DurableFile file_;
};

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // outermost first
  base::Dtype dtype = base::Dtype::kF32;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
};

struct GgufHeader {
  std::map<std::string, GgufValue> keys;
  std::vector<GgufTensor> tensors;
};

// Errors    Error naming file and place: no GGUF, another version, a count, length or extent beyond
//           what the file can hold, a name twice or of 64 bytes or more (llama.cpp's limit), a
//           tensor type other than F32 and BF16, offsets that leave gaps or overlap, a file that
//           ends before or after its last tensor
GgufHeader read_gguf(const store::File& file);

}  // namespace engine::adapter
