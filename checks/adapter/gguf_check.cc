#include <cstring>

#include "checks/adapter/exports.h"
#include "checks/adapter/llama_adapter.h"
#include "checks/engine_run.h"
#include "engine/adapter/export.h"
#include "engine/adapter/gguf.h"
#include "engine/base/error.h"

namespace {

using checks::AdapterCase;
using checks::as_llama;
using checks::difference;
using checks::llama_deltas;
using checks::read_bytes;
using checks::read_llama_adapter;
using checks::write_bytes;
using testing::HasSubstr;
namespace fs = std::filesystem;

using Gguf = AdapterCase;

constexpr std::size_t kCountAt = 8;  // magic, version, then the number of tensors

// The change of every tensor of llama.cpp's model is that of the checkpoint's matrices, put into
// the form that its conversion of the checkpoint gives them.
TEST_F(Gguf, ChangesTheConvertedModelAsTheNativeAdapterChangesTheCheckpoint) {
  checks::Engine engine(shared_->model);
  const auto& config = engine.config();
  const checks::Deltas wanted =
      as_llama(shared_->native, shared_->frozen, config.mla_heads, config.nope_width);
  const fs::path file = exported("f32", {"--format", "gguf"}) / "adapter.gguf";
  EXPECT_EQ(difference(llama_deltas(file), wanted), "");
  const checks::LlamaAdapter read = read_llama_adapter(read_bytes(file));
  EXPECT_EQ(read.architecture, "kimi-k3");
  EXPECT_EQ(read.alpha, 7.0f);
  const auto& gate = read.pairs.at("blk.5.ffn_gate_exps.weight");
  EXPECT_EQ(gate.a.ne, (std::array<std::int64_t, 4>{config.latent, 3, config.experts, 1}));
  EXPECT_EQ(gate.b.ne, (std::array<std::int64_t, 4>{3, config.inner, config.experts, 1}));
  const auto& query = read.pairs.at("blk.0.attn_q.weight");
  EXPECT_EQ(query.a.ne, (std::array<std::int64_t, 4>{config.hidden, 3, 1, 1}));
  EXPECT_EQ(query.b.ne, (std::array<std::int64_t, 4>{3, config.kda_inner(), 1, 1}));
}

// D9 (ggml-org/llama.cpp#26185): the count in the header is the number of tensors written.
TEST_F(Gguf, D9_CountInTheHeader) {
  const fs::path file = exported("f32", {"--format", "gguf"}) / "adapter.gguf";
  const std::string whole = read_bytes(file);
  const checks::LlamaAdapter read = read_llama_adapter(whole);
  EXPECT_EQ(read.stated_tensors, 2 * read.pairs.size());
  for (const int change : {-1, 1, -2}) {
    std::string bytes = whole;
    std::uint64_t count = 0;
    std::memcpy(&count, bytes.data() + kCountAt, sizeof(count));
    count += static_cast<std::uint64_t>(change);
    std::memcpy(bytes.data() + kCountAt, &count, sizeof(count));
    write_bytes(file, bytes);
    EXPECT_THAT(verify(file.parent_path()), HasSubstr(file.string())) << change;
    EXPECT_ANY_THROW(read_llama_adapter(bytes)) << change;
  }
  std::string bytes = whole;
  std::memset(bytes.data() + kCountAt, 0xFF, 8);
  write_bytes(file, bytes);
  EXPECT_THAT(verify(file.parent_path()), HasSubstr("18446744073709551615 tensors do not fit"));
}

// llama.cpp computes float(alpha) / float(r) where the engine has float(alpha / r).
TEST(GgufAlpha, QuotientHasTheBitsOfTheScaleOrIsRefused) {
  using engine::adapter::gguf_alpha;
  int refused = 0, moved = 0;
  for (const std::int64_t rank : {1, 2, 3, 5, 7, 8, 12, 16, 24, 96, 255}) {
    for (int i = 1; i <= 4000; ++i) {
      const double alpha = 0.013 * i;
      const auto wanted = static_cast<float>(alpha / static_cast<double>(rank));
      try {
        const float stored = gguf_alpha(alpha, rank);
        ASSERT_EQ(stored / static_cast<float>(rank), wanted) << alpha << ' ' << rank;
        moved += stored != static_cast<float>(alpha) ? 1 : 0;
      } catch (const engine::base::Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("divides in float32"));
        ++refused;
      }
      ASSERT_EQ(gguf_alpha(i, rank), static_cast<float>(i));  // what a float holds always serves
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(moved, 0);
  EXPECT_GT(gguf_alpha(1e-60, 4), 0.0f);  // a quotient of 0, but an alpha of 0 is a scale of 1
  EXPECT_THROW(gguf_alpha(1e60, 4), engine::base::Error);
}

// Any byte of a header changed: refused, or tensors that lie where they lay (a name's letter, a key's
// value); never a crash.
TEST(GgufHeader, AnyByte) {
  const checks::ScratchFolder scratch;
  const std::vector<std::pair<std::string, engine::adapter::GgufValue>> keys = {
      {"general.type", "adapter"}, {"adapter.lora.alpha", 7.0f}, {"general.alignment", 32u}};
  // Tensors that fill their places, so that a smaller extent leaves a gap.
  const std::string values(4 * 24, '\1');
  engine::adapter::GgufWriter writer(scratch / "a", keys,
                                     {{"x.lora_a", engine::base::Dtype::kF32, {3, 8}},
                                      {"x.lora_b", engine::base::Dtype::kF32, {8, 3}}});
  for (int i = 0; i < 2; ++i) writer.append(std::as_bytes(std::span(values)));
  writer.finish();
  const std::string whole = read_bytes(scratch / "a");
  const auto places_of = [](const auto& read) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places;  // offset and bytes
    for (const auto& tensor : read.tensors) places.emplace_back(tensor.offset, tensor.bytes);
    return places;
  };
  const auto unchanged = places_of(engine::adapter::read_gguf(engine::store::File(scratch / "a")));
  ASSERT_EQ(unchanged.size(), 2u);
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int bits : {1, 64, 255}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ bits);
      write_bytes(scratch / "b", bytes);
      try {
        const auto read = engine::adapter::read_gguf(engine::store::File(scratch / "b"));
        EXPECT_EQ(places_of(read), unchanged) << at;
      } catch (const engine::base::Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 200);
}

