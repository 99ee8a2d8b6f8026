#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "engine/store/matrix_spool.h"

namespace engine::store {

// Where a forward pass leaves its interior values: an HDF5 file (a path that ends in .h5) or a
// folder of raw little-endian files NAME.bin without header, the layout of the C reference's dumps.
// The same names in both; docs/formats.md lists them. Either grows beside PATH as PATH.lazylora-tmp and
// appears under its name when commit() is called; without it, after an error for instance, nothing
// is left.
class DumpWriter {
 public:
  // Errors    Error if `path` exists already or PATH.lazylora-tmp cannot be made
  explicit DumpWriter(const std::filesystem::path& path);
  ~DumpWriter();

  // A [rows,cols] array. Errors: Error naming path, array and the system's reason (disk full, ...)
  void write(const std::string& name, std::int64_t rows, std::int64_t cols,
             std::span<const float> values);
  void write(const std::string& name, std::int64_t rows, std::int64_t cols,
             std::span<const std::int32_t> values);
  void write(const std::string& name, const MatrixSpool& matrix);
  // An attribute of the whole dump (a file ATTRIBUTE.txt in a folder).
  void attribute(const std::string& name, const std::string& value);

  // Syncs and renames.
  // Errors    Error naming the path and the system's reason
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine::store
