#include "checks/adapter/llama_adapter.h"

#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>

namespace checks {
namespace {

class Bytes {
 public:
  explicit Bytes(const std::string& bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    T value{};
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::string text() {
    const auto size = get<std::uint64_t>();
    if (size > bytes_.size()) throw std::runtime_error("a text longer than the file");
    return {take(size), static_cast<std::size_t>(size)};
  }
  void seek(std::uint64_t at) {
    if (at > bytes_.size()) throw std::runtime_error("the data section begins behind the end");
    at_ = at;
  }
  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }

 private:
  const char* take(std::uint64_t size) {
    if (size > bytes_.size() - at_) throw std::runtime_error("cut short");
    at_ += size;
    return bytes_.data() + at_ - size;
  }
  const std::string& bytes_;
  std::uint64_t at_ = 0;
};

std::uint64_t padded(std::uint64_t size) { return (size + 31) & ~std::uint64_t{31}; }

struct Info {
  std::string name;
  LlamaTensor tensor;
  bool bf16 = false;
  std::uint64_t offset = 0, bytes = 0;
};

Info read_info(Bytes& in) {
  Info info;
  info.name = in.text();
  if (info.name.size() >= 64) throw std::runtime_error(info.name + ": name of 64 bytes or more");
  const auto axes = in.get<std::uint32_t>();
  if (axes < 1 || axes > 4) throw std::runtime_error(info.name + ": number of dimensions");
  std::int64_t values = 1;
  for (std::uint32_t i = 0; i < axes; ++i) {
    info.tensor.ne[i] = in.get<std::int64_t>();
    if (info.tensor.ne[i] < 1 ||
        info.tensor.ne[i] > std::numeric_limits<std::int64_t>::max() / values) {
      throw std::runtime_error(info.name + ": extent");
    }
    values *= info.tensor.ne[i];
  }
  const auto type = in.get<std::int32_t>();
  if (type != 0 && type != 30) throw std::runtime_error(info.name + ": neither F32 nor BF16");
  info.bf16 = type == 30;
  info.bytes = static_cast<std::uint64_t>(values) * (info.bf16 ? 2 : 4);
  info.offset = in.get<std::uint64_t>();
  return info;
}

// Checks what can be checked without the model: both there, the rank the same in both.
void add_pair(LlamaAdapter& adapter, std::map<std::string, LlamaTensor>& tensors) {
  for (auto& [name, tensor] : tensors) {
    const std::string end = name.substr(name.size() < 7 ? 0 : name.size() - 7);
    if (end != ".lora_a" && end != ".lora_b") throw std::runtime_error(name + ": suffix");
    const std::string stem = name.substr(0, name.size() - 7);
    const auto other = tensors.find(stem + (end == ".lora_a" ? ".lora_b" : ".lora_a"));
    if (other == tensors.end()) throw std::runtime_error(stem + ": one of the two is missing");
    if (end == ".lora_b") continue;
    if (tensor.ne[1] != other->second.ne[0]) throw std::runtime_error(stem + ": not transposed");
    adapter.pairs[stem] = {std::move(tensor), std::move(other->second)};
  }
}

}  // namespace

LlamaAdapter read_llama_adapter(const std::string& bytes) {
  Bytes in(bytes);
  if (in.get<std::array<char, 4>>() != std::array{'G', 'G', 'U', 'F'}) {
    throw std::runtime_error("no GGUF");
  }
  if (in.get<std::uint32_t>() != 3) throw std::runtime_error("version");
  LlamaAdapter adapter;
  adapter.stated_tensors = in.get<std::uint64_t>();
  const auto keys = in.get<std::uint64_t>();
  std::map<std::string, std::string> texts;
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < keys; ++i) {
    const std::string key = in.text();
    if (key.empty() || !seen.insert(key).second) throw std::runtime_error(key + ": key twice");
    const auto type = in.get<std::uint32_t>();
    if (type == 8) {
      texts[key] = in.text();
    } else if (type == 6 && key == "adapter.lora.alpha") {
      adapter.alpha = in.get<float>();
    } else {
      throw std::runtime_error(key + ": a key that no adapter of ours has");
    }
  }
  if (texts["general.type"] != "adapter") throw std::runtime_error("general.type");
  if (texts["adapter.type"] != "lora") throw std::runtime_error("adapter.type");
  if (!(adapter.alpha > 0.0f)) throw std::runtime_error("adapter.lora.alpha");
  adapter.architecture = texts["general.architecture"];

  std::vector<Info> infos;
  for (std::uint64_t i = 0; i < adapter.stated_tensors; ++i) infos.push_back(read_info(in));
  in.seek(padded(in.at()));
  std::map<std::string, LlamaTensor> tensors;
  std::uint64_t next = 0;
  for (Info& info : infos) {
    if (info.offset != next) throw std::runtime_error(info.name + ": offset");
    const std::uint64_t start = in.at();
    if (info.bytes > in.left()) throw std::runtime_error(info.name + ": cut short");
    for (std::uint64_t i = 0; i < info.bytes / (info.bf16 ? 2 : 4); ++i) {
      info.tensor.values.push_back(
          info.bf16 ? std::bit_cast<float>(std::uint32_t{in.get<std::uint16_t>()} << 16)
                    : in.get<float>());
    }
    next += padded(info.bytes);
    in.seek(start + padded(info.bytes));
    if (!tensors.emplace(info.name, std::move(info.tensor)).second) {
      throw std::runtime_error(info.name + ": twice");
    }
  }
  if (in.left() != 0) throw std::runtime_error("bytes behind the last tensor");
  add_pair(adapter, tensors);
  return adapter;
}

}  // namespace checks
