#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/sha256.h"
#include "engine/data/build_set.h"
#include "engine/store/durable.h"

namespace engine::data {

struct FileDigest {
  std::uint64_t bytes = 0;
  std::string sha256;
};

// A durable file and the digest of what was written.
class DigestedFile {
 public:
  explicit DigestedFile(const std::filesystem::path& path) : file_(path) {}
  void write(std::string_view bytes) {
    file_.write(std::as_bytes(std::span(bytes)));
    hash_.update(bytes);
  }
  FileDigest commit() {
    file_.commit();
    return {file_.size(), hash_.hex()};
  }

 private:
  store::DurableFile file_;
  base::Sha256 hash_;
};

// Where a set came from and what was written of it.
struct SetSource {
  std::uint64_t bytes = 0;  // of the records' file
  std::string sha256;
  std::vector<std::string> not_in;  // digests of other sets
  FileDigest sequences;
  FileDigest records;
};

// One line of records.jsonl.
struct RecordRow {
  std::string digest;
  std::int64_t line = 0;
  std::int64_t sequence = 0;
  std::int64_t ids = 0;
  std::int64_t trained = 0;
  std::string category;
};
std::string record_row(const RecordRow& row);

// The text of manifest.json.
std::string set_manifest(const BuildSettings& settings, const BuildReport& report,
                         const SetSource& source, const Tokenizer& tokenizer);

}  // namespace engine::data
