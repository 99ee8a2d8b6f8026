#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checks/store/shard_files.h"
#include "engine/store/folder_kind.h"

namespace {

using checks::error_of;
using checks::ScratchFolder;
using checks::write_bytes;
using engine::store::FolderKind;
using engine::store::require_kind;

TEST(FolderKind, AnotherKindIsNamedWithWhatToDo) {
  const ScratchFolder folder;
  const auto why = [&](const char* name, FolderKind wanted) {
    return error_of([&] { require_kind(folder / name, wanted); });
  };
  const auto is = [&](const std::string& name, const std::string& words) {
    return (folder / name).string() + ": is " + words;
  };
  for (const auto& [name, file] : {std::pair("model", "config.json"), std::pair("run", "log.jsonl"),
                                   std::pair("set", "sequences.bin")}) {
    std::filesystem::create_directory(folder / name);
    write_bytes(folder / name / file, "");
    write_bytes(folder / name / "manifest.json", "");
  }
  EXPECT_EQ(why("set", FolderKind::kRun), is("set", "a data set, not a run: --data takes it"));
  EXPECT_EQ(why("model", FolderKind::kRun), is("model", "a model, not a run: --model takes it"));
  EXPECT_EQ(why("model", FolderKind::kDataSet),
            is("model", "a model, not a data set: --model takes it"));
  EXPECT_EQ(why("run", FolderKind::kDataSet),
            is("run", "a run, not a data set: `lazylora status` and --adapter take it"));
  EXPECT_EQ(why("run", FolderKind::kRun), "");
  EXPECT_EQ(why("set", FolderKind::kDataSet), "");
}

TEST(FolderKind, WhatIsNoneOfThemIsItsReadersMatter) {
  const ScratchFolder folder;
  write_bytes(folder / "file", "");
  std::filesystem::create_directory(folder / "empty");
  for (const char* name : {"file", "empty", "nowhere"}) {
    EXPECT_EQ(error_of([&] { require_kind(folder / name, FolderKind::kRun); }), "") << name;
  }
}

}  // namespace
