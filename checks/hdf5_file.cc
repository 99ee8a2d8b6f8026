#include "checks/hdf5_file.h"

#include <fmt/ranges.h>
#include <hdf5.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace checks {
namespace {

// An HDF5 handle, closed when it goes out of scope.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id < 0) throw std::runtime_error(what + ": HDF5 refuses");
  }
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void require(herr_t status, const std::string& what) {
  if (status < 0) throw std::runtime_error(what + ": HDF5 fails");
}

NamedTensor read_dataset(hid_t file, const std::string& path, const std::string& name) {
  const std::string place = path + ": " + name;
  const Handle set(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose, place);
  const Handle type(H5Dget_type(set), H5Tclose, place);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind != H5T_FLOAT && kind != H5T_INTEGER) {
    throw std::runtime_error(place + ": holds no numbers");
  }
  const Handle space(H5Dget_space(set), H5Sclose, place);
  const int rank = H5Sget_simple_extent_ndims(space);
  require(rank, place);
  std::vector<hsize_t> extent(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  NamedTensor tensor;
  std::size_t count = 1;
  for (const hsize_t n : extent) {
    tensor.shape.push_back(static_cast<std::int64_t>(n));
    count *= n;
  }
  tensor.data.resize(count);
  require(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.data.data()),
          place);
  return tensor;
}

// The library's own account of an error is about its inside; ours names the file.
hid_t open_to_read(const std::filesystem::path& path) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  if (!std::filesystem::is_regular_file(path)) {
    throw std::runtime_error(path.string() + ": there is no such file");
  }
  if (H5Fis_hdf5(path.c_str()) <= 0) {
    throw std::runtime_error(path.string() + ": is no HDF5 file");
  }
  return H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
}

// No exception may pass through the C library: names are gathered first.
herr_t add_name(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

// A creation property list without object times.
class Timeless : public Handle {
 public:
  explicit Timeless(hid_t kind) : Handle(H5Pcreate(kind), H5Pclose, "property list") {
    require(H5Pset_obj_track_times(*this, false), "property list");
  }
};

void write_dataset(hid_t file, const std::string& name, const NamedTensor& tensor, hid_t stored) {
  const std::vector<hsize_t> extent(tensor.shape.begin(), tensor.shape.end());
  hsize_t count = 1;
  for (const hsize_t n : extent) count *= n;
  if (count != tensor.data.size()) throw std::runtime_error(name + ": numbers do not fill shape");
  const Handle space(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr),
                     H5Sclose, name);
  const Timeless creation(H5P_DATASET_CREATE);
  const Handle set(
      H5Dcreate2(file, name.c_str(), stored, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose,
      name);
  require(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.data.data()),
          name);
}

}  // namespace

NamedTensors read_hdf5(const std::filesystem::path& path) {
  const Handle file(open_to_read(path), H5Fclose, path.string());
  std::vector<std::string> names;
  require(H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, nullptr, add_name, &names), path.string());
  NamedTensors tensors;
  tensors.source = path.string();
  for (const std::string& name : names) tensors[name] = read_dataset(file, path.string(), name);
  return tensors;
}

std::optional<std::string> read_hdf5_attribute(const std::filesystem::path& path,
                                               const std::string& name) {
  const std::string place = fmt::format("{}: attribute {}", path.string(), name);
  const Handle file(open_to_read(path), H5Fclose, path.string());
  if (H5Aexists(file, name.c_str()) <= 0) return std::nullopt;
  const Handle attribute(H5Aopen(file, name.c_str(), H5P_DEFAULT), H5Aclose, place);
  const Handle type(H5Aget_type(attribute), H5Tclose, place);
  if (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0) {
    std::string text(H5Tget_size(type), '\0');
    require(H5Aread(attribute, type, text.data()), place);
    return text.substr(0, text.find('\0'));
  }
  if (H5Tget_class(type) != H5T_INTEGER) throw std::runtime_error(place + ": no text, no numbers");
  const Handle space(H5Aget_space(attribute), H5Sclose, place);
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  require(count < 0 ? -1 : 0, place);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  require(H5Aread(attribute, H5T_NATIVE_INT64, numbers.data()), place);
  return fmt::format("{}", fmt::join(numbers, ","));
}

void write_hdf5(const std::filesystem::path& path, const NamedTensors& f32,
                const NamedTensors& f64) {
  const Timeless creation(H5P_FILE_CREATE);
  const Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, H5P_DEFAULT), H5Fclose,
                    path.string());
  for (const auto& [name, tensor] : f32) {
    for (const double value : tensor.data) {
      if (static_cast<double>(static_cast<float>(value)) != value) {
        throw std::runtime_error(name + ": float32 does not hold " + std::to_string(value));
      }
    }
    write_dataset(file, name, tensor, H5T_IEEE_F32LE);
  }
  for (const auto& [name, tensor] : f64) write_dataset(file, name, tensor, H5T_IEEE_F64LE);
  // Closing cannot report a full disk.
  require(H5Fflush(file, H5F_SCOPE_GLOBAL), path.string());
}

}  // namespace checks
