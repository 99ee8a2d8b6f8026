// make_fixtures FOLDER: one HDF5 file an op, the contents of fixtures/ops/ (docs:
// fixtures/README.md).

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>

#include "checks/hdf5_file.h"
#include "checks/op_fixture.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: make_fixtures FOLDER\n");
    return 2;
  }
  try {
    std::filesystem::create_directories(argv[1]);
    for (const checks::OpFixture& op : checks::op_fixtures()) {
      const auto path = std::filesystem::path(argv[1]) / (op.name + ".h5");
      checks::write_hdf5(path, checks::fixture_inputs(op), checks::solve(op));
      fmt::print("{}: {} cases\n", path.string(), op.cases.size());
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_fixtures: {}\n", error.what());
    return 1;
  }
  return 0;
}
