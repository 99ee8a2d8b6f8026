#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/store/file.h"
#include "engine/store/finding.h"

namespace engine::store {

// A tensor whose header entry holds: bytes [offset, offset + bytes) lie in the file, and bytes is
// what its shape takes in its dtype.
struct CheckedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
  std::optional<base::Dtype> dtype;  // nothing: a dtype that no tensor of the model may have
  const char* dtype_name = "";
};

struct ShardHeader {
  std::vector<CheckedTensor> tensors;  // in offset order
  std::string sha256;                  // of the length field and the header
};

// A safetensors file: 8 bytes header length, little-endian; that many bytes of JSON that begin with
// '{'; then data, which the tensors tile without gap or overlap from the first byte to the last.
// Nothing about alignment is promised by the format, so nothing is asked.
//
// Reads and checks the header of one file. What does not hold goes into `findings`: the length
// against the file's size, JSON (see parse_header), dtype, product of the shape (it may overflow),
// span of the offsets against shape and dtype, offsets against the data there is, the tiling. A
// file that is not safetensors at all is recognised by its content: a Git-LFS pointer, whose first
// eight bytes "version " would be read as a header of 2.3e18 bytes, an HTML page, another text.
//
// While it is read a header takes kHeaderTimes its bytes: itself, and of every tensor what it says and its
// name once more. 5 were measured with the released names, 7 with names of a few letters. More than `memory`
// is a finding, and not read.
// Errors    Error if the file cannot be read
// Source    https://huggingface.co/docs/safetensors/index#format
inline constexpr std::uint64_t kHeaderTimes = 8;
ShardHeader read_header(const File& file, std::vector<Finding>& findings,
                        std::uint64_t memory = std::numeric_limits<std::uint64_t>::max());

}  // namespace engine::store
