#include "checks/fuzz/corpus.h"

#include <stdexcept>

#include "checks/model/released_config.h"
#include "checks/store/header_faults.h"
#include "checks/store/shard_files.h"

namespace checks {
namespace {

// What replaces what in the one accepted text of a target.
struct Edit {
  const char* name;
  const char* from;
  const char* to;
};

std::string edited(const std::string& text, const Edit& edit) {
  const std::size_t at = text.find(edit.from);
  if (at == std::string::npos || text.find(edit.from, at + 1) != std::string::npos) {
    throw std::logic_error(std::string(edit.name) + ": its text does not stand there once");
  }
  return std::string(text).replace(at, std::string(edit.from).size(), edit.to);
}

class Corpus {
 public:
  void accept(const char* target, const char* name, std::string bytes) {
    files.push_back({target, name, std::move(bytes), true});
  }
  void refuse(const char* target, const char* name, std::string bytes) {
    files.push_back({target, name, std::move(bytes), false});
  }
  void edits(const char* target, const std::string& right, const std::vector<Edit>& wrong) {
    accept(target, "right", right);
    for (const Edit& edit : wrong) refuse(target, edit.name, edited(right, edit));
    refuse(target, "CutByOneByte", right.substr(0, right.size() - 1));
    refuse(target, "Empty", "");
  }
  std::vector<CorpusFile> files;
};

void add_safetensors(Corpus& corpus) {
  const std::string right = safetensors(kHeader, 32);
  const auto wrong = [&](const char* name, std::string bytes) {
    corpus.refuse("safetensors", name, std::move(bytes));
  };
  const auto header_with = [](const Edit& edit) { return edited(kHeader, edit); };
  corpus.accept("safetensors", "right", right);
  for (const HeaderFault& fault : kHeaderFaults) {
    wrong(fault.name, safetensors(header_with({fault.name, fault.from, fault.to}), 32));
  }
  const std::string rest = right.substr(8);
  wrong("HeaderLengthHuge", length_field(~std::uint64_t{0}) + rest);
  wrong("HeaderLengthOfTheFile", length_field(right.size()) + rest);
  wrong("HeaderLengthOneShort", length_field(kHeader.size() - 1) + rest);
  wrong("HeaderLengthZero", length_field(0) + rest);
  wrong("Gap", safetensors(header_with({"Gap", "[24,32]", "[25,33]"}), 33));
  wrong("BytesBehindTheLast", right + '\0');
  wrong("StartsLate", safetensors(header_with({"StartsLate", "[0,24]", "[1,25]"}), 32));
  wrong("ShapeProductOverflows",
        safetensors(header_with({"Product", "[8]", "[4294967296,4294967296,8]"}), 32));
  wrong("OffsetsNearTheTop",
        safetensors(header_with({"Top", "[24,32]", "[9223372036854775800,9223372036854775807]"}),
                    32));
  wrong("CutByOneByte", right.substr(0, right.size() - 1));
  wrong("CutInTheLength", right.substr(0, 7));
  wrong("Empty", "");
  wrong("GitLfsPointer", "version https://git-lfs.github.com/spec/v1\noid sha256:" +
                             std::string(64, 'a') + "\nsize 17547264\n");
  wrong("HtmlPage", "<!DOCTYPE html><html><body>404: not found</body></html>\n");
}

void add_config(Corpus& corpus) {
  corpus.edits(
      "config", released_config().dump(1),
      {{"NotJson", "\"kimi_k3\"", "'kimi_k3'"},
       {"FieldTwice", "\"kv_lora_rank\": 512", "\"kv_lora_rank\": 512, \"kv_lora_rank\": 512"},
       {"Missing", "\"kv_lora_rank\": 512,", ""},
       {"Text", "\"kv_lora_rank\": 512", "\"kv_lora_rank\": \"512\""},
       {"Fraction", "\"kv_lora_rank\": 512", "\"kv_lora_rank\": 512.0"},
       {"Negative", "\"kv_lora_rank\": 512", "\"kv_lora_rank\": -512"},
       {"Huge", "\"kv_lora_rank\": 512", "\"kv_lora_rank\": 18446744073709551616"},
       {"LatentZero", "\"routed_expert_hidden_size\": 3584", "\"routed_expert_hidden_size\": 0"},
       {"LatentGroup", "\"routed_expert_hidden_size\": 3584",
        "\"routed_expert_hidden_size\": 3600"},
       {"LayerZero", "\"num_hidden_layers\": 93", "\"num_hidden_layers\": 0"},
       {"LayersMany", "\"num_hidden_layers\": 93", "\"num_hidden_layers\": 94"},
       {"ChosenMore", "\"num_experts\": 896", "\"num_experts\": 15"},
       {"Softmax", "\"moe_router_activation_func\": \"sigmoid\"",
        "\"moe_router_activation_func\": \"softmax\""},
       {"Activation", "\"hidden_act\": \"situ\"", "\"hidden_act\": \"silu\""},
       {"Rope", "\"mla_use_nope\": true", "\"mla_use_nope\": false"},
       {"BoundPositive", "\"gate_lower_bound\": -5.0", "\"gate_lower_bound\": 5.0"},
       {"GroupSize", "\"group_size\": 32", "\"group_size\": 16"}});
}

// The reader's target puts these beside a shard of kHeader.
void add_index(Corpus& corpus) {
  corpus.edits("index",
               R"({"metadata":{"total_size":32},"weight_map":{)"
               R"("first":"model.safetensors","second":"model.safetensors"}})",
               {{"WrongShard", "\"first\":\"model", "\"first\":\"other"},
                {"NameTwice", "\"first\"", "\"second\""},
                {"ClimbsOut", "\"second\":\"model", "\"second\":\"../model"},
                {"Absolute", "\"second\":\"model", "\"second\":\"/model"},
                {"TensorNotThere", "\"second\"", "\"third\""},
                {"NoMap", "\"weight_map\"", "\"weights\""},
                {"MapIsList", "\"weight_map\":{", "\"weight_map\":[{"},
                {"NotJson", "{\"metadata\"", "{metadata"}});
}

std::string digests_text() {
  const std::string digest(64, 'a');
  return "{\n\"format\": \"lazylora digests 1\",\n\"config_sha256\": \"" + std::string(64, 'c') +
         "\",\n\"shards\": [\n{\"file\": \"model.safetensors\", \"bytes\": 200, \"header_sha256\": "
         "\"" +
         digest +
         "\"}\n],\n\"tensors\": [\n{\"name\": \"first\", \"shard\": \"model.safetensors\", "
         "\"offset\": 168, \"bytes\": 24, \"sha256\": \"" +
         digest + "\"}\n]\n}\n";
}

void add_digests(Corpus& corpus) {
  // Without its last byte, a line's end, the text is the same.
  const std::string right = digests_text();
  corpus.edits("digests", right.substr(0, right.size() - 1),
               {{"OtherFormat", "digests 1", "digests 2"},
                {"FieldTwice", "\"offset\": 168", "\"offset\": 168, \"offset\": 168"},
                {"FieldMissing", "\"offset\": 168, ", ""},
                {"FieldUnknown", "\"offset\"", "\"place\""},
                {"NegativeBytes", "\"bytes\": 24", "\"bytes\": -24"},
                {"TensorsMissing", "\"tensors\"", "\"tensor\""}});
}

void add_adapter(Corpus& corpus) {
  const std::string header =
      R"({"__metadata__":{"alpha":"4","r":"2","targets":"q"},)"
      R"("layers.0.q.lora_A":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("layers.0.q.lora_B":{"dtype":"F32","shape":[1,2],"data_offsets":[24,32]}})";
  corpus.accept("adapter", "right", safetensors(header, 32));
  for (const Edit& edit :
       {Edit{"RankZero", "\"r\":\"2\"", "\"r\":\"0\""},
        Edit{"RankText", "\"r\":\"2\"", "\"r\":\"two\""},
        Edit{"RankOther", "\"r\":\"2\"", "\"r\":\"3\""},
        Edit{"AlphaMissing", "\"alpha\":\"4\",", ""},
        Edit{"AlphaNegative", "\"alpha\":\"4\"", "\"alpha\":\"-4\""},
        Edit{"AlphaNan", "\"alpha\":\"4\"", "\"alpha\":\"nan\""},
        Edit{"TargetNotListed", "\"targets\":\"q\"", "\"targets\":\"v\""},
        Edit{"NoPartner", "lora_B", "lora_C"},
        Edit{"LayerNegative", "layers.0.q.lora_A", "layers.-1.q.lora_A"},
        Edit{"HalfPrecision", R"("F32","shape":[1,2])", R"("F16","shape":[1,4])"},
        Edit{"ThreeExtents", "[1,2]", "[1,1,2]"}}) {
    corpus.refuse("adapter", edit.name, safetensors(edited(header, edit), 32));
  }
  const std::string right = safetensors(header, 32);
  corpus.refuse("adapter", "CutByOneByte", right.substr(0, right.size() - 1));
  corpus.refuse("adapter", "NoTensors",
                safetensors(R"({"__metadata__":{"alpha":"4","r":"2"}})", 0));
  corpus.refuse("adapter", "Empty", "");
}

// The first byte chooses the file of the run: manifest.json or a checkpoint's state.json.
void add_run(Corpus& corpus) {
  corpus.refuse("run", "ManifestEmptyObject", std::string(1, '\0') + "{}");
  corpus.refuse("run", "ManifestNotJson", std::string(1, '\0') + "{\"run_id\": }");
  corpus.refuse("run", "ManifestWrongTypes",
                std::string(1, '\0') + R"({"format":"lazylora run 1","run_id":7,"settings":[]})");
  corpus.refuse("run", "StateEmptyObject", "\1{}");
  corpus.refuse("run", "StateOtherDigest",
                "\1{\"format\":\"lazylora checkpoint 1\",\"sha256\":\"\"}");
  corpus.refuse("run", "StateDeep", "\1" + std::string(2000, '['));
  corpus.refuse("run", "AdapterEmpty", "\2");
  corpus.refuse("run", "MomentsText", "\3moments");
}

void add_pack(Corpus& corpus) {
  const std::string a(64, 'a'), b(64, 'b');
  const std::string right =
      R"({"format": "lazylora pack 1", "config_sha256": ")" + b +
      R"(", "checkpoint": [{"file": "model.safetensors", "bytes": 200, "header_sha256": ")" + a +
      R"("}], "copy": {"file": "pack.safetensors", "bytes": 4264, "header_sha256": ")" + b +
      R"("}, "tensors": [{"name": "first", "dtype": "F32", "shape": [2, 3], "shard": )" +
      R"("model.safetensors", "offset": 168, "sha256": ")" + a + R"("}]})";
  corpus.edits("pack", right,
               {{"OtherFormat", "pack 1", "pack 2"},
                {"FieldTwice", "\"offset\": 168", "\"offset\": 168, \"offset\": 168"},
                {"FieldMissing", "\"offset\": 168, ", ""},
                {"FieldUnknown", "\"offset\"", "\"place\""},
                {"NegativeOffset", "168", "-168"},
                {"FractionOffset", "168", "168.0"},
                {"DtypeUnknown", "F32", "F33"},
                {"ExtentNegative", "[2, 3]", "[-2, 3]"},
                {"ExtentBeyond63Bits", "[2, 3]", "[18446744073709551615, 3]"},
                {"ShapeIsNumber", "[2, 3]", "6"},
                {"FileIsNumber", "\"pack.safetensors\"", "7"},
                {"TensorsMissing", "\"tensors\"", "\"tensor\""},
                {"NotJson", "{\"format\"", "{format"}});
}

// Magic, version, SHA-256 and a digest; then a branch to a calendar, and one to a block of Bitcoin.
void add_ots(Corpus& corpus) {
  using namespace std::string_literals;
  const std::string magic = "\0OpenTimestamps\0\0Proof\0\xbf\x89\xe2\xe8\x84\xe8\x92\x94"s;
  const std::string start = magic + "\x01\x08"s + std::string(32, 'd');
  const std::string nonce = "\xf0\x05nonce\x08"s;  // append, and hash
  const std::string pending = "\0\x83\xdf\xe3\x0d\x2e\xf9\x0c\x8e\x0a\x09"s + "a.example"s;
  const std::string bitcoin = "\0\x05\x88\x96\x0d\x73\xd7\x19\x01\x03\xc0\xa2\x33"s;
  const std::string path = "\xf1\x02pq\x08\x08"s;  // put before, and hash twice
  corpus.accept("ots", "right", start + nonce + "\xff"s + pending + path + bitcoin);
  const auto wrong = [&](const char* name, std::string bytes) {
    corpus.refuse("ots", name, std::move(bytes));
  };
  wrong("Empty", "");
  wrong("OtherMagic", "\1"s + (start + bitcoin).substr(1));
  wrong("OtherVersion", magic + "\x02\x08"s + std::string(32, 'd') + bitcoin);
  wrong("OtherDigest", magic + "\x01\x02"s + std::string(20, 'd') + bitcoin);
  wrong("NoTimestamp", start);
  wrong("NoAttestation", start + nonce);
  wrong("BranchWithoutEnd", start + "\xff"s + bitcoin);
  wrong("UnknownOperation", start + "\x42"s + bitcoin);
  wrong("AppendNothing", start + "\xf0\0"s + bitcoin);
  wrong("AppendBeyondTheFile", start + "\xf0\x7f"s + bitcoin);
  wrong("NumberLongerThanNeedBe", start + "\xf0\x81\0n"s + bitcoin);
  wrong("NumberOf70Bits", start + "\xf0"s + std::string(9, '\xff') + "\x01"s + bitcoin);
  wrong("HeightWithMoreBehind", start + "\0\x05\x88\x96\x0d\x73\xd7\x19\x01\x04\xc0\xa2\x33\x01"s);
  wrong("AddressWithALineEnd",
        start + "\0\x83\xdf\xe3\x0d\x2e\xf9\x0c\x8e\x0a\x09"s + "a.exam\nle"s);
  wrong("BytesBehindTheLast", start + bitcoin + "\x08"s);
  wrong("CutByOneByte", (start + bitcoin).substr(0, (start + bitcoin).size() - 1));
}

void add_ids(Corpus& corpus) {
  corpus.accept("ids", "right", "1, 2,3\n999\t0\n");
  for (const auto& [name, bytes] :
       {std::pair{"Negative", "1,-2,3"}, std::pair{"Outside", "1,1000"},
        std::pair{"Fraction", "1,2.5"}, std::pair{"Hexadecimal", "0x10"},
        std::pair{"Huge", "18446744073709551617"}, std::pair{"Word", "1, two"},
        std::pair{"EmptyField", "1,,2"}, std::pair{"EmptyEnd", "1,2,\n"},
        std::pair{"Bom",
                  "\xEF\xBB\xBF"
                  "1"}}) {
    corpus.refuse("ids", name, bytes);
  }
}

}  // namespace

std::vector<CorpusFile> corpus() {
  Corpus corpus;
  add_safetensors(corpus);
  add_config(corpus);
  add_index(corpus);
  add_digests(corpus);
  add_adapter(corpus);
  add_run(corpus);
  add_pack(corpus);
  add_ots(corpus);
  add_ids(corpus);
  corpus.accept("activations", "WritesAndReads",
                std::string("\x00\x10\x03\x80\x10\x03\x80\x11\x03\x04\x20\x02\x84\x20\x02", 15));
  return std::move(corpus.files);
}

}  // namespace checks