// Two tensors, 96 and 84 bytes, laid for `laid`, in a file that says `stated`; `fill` moves the
// header's end.
std::string aligned_file(std::uint32_t stated, std::size_t laid, std::size_t fill) {
  std::string bytes = "GGUF";
  const auto put = [&](auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto text = [&](const std::string& value) {
    put(std::uint64_t{value.size()});
    bytes += value;
  };
  const auto pad = [&] { bytes.resize((bytes.size() + laid - 1) / laid * laid); };
  put(std::uint32_t{3});
  put(std::uint64_t{2});
  put(std::uint64_t{2});
  text("general.alignment");
  put(std::uint32_t{4});
  put(stated);
  text("fill");
  put(std::uint32_t{8});
  text(std::string(fill, 'f'));
  for (const std::int64_t rows : {8, 7}) {
    text(rows == 8 ? "x.lora_a" : "x.lora_b");
    put(std::uint32_t{2});
    put(std::int64_t{3});
    put(rows);
    put(std::uint32_t{0});
    put(std::uint64_t{rows == 8 ? 0 : (96 + laid - 1) / laid * laid});
  }
  pad();
  bytes.append(96, 'a');
  pad();
  return bytes.append(84, 'b');
}

// Another writer may align otherwise: the header's end and every tensor's are then padded to that.
TEST(GgufHeader, AlignmentIsWhatTheFileSays) {
  const checks::ScratchFolder scratch;
  const auto read = [&](const std::string& bytes) {
    write_bytes(scratch / "a", bytes);
    return engine::adapter::read_gguf(engine::store::File(scratch / "a")).tensors;
  };
  for (const std::uint32_t alignment : {8u, 32u, 64u, 256u}) {
    for (std::size_t fill = 0; fill < 256; fill += 17) {
      const std::string bytes = aligned_file(alignment, alignment, fill);
      const auto tensors = read(bytes);
      ASSERT_EQ(tensors.size(), 2u);
      ASSERT_EQ(bytes.substr(tensors[0].offset, tensors[0].bytes), std::string(96, 'a'))
          << alignment << ' ' << fill;
      ASSERT_EQ(bytes.substr(tensors[1].offset, tensors[1].bytes), std::string(84, 'b'))
          << alignment << ' ' << fill;
    }
  }
  EXPECT_ANY_THROW(read(aligned_file(64, 32, 0)));
  EXPECT_ANY_THROW(read(aligned_file(32, 64, 0)));
  for (const std::uint32_t none : {0u, 24u, 33u}) {
    try {
      read(aligned_file(none, 32, 0));
      ADD_FAILURE() << none;
    } catch (const engine::base::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("general.alignment is no power of two"));
    }
  }
}

