#include "engine/store/dump.h"

#include <hdf5.h>

#include <fstream>
#include <vector>

#include "engine/base/error.h"

namespace engine::store {
namespace {

using base::Error;

// An HDF5 identifier with the function that closes it.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id < 0) throw Error("{}: HDF5 refuses", what);
  }
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void require(bool fine, const std::string& what) {
  if (!fine) throw Error("{}: HDF5 refuses", what);
}

}  // namespace

struct DumpWriter::State {
  std::filesystem::path path;
  std::unique_ptr<Handle> file;  // empty: a folder

  std::string place(const std::string& name) const { return path.string() + ": " + name; }

  // Object times are switched off so that equal contents make equal files.
  std::unique_ptr<Handle> dataset(const std::string& name, std::int64_t rows, std::int64_t cols,
                                  hid_t type) const {
    const hsize_t extents[2] = {static_cast<hsize_t>(rows), static_cast<hsize_t>(cols)};
    const Handle space(H5Screate_simple(2, extents, nullptr), H5Sclose, place(name));
    const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, place(name));
    require(H5Pset_obj_track_times(properties, false) >= 0, place(name));
    return std::make_unique<Handle>(
        H5Dcreate2(*file, name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT),
        H5Dclose, place(name));
  }

  std::ofstream raw(const std::string& name) const {
    std::ofstream out(path / name, std::ios::binary);
    if (!out) throw Error("{}: cannot be written", (path / name).string());
    return out;
  }

  template <class T>
  void write(const std::string& name, std::int64_t rows, std::int64_t cols,
             std::span<const T> values, hid_t stored, hid_t memory) const {
    if (file) {
      const auto set = dataset(name, rows, cols, stored);
      require(H5Dwrite(*set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0,
              place(name));
      return;
    }
    std::ofstream out = raw(name + ".bin");
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size_bytes()));
    if (!out.flush()) throw Error("{}: cannot be written", place(name));
  }
};

DumpWriter::DumpWriter(const std::filesystem::path& path) : state_(new State{path, nullptr}) {
  if (std::filesystem::exists(path)) throw Error("{}: exists already", path.string());
  if (path.extension() == ".h5") {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    state_->file = std::make_unique<Handle>(
        H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, path.string());
  } else {
    std::error_code error;
    if (!std::filesystem::create_directories(path, error)) {
      throw Error("{}: cannot be made: {}", path.string(), error.message());
    }
  }
}

DumpWriter::~DumpWriter() = default;

void DumpWriter::write(const std::string& name, std::int64_t rows, std::int64_t cols,
                       std::span<const float> values) {
  state_->write(name, rows, cols, values, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT);
}

void DumpWriter::write(const std::string& name, std::int64_t rows, std::int64_t cols,
                       std::span<const std::int32_t> values) {
  state_->write(name, rows, cols, values, H5T_STD_I32LE, H5T_NATIVE_INT32);
}

void DumpWriter::write(const std::string& name, const MatrixSpool& matrix) {
  std::vector<float> row(static_cast<std::size_t>(matrix.cols()));
  if (!state_->file) {
    std::ofstream out = state_->raw(name + ".bin");
    for (std::int64_t t = 0; t < matrix.rows(); ++t) {
      matrix.read_row(t, row);
      out.write(reinterpret_cast<const char*>(row.data()),
                static_cast<std::streamsize>(row.size() * sizeof(float)));
    }
    if (!out.flush()) throw Error("{}: cannot be written", state_->place(name));
    return;
  }
  const auto set = state_->dataset(name, matrix.rows(), matrix.cols(), H5T_IEEE_F32LE);
  const Handle space(H5Dget_space(*set), H5Sclose, state_->place(name));
  const hsize_t count[2] = {1, row.size()};
  const Handle memory(H5Screate_simple(2, count, nullptr), H5Sclose, state_->place(name));
  for (std::int64_t t = 0; t < matrix.rows(); ++t) {
    matrix.read_row(t, row);
    const hsize_t start[2] = {static_cast<hsize_t>(t), 0};
    require(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr) >= 0 &&
                H5Dwrite(*set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, row.data()) >= 0,
            state_->place(name));
  }
}

void DumpWriter::attribute(const std::string& name, const std::string& value) {
  if (!state_->file) {
    std::ofstream out = state_->raw(name + ".txt");
    out << value << '\n';
    return;
  }
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, state_->place(name));
  require(H5Tset_size(type, value.size() + 1) >= 0, state_->place(name));
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, state_->place(name));
  const Handle attribute(
      H5Acreate2(*state_->file, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
      state_->place(name));
  require(H5Awrite(attribute, type, value.c_str()) >= 0, state_->place(name));
}

}  // namespace engine::store
