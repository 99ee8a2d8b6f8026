#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "engine/store/scratch_file.h"

namespace engine::store {

// A float32 matrix on disk that is made band of columns by band of columns and wanted row by row:
// the logits.
class MatrixSpool {
 public:
  // Errors    Error, as ScratchFile
  MatrixSpool(const std::filesystem::path& folder, std::int64_t rows, std::int64_t cols)
      : file_(folder), rows_(rows), cols_(cols) {}

  // Columns [first, first + count) of all rows; band [rows,count].
  void write_columns(std::int64_t first, std::int64_t count, std::span<const float> band) {
    for (std::int64_t row = 0; row < rows_; ++row) {
      file_.write(place(row, first),
                  std::as_bytes(band.subspan(static_cast<std::size_t>(row * count),
                                             static_cast<std::size_t>(count))));
    }
  }
  void read_row(std::int64_t row, std::span<float> out) const {
    file_.read(place(row, 0), std::as_writable_bytes(out));
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }

 private:
  std::uint64_t place(std::int64_t row, std::int64_t col) const {
    return static_cast<std::uint64_t>(row * cols_ + col) * sizeof(float);
  }

  ScratchFile file_;
  std::int64_t rows_, cols_;
};

}  // namespace engine::store