TEST_F(Gguf, PlantedFaults) {
  const fs::path folder = exported("f32", {"--format", "gguf"});
  const fs::path file = folder / "adapter.gguf";
  const std::string whole = read_bytes(file);
  ASSERT_EQ(verify(folder), "");
  checks::Engine engine(shared_->model);
  const checks::Deltas wanted = as_llama(shared_->native, shared_->frozen,
                                         engine.config().mla_heads, engine.config().nope_width);
  // Same length, so that nothing else moves.
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    EXPECT_EQ(from.size(), to.size());
    const std::size_t at = bytes.find(from);
    if (at == bytes.npos) return from + " is not there";
    bytes.replace(at, from.size(), to);
    write_bytes(file, bytes);
    const std::string message = verify(folder);
    std::string loaded = "refused";
    try {
      loaded = difference(llama_deltas(file), wanted);
    } catch (const std::exception&) {
    }
    EXPECT_NE(loaded, "") << from;
    return message;
  };
  EXPECT_THAT(refused("adapter.type", "adapter.tape"), HasSubstr("no key adapter.type"));
  EXPECT_THAT(refused("blk.5.attn_q.weight.lora_a", "blk.5.attn_q.weight.lora_b"),
              HasSubstr("twice"));
  EXPECT_THAT(refused("blk.5.ffn_gate_exps", "blk.6.ffn_gate_exps"), HasSubstr("twice"));
  EXPECT_THAT(refused("blk.5.ffn_gate_exps", "blk.5.ffn_gate_expz"), HasSubstr("no tensor of the"));
  EXPECT_THAT(refused("blk.5.attn_q.weight.lora_a", "blk.5.attn_o.weight.lora_a"),
              HasSubstr("blk.5.attn_o"));
  EXPECT_THAT(refused("blk.5.attn_q.weight.lora_a", "blk.5.attn_q.weight.lora_c"),
              HasSubstr("neither in .lora_a"));
  const auto number = [](float value) {
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &value, 4);
    return "adapter.lora.alpha" + std::string("\6\0\0\0", 4) + bytes;
  };
  EXPECT_THAT(refused(number(7.0f), number(21.0f)), HasSubstr("alpha/r = 7/3"));
  EXPECT_THAT(refused(number(7.0f), number(0.0f)), HasSubstr("adapter.lora.alpha is 0"));
  // The first value of the last tensor.
  std::string bytes = whole;
  const auto header =
      engine::adapter::read_gguf((write_bytes(file, whole), engine::store::File(file)));
  bytes[header.tensors.back().offset + 1] =
      static_cast<char>(bytes[header.tensors.back().offset + 1] ^ 1);
  write_bytes(file, bytes);
  EXPECT_THAT(verify(folder), HasSubstr(header.tensors.back().name + ": value 0"));
  EXPECT_NE(difference(llama_deltas(file), wanted), "");
}

}  // namespace
