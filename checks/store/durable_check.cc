#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/store/durable.h"

namespace {

using checks::FileSizeLimit;
using checks::read_bytes;
using checks::ScratchFolder;
using checks::write_bytes;
using engine::base::Error;
using engine::store::DurableFile;
using engine::store::EmptyFolder;
using engine::store::require_unused;
using engine::store::TemporaryFolder;
using engine::store::write_file_durably;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// The message of the Error that `action` throws; "no error" if it does not.
template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Each is refused, or taken where an empty folder may be, before work as by the rename behind it.
TEST(RequireUnused, SaysBeforehandWhatTheRenameWouldMeet) {
  const ScratchFolder scratch;
  const auto out = [&](const char* name) { return scratch / name; };
  std::filesystem::create_directories(out("empty"));
  std::filesystem::create_directories(out("full/file"));
  write_bytes(out("file"), "mine");
  std::filesystem::create_symlink(out("empty"), out("link"));
  std::filesystem::create_symlink(out("nowhere"), out("dangling"));
  const auto renamed = [&](const char* name) {
    return error_of([&] { TemporaryFolder(out(name)).commit(); }) == "no error";
  };
  for (const char* name : {"empty", "empty/", "full", "file", "link", "link/", "dangling"}) {
    const std::string refused = error_of([&] { require_unused(out(name)); });
    EXPECT_THAT(refused, AllOf(HasSubstr(out(name).string()), HasSubstr("is written over")))
        << name;
    const std::string taken = error_of([&] { require_unused(out(name), EmptyFolder::kTaken); });
    EXPECT_EQ(taken == "no error", renamed(name)) << name << ": " << taken;
  }
  for (const auto empty : {EmptyFolder::kRefused, EmptyFolder::kTaken}) {
    EXPECT_EQ(error_of([&] { require_unused(out("new"), empty); }), "no error");
  }
  EXPECT_THAT(error_of([&] { require_unused(out("link/")); }),
              HasSubstr("is a link to " + out("empty").string()));
}

TEST(DurableFile, AppearsCompleteOrNotAtAll) {
  const ScratchFolder scratch;
  {
    DurableFile file(scratch / "state");
    file.write(std::as_bytes(std::span(std::string_view("one "))));
    file.write(std::as_bytes(std::span(std::string_view("two"))));
    EXPECT_EQ(file.size(), 7u);
    EXPECT_THAT(names_in(scratch.path()), ElementsAre("state.lazylora-tmp"));
    file.commit();
    EXPECT_THAT(names_in(scratch.path()), ElementsAre("state"));
  }
  EXPECT_EQ(read_bytes(scratch / "state"), "one two");
  {
    DurableFile abandoned(scratch / "state");
    abandoned.write(std::as_bytes(std::span(std::string_view("three"))));
  }
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("state"));
  EXPECT_EQ(read_bytes(scratch / "state"), "one two");
}

// Of two writers of one path the second is refused and harms nothing of the first; a lock that a
// kill left is none.
TEST(DurableFile, HasOneWriter) {
  const ScratchFolder scratch;
  DurableFile first(scratch / "state");
  first.write(std::as_bytes(std::span(std::string_view("first"))));
  EXPECT_THAT(error_of([&] { DurableFile second(scratch / "state"); }),
              AllOf(HasSubstr("state.lazylora-tmp"), HasSubstr("another process is writing it")));
  first.commit();
  EXPECT_EQ(read_bytes(scratch / "state"), "first");
  EXPECT_EQ(error_of([&] { write_file_durably(scratch / "state", "second"); }), "no error");
  EXPECT_EQ(read_bytes(scratch / "state"), "second");
}

TEST(TemporaryFolder, HasOneWriter) {
  const ScratchFolder scratch;
  TemporaryFolder first(scratch / "out");
  write_bytes(first.path() / "a", "first");
  EXPECT_THAT(error_of([&] { TemporaryFolder second(scratch / "out"); }),
              AllOf(HasSubstr("out.lazylora-tmp"), HasSubstr("another process is writing it")));
  EXPECT_EQ(read_bytes(first.path() / "a"), "first");
  first.commit();
  EXPECT_THAT(names_in(scratch / "out"), ElementsAre("a"));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("out"));
}

TEST(DurableFile, ReplacesAnOldFileAndALeftover) {
  const ScratchFolder scratch;
  write_bytes(scratch / "state", "old");
  write_bytes(scratch / "state.lazylora-tmp", "left by a killed run, longer than what comes");
  write_file_durably(scratch / "state", "new");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("state"));
  EXPECT_EQ(read_bytes(scratch / "state"), "new");
}

// The temporary name leads to a device that is full.
TEST(DurableFile, FullDiskIsNamedAndTheOldFileSurvives) {
  const ScratchFolder scratch;
  write_bytes(scratch / "state", "old");
  std::filesystem::create_symlink("/dev/full", scratch / "state.lazylora-tmp");
  EXPECT_THAT(error_of([&] { write_file_durably(scratch / "state", "new"); }),
              AllOf(HasSubstr((scratch / "state.lazylora-tmp").string()), HasSubstr("offset 0"),
                    HasSubstr("3 bytes not written"), HasSubstr("No space left")));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("state"));
  EXPECT_EQ(read_bytes(scratch / "state"), "old");
}

