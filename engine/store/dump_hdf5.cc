#include "engine/store/dump_hdf5.h"

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"

namespace engine::store {
namespace {

using base::Error;

// A descriptor, and the first thing that went wrong with it.
struct Disk {
  int descriptor = -1;
  std::string failure;
  // Metadata that the disk did not take, in the order of writing: the library must read back what it
  // wrote, or it follows pointers that are not there. What it still writes when it closes is little.
  struct Piece {
    haddr_t at;
    std::vector<char> bytes;
  };
  std::vector<Piece> kept;

  void fail(const char* what, haddr_t at) {
    if (failure.empty()) {
      failure = fmt::format("{} failed at offset {}: {}", what, at, std::strerror(errno));
    }
  }
};

// A file of the driver; the library sees its first member only.
struct DriverFile {
  H5FD_t base;
  Disk* disk;
  haddr_t allocated;  // "eoa": what the library has given away
  haddr_t end;        // "eof": what the file holds
};

Disk& disk_of(H5FD_t* file) { return *reinterpret_cast<DriverFile*>(file)->disk; }

H5FD_t* open_file(const char*, unsigned, hid_t access, haddr_t) {
  const void* info = H5Pget_driver_info(access);
  return &(new DriverFile{{}, *static_cast<Disk* const*>(info), 0, 0})->base;
}

herr_t close_file(H5FD_t* file) {
  delete reinterpret_cast<DriverFile*>(file);
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* features) {
  *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
              H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t get_allocated(const H5FD_t* file, H5FD_mem_t) {
  return reinterpret_cast<const DriverFile*>(file)->allocated;
}

herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  reinterpret_cast<DriverFile*>(file)->allocated = address;
  return 0;
}

haddr_t get_end(const H5FD_t* file, H5FD_mem_t) {
  return reinterpret_cast<const DriverFile*>(file)->end;
}

// Past the end there are zeros.
void read_disk(Disk& disk, haddr_t at, std::span<char> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(disk.descriptor, out.data(), out.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) disk.fail("read", at);
    if (got <= 0) break;
    at += static_cast<haddr_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  std::ranges::fill(out, '\0');
}

herr_t read_file(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t size, void* bytes) {
  Disk& disk = disk_of(file);
  const std::span out(static_cast<char*>(bytes), size);
  read_disk(disk, at, out);
  for (const Disk::Piece& piece : disk.kept) {
    const haddr_t begin = std::max(at, piece.at);
    const haddr_t end = std::min(at + size, piece.at + piece.bytes.size());
    if (begin >= end) continue;
    std::memcpy(out.data() + (begin - at), piece.bytes.data() + (begin - piece.at), end - begin);
  }
  return 0;
}

// Whether the disk takes all of it.
bool write_disk(Disk& disk, haddr_t at, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(disk.descriptor, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (written == 0) errno = ENOSPC;
      disk.fail("write", at);
      return false;
    }
    at += static_cast<haddr_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

herr_t write_file(H5FD_t* file, H5FD_mem_t kind, hid_t, haddr_t at, size_t size,
                  const void* bytes) {
  auto* self = reinterpret_cast<DriverFile*>(file);
  self->end = std::max(self->end, at + size);
  const std::span from(static_cast<const char*>(bytes), size);
  if (!write_disk(*self->disk, at, from) && kind != H5FD_MEM_DRAW) {
    self->disk->kept.push_back({at, {from.begin(), from.end()}});
  }
  return 0;
}

herr_t truncate_file(H5FD_t* file, hid_t, hbool_t) {
  auto* self = reinterpret_cast<DriverFile*>(file);
  if (self->end == self->allocated) return 0;
  if (::ftruncate(self->disk->descriptor, static_cast<off_t>(self->allocated)) != 0) {
    self->disk->fail("truncation", self->allocated);
  }
  self->end = self->allocated;
  return 0;
}

// The parts that this driver leaves out, locks among them, the library does itself or without.
const H5FD_class_t& driver() {
  static const H5FD_class_t driver = [] {
    H5FD_class_t made{};
#ifdef H5FD_CLASS_VERSION  // from HDF5 1.14 on
    made.version = H5FD_CLASS_VERSION;
#endif
    made.name = "remembers_failure";
    made.maxaddr = (haddr_t{1} << 62) - 1;
    made.fc_degree = H5F_CLOSE_STRONG;
    made.fapl_size = sizeof(Disk*);
    made.open = open_file;
    made.close = close_file;
    made.query = query;
    made.get_eoa = get_allocated;
    made.set_eoa = set_allocated;
    made.get_eof = get_end;
    made.read = read_file;
    made.write = write_file;
    made.truncate = truncate_file;
    constexpr H5FD_mem_t kMap[] = H5FD_FLMAP_DICHOTOMY;
    std::ranges::copy(kMap, made.fl_map);
    return made;
  }();
  return driver;
}

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

// A file that writes through `disk`. Attributes above 64 KiB (the ids of a long sequence) need the
// format of HDF5 1.8 and are kept outside the object's header.
std::unique_ptr<Handle> create(const std::filesystem::path& path, Disk& disk) {
  const std::string what = path.string();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const Handle driver_id(H5FDregister(&driver()), H5FDunregister, what);
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, what);
  Disk* const info = &disk;
  require(H5Pset_driver(access, driver_id, &info) >= 0 &&
              H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0,
          what);
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, what);
  require(
      H5Pset_obj_track_times(creation, false) >= 0 && H5Pset_attr_phase_change(creation, 0, 0) >= 0,
      what);
  return std::make_unique<Handle>(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access),
                                  H5Fclose, what);
}

}  // namespace

