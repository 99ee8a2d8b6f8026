#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace engine::store {

// The HDF5 file behind a DumpWriter. It grows as PATH.lazylora-tmp and appears as PATH when it is complete,
// like everything that durable.h writes; equal content makes equal bytes.
//
// The HDF5 library (1.10) does not survive a full disk: what it cannot write it keeps, and closing
// the file, or leaving the process, ends in a segmentation fault. So the library is never told. It
// writes through a driver of our own, which remembers the first failure with its reason; every
// function here asks for it before it returns. The tempting wrong versions: to trust the status of
// H5Dwrite, which only fills a buffer, or to flush and leave the file open.
class Hdf5Dump {
 public:
  // Errors    Error naming the path and the system's reason
  explicit Hdf5Dump(const std::filesystem::path& path);
  // Removes PATH.lazylora-tmp unless commit() was called.
  ~Hdf5Dump();

  // A [rows,cols] array. Errors: Error naming path, array and the system's reason
  void write(const std::string& name, std::int64_t rows, std::int64_t cols,
             std::span<const float> values);
  void write(const std::string& name, std::int64_t rows, std::int64_t cols,
             std::span<const std::int32_t> values);
  // The same, asked for row by row.
  using ReadRow = std::function<void(std::int64_t row, std::span<float> out)>;
  void write_rows(const std::string& name, std::int64_t rows, std::int64_t cols,
                  const ReadRow& read_row);
  // An attribute of the file, of any length.
  void attribute(const std::string& name, const std::string& value);

  // Closes, syncs, renames. Nothing is written afterwards.
  // Errors    Error; also if PATH has come into being meanwhile
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine::store
