#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checks/adapter/loader.h"
#include "checks/engine_run.h"
#include "checks/scratch_folder.h"
#include "engine/store/safetensors_writer.h"
#include "engine/train/snapshot.h"

namespace checks {

// `lazylora export ...` or `lazylora import ...`: empty if it holds, else the message.
std::string adapter_command(std::vector<std::string> arguments);

// What an adapter of this checkpoint says of it.
engine::train::Identity identity_of(const Engine& engine);

// The tiny checkpoint, a random adapter for all its targets (rank 3, alpha 7: a ratio that no float
// holds), and what that adapter does, worked out in double.
class AdapterCase : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  // Exports to a new folder of that name; without a probe, which costs two passes.
  std::filesystem::path exported(const std::string& name, std::vector<std::string> options) const;
  // The message with which these options are refused; nothing may be left of the export.
  std::string refusal(std::vector<std::string> options,
                      const std::filesystem::path& adapter = shared_->adapter) const;
  std::string verify(const std::filesystem::path& folder) const;
  std::string import(const std::filesystem::path& folder, const std::string& name) const;

  struct Shared {
    ScratchFolder folder;
    std::filesystem::path model, adapter;
    FrozenMatrices frozen;
    Deltas native;
  };
  static Shared* shared_;
  ScratchFolder scratch_;
};

// A safetensors file taken apart, to be put together again with a fault in it.
struct RawTensor {
  engine::store::TensorSpec spec;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;
RawTensors read_raw(const std::filesystem::path& file);
void write_raw(const std::filesystem::path& file, const RawTensors& tensors);

// All files of a folder by name.
std::map<std::string, std::string> folder_bytes(const std::filesystem::path& folder);

}  // namespace checks
