#pragma once

#include <cstdint>
#include <vector>

#include "engine/store/finding.h"
#include "engine/store/shard_reader.h"

namespace engine::store {

// E8M0 scale bytes of all MXFP4 tensors that are NaN by the OCP format (255, a group that the model
// takes as zero), and how many of these groups hold codes that are not zero.
struct ScaleScan {
  std::uint64_t tensors = 0;
  std::uint64_t groups = 0;
  std::uint64_t nan_groups = 0;
  std::uint64_t nan_groups_with_codes = 0;
};

// Reads every X.weight_scale, and X.weight_packed where a scale is 253 or more. Findings, with
// tensor and file offset of the first such group: a tensor with 255 is a warning, or with `strict`
// an error; a group whose scale is 253 or 254 and that holds a code which overflows float32 with it
// is an error.
//
// Cost      one read of the scales, a seventeenth of the experts' bytes
// Source    docs/model.md section 3
ScaleScan scan_scales(const ShardReader& reader, bool strict, std::vector<Finding>& findings);

}  // namespace engine::store