// The first write comes up short at the limit, the next one fails: both are said.
TEST(DurableFile, DiskThatFillsUpDuringAWrite) {
  const ScratchFolder scratch;
  const std::string bytes(10000, 'x');
  std::string message;
  {
    const FileSizeLimit limit(6000);
    message = error_of([&] { write_file_durably(scratch / "state", bytes); });
  }
  EXPECT_THAT(message, AllOf(HasSubstr("offset 6000"), HasSubstr("4000 bytes not written")));
  EXPECT_THAT(names_in(scratch.path()), IsEmpty());
}

TEST(DurableFile, MakesTheFoldersAboveIt) {
  const ScratchFolder scratch;
  write_file_durably(scratch / "a/b/state", "new");
  EXPECT_EQ(read_bytes(scratch / "a/b/state"), "new");
  EXPECT_EQ(error_of([&] { write_file_durably(scratch / "a/b/state/below", "new"); }),
            (scratch / "a/b/state").string() + ": cannot be created: Not a directory");
}

TEST(TemporaryFolder, AppearsCompleteOrNotAtAll) {
  const ScratchFolder scratch;
  {
    TemporaryFolder folder(scratch / "step_00005");
    std::filesystem::create_directory(folder.path() / "below");
    write_bytes(folder.path() / "adapter", "a");
    write_bytes(folder.path() / "below" / "state", "s");
    EXPECT_THAT(names_in(scratch.path()), ElementsAre("step_00005.lazylora-tmp"));
    folder.commit();
  }
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("step_00005"));
  EXPECT_EQ(read_bytes(scratch / "step_00005/below/state"), "s");
  {
    const TemporaryFolder abandoned(scratch / "step_00010");
    write_bytes(abandoned.path() / "adapter", "a");
  }
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("step_00005"));
}

TEST(TemporaryFolder, StandsBesideItsFinalNameHoweverThatIsWritten) {
  const ScratchFolder scratch;
  {
    TemporaryFolder folder(scratch / "./a/b/");
    EXPECT_THAT(names_in(scratch / "a"), ElementsAre("b.lazylora-tmp"));
    write_bytes(folder.path() / "file", "f");
    folder.commit();
  }
  EXPECT_EQ(read_bytes(scratch / "a/b/file"), "f");
}

TEST(TemporaryFolder, StartsEmptyAndMayReplaceAnEmptyFolder) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "run.lazylora-tmp/old");
  std::filesystem::create_directory(scratch / "run");
  TemporaryFolder folder(scratch / "run");
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
  write_bytes(folder.path() / "file", "f");
  folder.commit();
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("run"));
}

// Somebody's own, which a run beside it once took for what a killed run had left.
TEST(TemporaryFolder, LeavesAFolderCalledTmpAlone) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "run.tmp");
  write_bytes(scratch / "run.tmp/thesis", "t");
  TemporaryFolder folder(scratch / "run");
  folder.commit();
  EXPECT_EQ(read_bytes(scratch / "run.tmp/thesis"), "t");
}

TEST(TemporaryFolder, NeverReplacesAFolderThatHoldsSomething) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "run");
  write_bytes(scratch / "run/kept", "k");
  EXPECT_THAT(error_of([&] {
                TemporaryFolder folder(scratch / "run");
                write_bytes(folder.path() / "file", "f");
                folder.commit();
              }),
              HasSubstr("cannot be renamed"));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("run"));
  EXPECT_THAT(names_in(scratch / "run"), ElementsAre("kept"));
}

// Writers that are not durable, put to the same question as DurableFile: after a failed write, is
// what stood there before still there, and nothing else?
TEST(DurableFile, PlantedFaults) {
  const auto survives_a_full_disk = [](auto&& writer) {
    const ScratchFolder scratch;
    write_bytes(scratch / "state", "old");
    {
      const FileSizeLimit limit(2);
      error_of([&] { writer(scratch / "state"); });
    }
    return read_bytes(scratch / "state") == "old" && names_in(scratch.path()).size() == 1;
  };
  EXPECT_TRUE(survives_a_full_disk(
      [](const std::filesystem::path& path) { write_file_durably(path, "newer"); }));
  // In place.
  EXPECT_FALSE(
      survives_a_full_disk([](const std::filesystem::path& path) { write_bytes(path, "newer"); }));
  // Renamed without a look at what was written.
  EXPECT_FALSE(survives_a_full_disk([](const std::filesystem::path& path) {
    write_bytes(path.string() + ".lazylora-tmp", "newer");
    std::filesystem::rename(path.string() + ".lazylora-tmp", path);
  }));
  // The temporary is left behind.
  EXPECT_FALSE(survives_a_full_disk([](const std::filesystem::path& path) {
    write_bytes(path.string() + ".lazylora-tmp", "newer");
    throw Error("disk full");
  }));
}

}  // namespace
