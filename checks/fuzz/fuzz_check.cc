#include <gmock/gmock.h>

#include <map>
#include <set>

#include "checks/fuzz/corpus.h"
#include "checks/fuzz/targets.h"
#include "checks/scratch_folder.h"

namespace {

namespace fs = std::filesystem;

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

const fs::path kMalformed = fs::path(LAZYLORA_SOURCE_ROOT) / "fixtures" / "malformed";

TEST(Malformed, TheFilesAreWhatTheGeneratorWrites) {
  std::set<fs::path> wanted;
  for (const checks::CorpusFile& file : checks::corpus()) {
    const fs::path path = kMalformed / file.target / file.name;
    EXPECT_TRUE(wanted.insert(path).second) << path << ": two of one name";
    EXPECT_EQ(checks::read_bytes(path), file.bytes) << path;
  }
  for (const auto& entry : fs::recursive_directory_iterator(kMalformed)) {
    EXPECT_TRUE(entry.is_directory() || wanted.contains(entry.path())) << entry.path();
  }
}

TEST(Malformed, EachIsRefusedAndTheRightOneAccepted) {
  std::map<std::string, int> accepted;
  for (const checks::CorpusFile& file : checks::corpus()) {
    const bool took = checks::fuzz_target(file.target).run(bytes_of(file.bytes));
    EXPECT_EQ(took, file.accepted) << file.target << "/" << file.name;
    accepted[file.target] += file.accepted ? 1 : 0;
  }
  // Of a run there is no right single file: a checkpoint is three, whose digests must agree.
  for (const auto& [target, count] : accepted) EXPECT_EQ(count, target == "run" ? 0 : 1) << target;
  EXPECT_EQ(accepted.size(), checks::fuzz_targets().size()) << "a target without a file";
}

// Any byte changed, any prefix: no crash, and nothing thrown but what says why.
TEST(Malformed, OneByteFromARightFile) {
  for (const checks::CorpusFile& file : checks::corpus()) {
    if (!file.accepted) continue;
    const checks::FuzzTarget& target = checks::fuzz_target(file.target);
    const std::size_t stride = file.bytes.size() / 200 + 1;
    for (std::size_t i = 0; i < file.bytes.size(); i += stride) {
      std::string changed = file.bytes;
      changed[i] = static_cast<char>(changed[i] ^ 0x15);
      EXPECT_NO_THROW(target.run(bytes_of(changed))) << file.target << " byte " << i;
      EXPECT_NO_THROW(target.run(bytes_of(file.bytes.substr(0, i)))) << file.target << " to " << i;
    }
  }
}

TEST(Malformed, PlantedFaults) {
  EXPECT_THROW(checks::fuzz_target("none"), std::logic_error);
  // An edit that does not change its file would be a right file called wrong.
  std::map<std::string, std::string> right;
  for (const checks::CorpusFile& file : checks::corpus()) {
    if (file.accepted) right[file.target] = file.bytes;
  }
  for (const checks::CorpusFile& file : checks::corpus()) {
    if (file.accepted) continue;
    EXPECT_NE(file.bytes, right[file.target]) << file.target << "/" << file.name;
  }
}

}  // namespace
