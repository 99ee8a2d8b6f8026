#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checks/train/toy.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/train/record.h"

namespace {

using checks::read_bytes;
using checks::ScratchFolder;
using checks::write_bytes;
using engine::base::Error;
using engine::train::check_log;
using engine::train::JsonLine;
using engine::train::LogPosition;
using engine::train::Record;
using engine::train::timing_now;

LogPosition write_lines(const std::filesystem::path& run, int first, int last,
                        const LogPosition& at = {}) {
  Record record(run, "id", at);
  for (int step = first; step <= last; ++step) {
    record.write(step, "step_end", JsonLine().real("loss", 1.0 / step), timing_now());
  }
  record.sync();
  return record.position();
}

int lines_of(const std::filesystem::path& path) {
  const std::string text = read_bytes(path);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Record, LinesAreStrictJsonInOrder) {
  const JsonLine line = JsonLine()
                            .text("a", "quote \" and\nnewline")
                            .integer("b", -3)
                            .integers("c", std::vector<std::int64_t>{1, 2})
                            .real("d", 0.1)
                            .null("e");
  EXPECT_EQ(line.str(),
            "{\"a\":\"quote \\\" and\\nnewline\",\"b\":-3,\"c\":[1,2],\"d\":0.1,\"e\":null}");
  EXPECT_EQ(JsonLine().str(), "{}");
}

TEST(Record, NumbersComeBackBitForBit) {
  for (const double x :
       {0.1, 1.0 / 3.0, 2.2250738585072014e-308, 1.7976931348623157e308, -0.0, 1e22, 123456789.0}) {
    const std::string line = JsonLine().real("x", x).str();
    EXPECT_EQ(nlohmann::json::parse(line).at("x").get<double>(), x);
    const double back = std::stod(line.substr(5, line.size() - 6));  // {"x":...}
    EXPECT_EQ(std::signbit(back), std::signbit(x)) << line;
  }
}

TEST(Record, NotANumberIsNullAndAFlag) {
  EXPECT_EQ(JsonLine().real("loss", std::numeric_limits<double>::quiet_NaN()).str(),
            "{\"loss\":null,\"loss_is\":\"nan\"}");
  EXPECT_EQ(JsonLine().real("loss", -std::numeric_limits<double>::infinity()).str(),
            "{\"loss\":null,\"loss_is\":\"-infinity\"}");
}

TEST(Record, TimingsStandLineForLine) {
  const ScratchFolder folder;
  write_lines(folder.path(), 1, 5);
  std::ifstream log(folder.path() / "log.jsonl");
  std::ifstream timings(folder.path() / "timings.jsonl");
  std::string line, timing;
  int count = 0;
  for (; std::getline(log, line) && std::getline(timings, timing); ++count) {
    const auto a = nlohmann::json::parse(line);
    const auto b = nlohmann::json::parse(timing);
    for (const char* key : {"run", "step", "phase"}) EXPECT_EQ(a.at(key), b.at(key));
    EXPECT_EQ(b.at("line"), engine::base::sha256_hex(line));
    for (const char* key : {"wall_ns", "monotonic_ns", "seconds", "bytes_read", "reads_retried",
                            "rss_bytes", "peak_rss_bytes", "swap_bytes"}) {
      EXPECT_TRUE(b.contains(key)) << key;
      EXPECT_FALSE(a.contains(key)) << key << " is not reproducible";
    }
    EXPECT_GT(b.at("rss_bytes").get<double>(), 0.0);
  }
  EXPECT_EQ(count, 5);
}

TEST(Record, TimingsHoldWhatWasAddedSinceTheLineBefore) {
  const ScratchFolder folder;
  Record record(folder.path(), "id");
  for (const std::uint64_t total : {100u, 250u, 250u}) {
    engine::train::Timing timing = timing_now();
    timing.bytes_read = total;
    record.write(1, "x", JsonLine(), timing);
  }
  std::ifstream timings(folder.path() / "timings.jsonl");
  std::vector<std::int64_t> bytes;
  for (std::string line; std::getline(timings, line);) {
    bytes.push_back(nlohmann::json::parse(line).at("bytes_read"));
  }
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{100, 150, 0}));
}

TEST(Record, LinesAreTheSameWheneverTheyAreWritten) {
  const ScratchFolder one, two;
  write_lines(one.path(), 1, 4);
  write_lines(two.path(), 1, 4);
  EXPECT_EQ(read_bytes(one.path() / "log.jsonl"), read_bytes(two.path() / "log.jsonl"));
}

TEST(Record, CutBackKeepsWhatIsAbandoned) {
  const ScratchFolder folder, straight;
  const LogPosition at = write_lines(folder.path(), 1, 3);
  write_lines(folder.path(), 4, 5, at);
  write_lines(folder.path(), 4, 6, at);
  write_lines(straight.path(), 1, 6);
  EXPECT_EQ(read_bytes(folder.path() / "log.jsonl"), read_bytes(straight.path() / "log.jsonl"));
  EXPECT_EQ(lines_of(folder.path() / "log.abandoned.jsonl"), 2);
  EXPECT_EQ(lines_of(folder.path() / "timings.abandoned.jsonl"), 2);
  EXPECT_EQ(lines_of(folder.path() / "timings.jsonl"), 6);
}

