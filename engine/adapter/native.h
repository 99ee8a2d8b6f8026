#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/file.h"

namespace engine::adapter {

// The project's own adapter file (docs/training.md sections 1 and 4): safetensors, float32, names
// layers.{n}.{target}.lora_A [r,in] and .lora_B [out,r]; r, alpha and the targets (comma-separated)
// in "__metadata__". Which targets a model has is not known here.

struct NativeTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

struct NativeMetadata {
  std::int64_t rank = 0;
  double alpha = 0.0;
  std::vector<std::string> targets;
  std::map<std::string, std::string> more;  // any other key
};

// `written` is told the number of every tensor whose values are no longer wanted.
//
// Errors    Error naming the file: the disk's reasons, or metadata that is not UTF-8
void write_native_adapter(const std::filesystem::path& path, std::span<const NativeTensor> tensors,
                          const NativeMetadata& metadata,
                          const std::function<void(std::size_t)>& written = {});

// What there is, in file order; the values are elsewhere.
struct NativeOutline : NativeMetadata {
  std::vector<NativeTensor> tensors;

  // Nothing if there is none of that name.
  const NativeTensor* find(std::string_view name) const;
};

struct NativeAdapter : NativeOutline {
  std::vector<float> storage;  // the tensors' values

  NativeAdapter() = default;
  NativeAdapter(NativeAdapter&&) = default;
  NativeAdapter& operator=(NativeAdapter&&) = default;
};

// Whether a file is one by its header: safetensors that say their rank, which other programs' say elsewhere.
bool is_native_adapter(const std::filesystem::path& path);

// Errors    Error naming file, tensor and element if one of these values, the tensor's from element
//           `first` on, is no number or infinite
void require_finite(const std::string& file, const std::string& tensor, std::int64_t first,
                    std::span<const float> values);

// A file whose values are read to where they are wanted, without memory of their own. One without "targets"
// has those of its tensors' names.
class NativeFile {
 public:
  // Errors    Error naming the file and the tensor or key: not safetensors, cut short, without
  //           tensors, a dtype other than F32, r missing or no positive integer, alpha missing or no
  //           positive number, a name of another form, an A without its B or the reverse, a rank
  //           other than r, a target that is not listed
  explicit NativeFile(const std::filesystem::path& path);

  // Its tensors are without values.
  const NativeOutline& outline() const { return outline_; }
  // `tensor`, one of the outline's, has as many values.
  // Errors    Error naming the file and the tensor: the disk's reasons, a value that is not finite
  void read(const NativeTensor& tensor, std::span<float> values) const;

 private:
  store::File file_;
  NativeOutline outline_;
  std::vector<std::uint64_t> offsets_;  // [tensor]
};

// The whole file.
// Cost      memory for all values
// Errors    those of NativeFile and of its reading
NativeAdapter read_native_adapter(const std::filesystem::path& path);

}  // namespace engine::adapter
