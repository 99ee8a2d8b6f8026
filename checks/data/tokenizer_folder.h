#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/data/tokenizer.h"
#include "engine/model/shapes.h"
#include "engine/model/vocabulary.h"

namespace checks {

// What an Error says; empty if there is none.
inline std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const engine::base::Error& error) {
    return error.what();
  }
  return "";
}

// As make-model writes it; learned once a program.
inline const std::string& ranks_text(std::int64_t vocabulary) {
  static std::map<std::int64_t, std::string> made;
  std::string& text = made[vocabulary];
  if (text.empty()) text = engine::model::vocabulary_file(vocabulary);
  return text;
}

// The files of a checkpoint that text needs, as make-model writes them, for one test.
class TokenizerFolder {
 public:
  explicit TokenizerFolder(std::int64_t vocabulary = 8192) : vocabulary_(vocabulary) {
    write("tiktoken.model", ranks_text(vocabulary));
    write("tokenizer_config.json", engine::model::tokenizer_config_json(vocabulary));
    engine::model::Config config = engine::model::checkpoint_shape("tiny").config;
    config.vocabulary = vocabulary;
    write("config.json", engine::model::config_json(config));
  }

  void write(const std::string& name, const std::string& bytes) {
    write_bytes(folder_ / name, bytes);
  }
  std::string read(const std::string& name) const { return read_bytes(folder_ / name); }
  // `file` with the first `from` made into `to`, which must be there.
  void edit(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = read(file);
    const std::size_t at = text.find(from);
    if (at == std::string::npos) throw std::runtime_error(file + " does not say " + from);
    write(file, text.replace(at, from.size(), to));
  }
  engine::data::Tokenizer open() const { return {folder_.path(), vocabulary_}; }
  std::filesystem::path path() const { return folder_.path(); }
  std::int32_t first_reserved() const { return static_cast<std::int32_t>(vocabulary_ - 256); }

 private:
  ScratchFolder folder_;
  std::int64_t vocabulary_;
};

}  // namespace checks