// Timings are no state: lost, cut or of another run, they begin anew, say so once, and the resume
// after that finds its place in the new ones.
TEST(Record, LostTimingsBeginAnew) {
  for (const char* damage : {"gone", "empty", "short", "other"}) {
    const ScratchFolder folder;
    const LogPosition at = write_lines(folder.path(), 1, 3);
    const std::filesystem::path timings = folder.path() / "timings.jsonl";
    const std::string text = read_bytes(timings);
    if (damage == std::string("gone")) std::filesystem::remove(timings);
    if (damage == std::string("empty")) write_bytes(timings, "");
    if (damage == std::string("short")) write_bytes(timings, text.substr(0, text.find('\n') + 1));
    if (damage == std::string("other")) write_bytes(timings, "{}\n{}\n{}\n{}\n");
    LogPosition later;
    {
      Record record(folder.path(), "id", at);
      EXPECT_NE(record.notice().find("timings.jsonl"), std::string::npos) << damage;
      record.write(4, "step_end", JsonLine(), timing_now());
      later = record.position();
    }
    EXPECT_EQ(lines_of(timings), 1) << damage;
    const Record again(folder.path(), "id", later);
    EXPECT_EQ(again.notice(), "") << damage;
    EXPECT_EQ(lines_of(timings), 1) << damage;
    EXPECT_EQ(check_log(folder.path() / "log.jsonl"), later) << damage;
  }
}

TEST(Record, HalfALineOfAKilledRunIsAbandoned) {
  const ScratchFolder folder;
  const LogPosition at = write_lines(folder.path(), 1, 3);
  std::ofstream(folder.path() / "log.jsonl", std::ios::app) << "{\"run\":\"id\",\"st";
  write_lines(folder.path(), 4, 4, at);
  EXPECT_EQ(check_log(folder.path() / "log.jsonl").lines, 4);
}

// What is longer than a line of ours is not held in memory to be looked at: of the log it is refused, of the
// timings, which nothing depends on, moved away with what else stands behind the place.
TEST(Record, ALineIsOfBoundedLength) {
  const ScratchFolder folder;
  const std::filesystem::path log = folder / "log.jsonl", timings = folder / "timings.jsonl";
  const LogPosition at = write_lines(folder.path(), 1, 3);
  const std::string good = read_bytes(log), good_timings = read_bytes(timings);
  const std::string wide(engine::train::kMostLineBytes + 1, 'x'), tail(3 << 20, 'y');
  write_bytes(log, good + wide + "\n");
  EXPECT_EQ(check_log(log, &at), at) << "it is not read so far";
  EXPECT_THAT(checks::why_refused([&] { check_log(log); }),
              testing::HasSubstr(fmt::format("log.jsonl: line 4 at byte {} has more than {} bytes",
                                             good.size(), engine::train::kMostLineBytes)));
  write_bytes(log, good + tail);
  write_bytes(timings, good_timings + tail);
  {
    const Record record(folder.path(), "id", at);
    EXPECT_EQ(record.notice(), "");
  }
  EXPECT_EQ(read_bytes(log), good);
  EXPECT_EQ(read_bytes(timings), good_timings);
  EXPECT_EQ(read_bytes(folder / "log.abandoned.jsonl"), tail);
  EXPECT_EQ(read_bytes(folder / "timings.abandoned.jsonl"), tail);
}

TEST(Record, SecondWriterIsRefused) {
  const ScratchFolder folder;
  const Record first(folder.path(), "id");
  EXPECT_THROW(Record(folder.path(), "id"), Error);
}

// Any byte of any line: the chain breaks at the latest at the head that the checkpoint keeps.
TEST(Record, EveryFlippedByteBreaksTheChain) {
  const ScratchFolder folder;
  const LogPosition at = write_lines(folder.path(), 1, 4);
  const std::filesystem::path log = folder.path() / "log.jsonl";
  const std::string good = read_bytes(log);
  EXPECT_EQ(check_log(log, &at), at);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    write_bytes(log, bad);
    EXPECT_THROW(check_log(log, &at), Error) << "byte " << i;
  }
}

TEST(Record, PlantedFaults) {
  const ScratchFolder folder;
  const LogPosition at = write_lines(folder.path(), 1, 4);
  const std::filesystem::path log = folder.path() / "log.jsonl";
  const std::string good = read_bytes(log);
  const std::size_t second = good.find('\n') + 1;
  const std::size_t third = good.find('\n', second) + 1;
  const std::string removed = good.substr(0, second) + good.substr(third);
  const std::string doubled = good.substr(0, third) + good.substr(second);
  const std::string swapped =
      good.substr(second, third - second) + good.substr(0, second) + good.substr(third);
  const std::string shortened = good.substr(0, good.rfind("\n", good.size() - 2) + 1);
  for (const std::string& bad : {removed, doubled, swapped, shortened, std::string()}) {
    write_bytes(log, bad);
    EXPECT_THROW(check_log(log, &at), Error) << bad;
    EXPECT_THROW(write_lines(folder.path(), 5, 5, at), Error) << "a resume goes on behind it";
    EXPECT_EQ(read_bytes(log), bad) << "a refusal changed the log";
  }
  // Rewritten with a chain that holds in itself: only the head that the checkpoint keeps tells.
  write_bytes(log, "");
  write_bytes(folder.path() / "timings.jsonl", "");
  const LogPosition forged = write_lines(folder.path(), 2, 5);
  EXPECT_EQ(check_log(log), forged);
  EXPECT_THROW(check_log(log, &at), Error);
}

}  // namespace
