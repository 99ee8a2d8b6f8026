#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checks/reference.h"

namespace checks {

// Every dataset of the root group, whatever its rank and type of number, widened to double.
//
// Errors    std::runtime_error naming the file
NamedTensors read_hdf5(const std::filesystem::path& path);

// An attribute of the root group: text, or whole numbers joined by commas. Nothing if there is none.
//
// Errors    std::runtime_error naming the file and the attribute
std::optional<std::string> read_hdf5_attribute(const std::filesystem::path& path,
                                               const std::string& name);

// A new file with one dataset a tensor: those of `f32` as float32, which must hold them exactly,
// those of `f64` as float64. Nothing in it depends on time or place: the same numbers give the same
// bytes (with one version of the HDF5 library).
//
// Errors    std::runtime_error naming the file or the tensor; a file that exists is overwritten
void write_hdf5(const std::filesystem::path& path, const NamedTensors& f32,
                const NamedTensors& f64);

}  // namespace checks
