// Writes a forward trace as HDF5: one dataset a tensor, under the names of the C reference's dumps.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
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

// Writes `bytes` to PATH.tmp, syncs and renames: the file is there as a whole or not at all.
//
// Errors  throws std::runtime_error naming the path and the system's reason; PATH.tmp is removed
inline void write_whole_file(const std::filesystem::path& path, std::span<const char> bytes) {
  const std::string temporary = path.string() + ".tmp";
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const auto fail = [&](const std::string& what) {
    const std::string reason = std::strerror(errno);
    if (descriptor >= 0) {
      ::close(descriptor);
      ::unlink(temporary.c_str());
    }
    throw std::runtime_error(fmt::format("{}: {}: {}", path.string(), what, reason));
  };
  if (descriptor < 0) fail("cannot be opened for writing");
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written = ::write(descriptor, bytes.data() + at, bytes.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      fail(fmt::format("write failed at offset {}, {} bytes not written", at, bytes.size() - at));
    }
    at += static_cast<size_t>(written);
  }
  if (::fsync(descriptor) != 0) fail("cannot be made durable (fsync)");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot be renamed from " + temporary);
  ::close(descriptor);
}

// A file that never was anywhere: what its name would hide must not be lost.
//
// Errors  throws std::runtime_error naming the path if anything stands there
inline void require_free(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::symlink_status(path, ignored).type() !=
      std::filesystem::file_type::not_found) {
    throw std::runtime_error(path.string() + ": exists already");
  }
}

// A new file without object times: the same trace gives the same bytes. It grows in memory (the
// whole trace is there, too) and reaches the disk in finish(): the HDF5 library dies of a full disk
// when it closes a file.
//
// Errors  throws std::runtime_error naming the file or the dataset
class DumpFile {
 public:
  explicit DumpFile(const std::filesystem::path& path)
      : path_(path),
        properties_(H5P_FILE_CREATE),
        access_(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path.string()),
        file_(create(), H5Fclose, path.string()) {}

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
  void finish() {
    check(H5Fflush(file_, H5F_SCOPE_GLOBAL), path_.string());
    const ssize_t size = H5Fget_file_image(file_, nullptr, 0);
    check(size < 0 ? -1 : 0, path_.string());
    std::vector<char> image(static_cast<size_t>(size));
    check(H5Fget_file_image(file_, image.data(), image.size()) == size ? 0 : -1, path_.string());
    require_free(path_);
    write_whole_file(path_, image);
  }

 private:
  // A creation property list without object times.
  struct Timeless : H5Handle {
    explicit Timeless(hid_t cls) : H5Handle(H5Pcreate(cls), H5Pclose, "property list") {
      check(H5Pset_obj_track_times(*this, false), "property list");
    }
  };

  // In the oldest format: of a newer one HDF5 1.10 gives an image whose checksum is wrong.
  hid_t create() const {
    check(H5Pset_fapl_core(access_, kGrowth, false), path_.string());
    return H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, properties_, access_);
  }

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

  static constexpr size_t kGrowth = size_t{1} << 20;

  std::filesystem::path path_;
  Timeless properties_;
  H5Handle access_;
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
