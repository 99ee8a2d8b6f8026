#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/adapter/exported.h"

namespace engine::adapter {

// A tensor as its file names it.
struct FoundTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // outermost first
  base::Dtype dtype = base::Dtype::kF32;
  std::uint64_t offset = 0;
};

// Ticks off which matrices have come, module by module and expert by expert.
class Coverage {
 public:
  explicit Coverage(std::span<const Module> modules);

  // `slot`: 'A', 'B', or of kv_b_proj's value half, which is apart in GGUF, 'a', 'b'.
  void tick(std::size_t module, char slot, std::int64_t expert);
  // The targets that there are, in the order of the modules.
  // Errors    Error naming the first module whose matrix is missing, and which
  std::vector<std::string> complete(const std::string& file, bool value_halves) const;

 private:
  std::vector<bool>& slot(std::size_t module, char slot);

  std::span<const Module> modules_;
  std::vector<std::vector<bool>> seen_;  // [module * 4 + slot][expert]
};

// Errors    Error naming file, tensor and both shapes
void require_shape(const std::string& file, const FoundTensor& tensor,
                   std::span<const std::int64_t> wanted);

Exported open_peft(const std::filesystem::path& folder, const Base& base);
Exported open_gguf(const std::filesystem::path& file, const Base& base);

}  // namespace engine::adapter
