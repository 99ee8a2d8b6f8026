#include "engine/store/dump.h"

#include <optional>
#include <vector>

#include "engine/store/dump_hdf5.h"
#include "engine/store/durable.h"

namespace engine::store {

// One of the two.
struct DumpWriter::State {
  std::optional<Hdf5Dump> file;
  std::optional<TemporaryFolder> folder;

  DurableFile raw(const std::string& name) const { return DurableFile(folder->path() / name); }

  template <class T>
  void write(const std::string& name, std::int64_t rows, std::int64_t cols,
             std::span<const T> values) {
    if (file) return file->write(name, rows, cols, values);
    DurableFile out = raw(name + ".bin");
    out.write(std::as_bytes(values));
    out.commit();
  }
};

DumpWriter::DumpWriter(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  require_unused(path);
  if (path.extension() == ".h5") {
    state_->file.emplace(path);
  } else {
    state_->folder.emplace(path);
  }
}

DumpWriter::~DumpWriter() = default;

void DumpWriter::write(const std::string& name, std::int64_t rows, std::int64_t cols,
                       std::span<const float> values) {
  state_->write(name, rows, cols, values);
}

void DumpWriter::write(const std::string& name, std::int64_t rows, std::int64_t cols,
                       std::span<const std::int32_t> values) {
  state_->write(name, rows, cols, values);
}

void DumpWriter::write(const std::string& name, const MatrixSpool& matrix) {
  if (state_->file) {
    state_->file->write_rows(
        name, matrix.rows(), matrix.cols(),
        [&](std::int64_t t, std::span<float> row) { matrix.read_row(t, row); });
    return;
  }
  DurableFile out = state_->raw(name + ".bin");
  std::vector<float> row(static_cast<std::size_t>(matrix.cols()));
  for (std::int64_t t = 0; t < matrix.rows(); ++t) {
    matrix.read_row(t, row);
    out.write(std::as_bytes(std::span(row)));
  }
  out.commit();
}

void DumpWriter::attribute(const std::string& name, const std::string& value) {
  if (state_->file) return state_->file->attribute(name, value);
  write_file_durably(state_->folder->path() / (name + ".txt"), value + "\n");
}

void DumpWriter::commit() {
  if (state_->file) {
    state_->file->commit();
  } else {
    state_->folder->commit();
  }
}

}  // namespace engine::store
