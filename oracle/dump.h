// Writes a forward trace as HDF5: one dataset a tensor, under the names of the C reference's dumps.
#pragma once

#include <fmt/format.h>
#include <hdf5.h>

#include <filesystem>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/config.h"
#include "oracle/trace.h"

namespace oracle {

// An HDF5 handle, closed when it goes out of scope.
class H5Handle {
 public:
  H5Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id < 0) throw std::runtime_error(what + ": HDF5 refuses");
  }
  ~H5Handle() { close_(id_); }
  H5Handle(const H5Handle&) = delete;
  H5Handle& operator=(const H5Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// A new file without object times: the same trace gives the same bytes.
//
// Errors  throws std::runtime_error naming the file or the dataset; one that exists is overwritten
class DumpFile {
 public:
  explicit DumpFile(const std::filesystem::path& path)
      : properties_(H5P_FILE_CREATE),
        file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, properties_, H5P_DEFAULT), H5Fclose,
              path.string()) {}

  // Stored little-endian whatever the machine: f64, or i32.
  void dataset(const std::string& name, std::span<const double> data,
               std::initializer_list<size_t> shape) {
    dataset(name, data.data(), data.size(), shape, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE);
  }
  void dataset(const std::string& name, std::span<const int32_t> data,
               std::initializer_list<size_t> shape) {
    dataset(name, data.data(), data.size(), shape, H5T_STD_I32LE, H5T_NATIVE_INT32);
  }
  void attribute(const std::string& name, std::span<const int32_t> data) {
    const hsize_t size = data.size();
    const H5Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose, name);
    attribute(name, space, H5T_STD_I32LE, H5T_NATIVE_INT32, data.data());
  }
  void attribute(const std::string& name, const std::string& text) {
    const H5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, name);
    H5Tset_size(type, text.size());
    const H5Handle space(H5Screate(H5S_SCALAR), H5Sclose, name);
    attribute(name, space, type, type, text.data());
  }
  // Closing cannot report a full disk: the destructor has nowhere to say so.
  void finish() { check(H5Fflush(file_, H5F_SCOPE_GLOBAL), "flush"); }

 private:
  // A creation property list without object times.
  struct Timeless : H5Handle {
    explicit Timeless(hid_t cls) : H5Handle(H5Pcreate(cls), H5Pclose, "property list") {
      check(H5Pset_obj_track_times(*this, false), "property list");
    }
  };

  void dataset(const std::string& name, const void* data, size_t size,
               std::initializer_list<size_t> shape, hid_t stored, hid_t native) {
    std::vector<hsize_t> extent(shape.begin(), shape.end());
    hsize_t expected = 1;
    for (const hsize_t n : extent) expected *= n;
    if (size != expected)
      throw std::runtime_error(fmt::format("{}: {} numbers for {}", name, size, expected));
    const H5Handle space(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr),
                         H5Sclose, name);
    const Timeless creation(H5P_DATASET_CREATE);
    const H5Handle set(
        H5Dcreate2(file_, name.c_str(), stored, space, H5P_DEFAULT, creation, H5P_DEFAULT),
        H5Dclose, name);
    check(H5Dwrite(set, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), name);
  }
  void attribute(const std::string& name, hid_t space, hid_t stored, hid_t native,
                 const void* data) {
    const H5Handle a(H5Acreate2(file_, name.c_str(), stored, space, H5P_DEFAULT, H5P_DEFAULT),
                     H5Aclose, name);
    check(H5Awrite(a, native, data), name);
  }
  static void check(herr_t status, const std::string& name) {
    if (status < 0) throw std::runtime_error(name + ": HDF5 cannot write");
  }

  Timeless properties_;
  H5Handle file_;
};

// Source  docs/formats.md, Dumps; gap_NNN, the routing margin, is ours
inline void write_dump(const std::filesystem::path& path, const Config& c, const Batch& batch,
                       const Trace<double>& trace, const std::string& config_sha256) {
  DumpFile file(path);
  const size_t tokens = batch.tokens.size(), hidden = c.hidden, k = c.top_k;
  file.attribute("ids", batch.tokens);
  file.attribute("config_sha256", config_sha256);
  file.dataset("embed", trace.embed, {tokens, hidden});
  for (size_t n = 0; n < trace.layers.size(); ++n) {
    const LayerTrace<double>& layer = trace.layers[n];
    const auto name = [&](const char* what) { return fmt::format("{}_{:03}", what, n); };
    file.dataset(name("attn_res"), layer.attn_res, {tokens, hidden});
    file.dataset(name("attn_in"), layer.attn_in, {tokens, hidden});
    file.dataset(name("attn_out"), layer.attn_out, {tokens, hidden});
    file.dataset(name("mlp_res"), layer.mlp_res, {tokens, hidden});
    file.dataset(name("mlp_in"), layer.mlp_in, {tokens, hidden});
    file.dataset(name("mlp_out"), layer.mlp_out, {tokens, hidden});
    file.dataset(name("h_layer"), layer.h_out, {tokens, hidden});
    if (c.is_dense(static_cast<int64_t>(n))) continue;
    file.dataset(name("route_idx"), layer.route_idx, {tokens, k});
    file.dataset(name("route_w"), layer.route_w, {tokens, k});
    file.dataset(name("gap"), layer.gap, {tokens});
  }
  file.dataset("final_res", trace.final_res, {tokens, hidden});
  file.dataset("final_norm", trace.final_norm, {tokens, hidden});
  file.dataset("logits", trace.logits, {tokens, static_cast<size_t>(c.vocab)});
  file.finish();
}

}  // namespace oracle
