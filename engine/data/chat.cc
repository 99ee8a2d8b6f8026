#include "engine/data/chat.h"

#include "engine/base/error.h"
#include "engine/data/strict_json.h"
#include "engine/store/file.h"

namespace engine::data {

namespace {

using base::Error;
using nlohmann::json;

constexpr std::uint64_t kMostConfigBytes = 64'000'000;

// The id of a mark, which has its place behind the ranks.
std::int32_t mark(const Tokenizer& tokenizer, std::int32_t place, const char* name) {
  const std::int32_t id = tokenizer.special().first() + place;
  if (tokenizer.special().name(id) != name) {
    throw Error("{}: id {} is {}, the chat form of kimi_k3 has {} there",
                (tokenizer.folder() / "tokenizer_config.json").string(), id,
                tokenizer.special().name(id), name);
  }
  return id;
}

bool names(const json& value, std::int32_t id) {
  if (!value.is_array()) return value == id;
  for (const json& one : value) {
    if (one == id) return true;
  }
  return false;
}

}  // namespace

ChatForm::ChatForm(const Tokenizer& tokenizer, const std::filesystem::path& folder)
    : tokenizer_(&tokenizer) {
  const std::string file = (folder / "config.json").string();
  const json config = parse_strictly(store::read_text(file, kMostConfigBytes), file);
  if (!config.is_object()) throw Error("{}: is {}, not an object", file, shown(config));
  // A configuration of the text part alone bears the older family's name or none.
  const json type = config.value("model_type", json());
  const bool alone = !config.contains("text_config") && (type == "kimi_linear" || type.is_null());
  if (type != "kimi_k3" && !alone) {
    throw Error("{}: model_type is {}: the chat form here is that of \"kimi_k3\"", file,
                shown(type));
  }
  end_of_message_ = mark(tokenizer, 2, "<|end_of_msg|>");
  open_ = mark(tokenizer, 3, "<|open|>");
  close_ = mark(tokenizer, 4, "<|close|>");
  separator_ = mark(tokenizer, 5, "<|sep|>");
  if (const auto eos = config.find("eos_token_id");
      eos != config.end() && !eos->is_null() && !names(*eos, end_of_message_)) {
    throw Error("{}: eos_token_id is {}, but messages end with <|end_of_msg|>, id {}", file,
                shown(*eos), end_of_message_);
  }
}

Exchange ChatForm::exchange(std::string_view question, std::string_view answer,
                            std::string_view where) const {
  Exchange made;
  std::uint8_t trained = 0;
  const auto control = [&](std::int32_t id) {
    made.ids.push_back(id);
    made.trained.push_back(trained);
  };
  const auto text = [&](std::string_view segment) {
    const auto ids = tokenizer_->encode(segment, where);
    made.ids.insert(made.ids.end(), ids.begin(), ids.end());
    made.trained.insert(made.trained.end(), ids.size(), trained);
  };
  const auto opened = [&](std::string_view tag) {
    control(open_);
    text(tag);
    control(separator_);
  };
  const auto closed = [&](std::string_view tag) {
    control(close_);
    text(tag);
    control(separator_);
  };
  opened("message role=\"user\"");
  text(question);
  closed("message");
  control(end_of_message_);
  opened("message role=\"assistant\"");
  opened("think");
  closed("think");
  opened("response");
  trained = 1;
  text(answer);
  closed("response");
  closed("message");
  control(end_of_message_);
  return made;
}

}  // namespace engine::data