struct Hdf5Dump::State {
  explicit State(const std::filesystem::path& path) : final(path), beside(path) {
    disk.descriptor = beside.descriptor();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::string place(const std::string& name) const {
    return beside.temporary().string() + ": " + name;
  }

  void check(const std::string& what) const {
    if (!disk.failure.empty()) throw Error("{}: {}", what, disk.failure);
  }

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

  // The disk's reason before the library's, which has none.
  template <class Call>
  void guarded(const std::string& what, Call&& call) const {
    try {
      call();
    } catch (const Error&) {
      check(what);
      throw;
    }
    check(what);
  }

  void write(const std::string& name, std::int64_t rows, std::int64_t cols, const void* values,
             hid_t stored, hid_t memory) const {
    guarded(place(name), [&] {
      const auto set = dataset(name, rows, cols, stored);
      require(H5Dwrite(*set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, place(name));
    });
  }

  std::filesystem::path final;
  DurableFile beside;  // what HDF5 writes into
  Disk disk;
  std::unique_ptr<Handle> file;  // closed before its disk goes
};

Hdf5Dump::Hdf5Dump(const std::filesystem::path& path)
    : state_(std::make_unique<State>(absolute_path(path).lexically_normal())) {
  state_->guarded(state_->beside.temporary().string(),
                  [&] { state_->file = create(state_->beside.temporary(), state_->disk); });
}

Hdf5Dump::~Hdf5Dump() = default;

void Hdf5Dump::write(const std::string& name, std::int64_t rows, std::int64_t cols,
                     std::span<const float> values) {
  state_->write(name, rows, cols, values.data(), H5T_IEEE_F32LE, H5T_NATIVE_FLOAT);
}

void Hdf5Dump::write(const std::string& name, std::int64_t rows, std::int64_t cols,
                     std::span<const std::int32_t> values) {
  state_->write(name, rows, cols, values.data(), H5T_STD_I32LE, H5T_NATIVE_INT32);
}

void Hdf5Dump::write_rows(const std::string& name, std::int64_t rows, std::int64_t cols,
                          const ReadRow& read_row) {
  const std::string place = state_->place(name);
  std::vector<float> row(static_cast<std::size_t>(cols));
  state_->guarded(place, [&] {
    const auto set = state_->dataset(name, rows, cols, H5T_IEEE_F32LE);
    const Handle space(H5Dget_space(*set), H5Sclose, place);
    const hsize_t count[2] = {1, row.size()};
    const Handle memory(H5Screate_simple(2, count, nullptr), H5Sclose, place);
    for (std::int64_t t = 0; t < rows; ++t) {
      read_row(t, row);
      const hsize_t start[2] = {static_cast<hsize_t>(t), 0};
      require(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr) >= 0 &&
                  H5Dwrite(*set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, row.data()) >= 0,
              place);
      state_->check(place);
    }
  });
}

void Hdf5Dump::attribute(const std::string& name, const std::string& value) {
  const std::string place = state_->place(name);
  state_->guarded(place, [&] {
    const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, place);
    require(H5Tset_size(type, value.size() + 1) >= 0, place);
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose, place);
    const Handle attribute(
        H5Acreate2(*state_->file, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
        place);
    require(H5Awrite(attribute, type, value.c_str()) >= 0, place);
  });
}

void Hdf5Dump::commit() {
  state_->file.reset();
  state_->check(state_->beside.temporary().string());
  require_unused(state_->final);
  state_->beside.commit();
}

}  // namespace engine::store
