#include "checks/adapter/exports.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/cli/export.h"
#include "engine/cli/import.h"
#include "engine/train/manifest.h"
#include "oracle/safetensors.h"

namespace checks {

namespace fs = std::filesystem;

AdapterCase::Shared* AdapterCase::shared_ = nullptr;

engine::train::Identity identity_of(const Engine& engine) {
  engine::train::Identity identity;
  identity.config_sha256 = engine.config().sha256;
  identity.headers_sha256 = engine::train::headers_digest(engine.model.shards());
  return identity;
}

std::string adapter_command(std::vector<std::string> arguments) {
  CLI::App app;
  engine::cli::add_export_command(app);
  engine::cli::add_import_command(app);
  std::ranges::reverse(arguments);  // as the library wants it
  testing::internal::CaptureStdout();
  std::string message;
  try {
    app.parse(arguments);
  } catch (const engine::base::Error& error) {
    message = error.what();
  } catch (const CLI::Error& error) {
    message = std::string("usage: ") + error.what();
  }
  std::fflush(stdout);
  testing::internal::GetCapturedStdout();
  return message;
}

void AdapterCase::SetUpTestSuite() {
  shared_ = new Shared;
  shared_->model = tiny_checkpoint();
  shared_->adapter = shared_->folder / "adapter.safetensors";
  Engine engine(shared_->model);
  engine::train::write_adapter(shared_->adapter, *random_adapter_set(engine, 3, 7.0, 5),
                               identity_of(engine));
  shared_->frozen = frozen_matrices(shared_->model);
  shared_->native = native_deltas(shared_->adapter, shared_->frozen);
}

void AdapterCase::TearDownTestSuite() {
  delete shared_;
  shared_ = nullptr;
}

fs::path AdapterCase::exported(const std::string& name, std::vector<std::string> options) const {
  std::vector<std::string> arguments = {"export",         shared_->adapter.string(),
                                        "--model",        shared_->model.string(),
                                        "--out",          (scratch_ / name).string(),
                                        "--probe-tokens", "0",
                                        "--base-model",   "tiny"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  EXPECT_EQ(adapter_command(arguments), "") << name;
  return scratch_ / name;
}

std::string AdapterCase::refusal(std::vector<std::string> options, const fs::path& adapter) const {
  const fs::path out = scratch_ / "refused" / "export";
  std::vector<std::string> arguments = {
      "export", adapter.string(), "--model",        shared_->model.string(),
      "--out",  out.string(),     "--probe-tokens", "0"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const std::string message = adapter_command(arguments);
  EXPECT_TRUE(!fs::exists(out.parent_path()) || fs::is_empty(out.parent_path())) << message;
  return message.empty() ? "accepted" : message;
}

std::string AdapterCase::verify(const fs::path& folder) const {
  return adapter_command({"export", shared_->adapter.string(), "--model", shared_->model.string(),
                          "--verify", folder.string()});
}

std::string AdapterCase::import(const fs::path& folder, const std::string& name) const {
  return adapter_command({"import", folder.string(), "--model", shared_->model.string(), "--out",
                          (scratch_ / name).string()});
}

RawTensors read_raw(const fs::path& file) {
  const oracle::SafeTensors tensors(file);
  RawTensors raw;
  for (const auto& [name, info] : tensors.tensors()) {
    const std::vector<std::uint8_t> bytes = tensors.bytes(name);
    raw[name] = {{name, *engine::base::dtype_named(info.dtype), info.shape},
                 {bytes.begin(), bytes.end()}};
  }
  return raw;
}

void write_raw(const fs::path& file, const RawTensors& tensors) {
  std::vector<engine::store::TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back(tensor.spec);
    specs.back().name = name;
  }
  engine::store::SafetensorsWriter writer(file, specs);
  for (const auto& [name, tensor] : tensors) {
    writer.append(std::as_bytes(std::span(tensor.bytes)));
  }
  writer.finish();
}

std::map<std::string, std::string> folder_bytes(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_bytes(entry.path());
  }
  return files;
}

}  // namespace checks
