#include "checks/ops/reference_cases.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace checks::ops {
namespace {

using Names = std::initializer_list<std::pair<const char*, const char*>>;  // ours, theirs
using Borders = std::vector<std::int64_t>;

NamedTensor documents(const Borders& borders) {
  return {{static_cast<std::int64_t>(borders.size())}, {borders.begin(), borders.end()}};
}

class Reader {
 public:
  Reader(const std::filesystem::path& folder, std::string op, const std::string& file)
      : op_(std::move(op)), tensors_(read_safetensors(folder / (file + ".safetensors"))) {}

  // `up` is the upstream gradient's name, of an output that both call the same unless `output` is
  // given.
  ReferenceCase one(const std::string& id, NamedTensors settings, Names fixed, Names varied,
                    const std::string& up, const std::string& output = "") const {
    ReferenceCase r{op_, {id, std::move(settings), {}, {}}, {}};
    for (const auto& [ours, theirs] : fixed)
      r.inputs.fixed[ours] = at(tensors_, id + ".in." + theirs);
    for (const auto& [ours, theirs] : varied) {
      r.inputs.varied[ours] = at(tensors_, id + ".in." + theirs);
      const std::string gradient = id + ".grad." + theirs;
      if (tensors_.contains(gradient)) r.autograd[ours] = at(tensors_, gradient).data;
    }
    r.inputs.up[output.empty() ? up : output] = at(tensors_, id + ".up." + up);
    return r;
  }
  const NamedTensor& tensor(const std::string& name) const { return at(tensors_, name); }

 private:
  std::string op_;
  NamedTensors tensors_;
};

// Rows [k ; v] from two arrays of [.., heads, width].
NamedTensor interleaved(const NamedTensor& k, const NamedTensor& v) {
  const auto nope = static_cast<std::size_t>(k.shape.back());
  const auto value = static_cast<std::size_t>(v.shape.back());
  NamedTensor kv{{k.shape[0], k.shape[1], k.shape[2] + v.shape[2]}, {}};
  for (std::size_t row = 0; row * nope < k.data.size(); ++row) {
    const auto append = [&](const NamedTensor& from, std::size_t width) {
      const auto first = from.data.begin() + static_cast<std::ptrdiff_t>(row * width);
      kv.data.insert(kv.data.end(), first, first + static_cast<std::ptrdiff_t>(width));
    };
    append(k, nope);
    append(v, value);
  }
  return kv;
}

void add_mla(const std::filesystem::path& folder, std::vector<ReferenceCase>& all) {
  const Reader reader(folder, "mla", "mla_core");
  const std::pair<const char*, Borders> cases[] = {{"T1", {0, 1}},
                                                   {"T7", {0, 7}},
                                                   {"T33", {0, 33}},
                                                   {"packed13", {0, 4, 5, 13}},
                                                   {"peaky12", {0, 12}}};
  for (const auto& [name, borders] : cases) {
    const std::string id = name;
    const auto both = [&](const std::string& kind) {
      const std::string prefix = id + kind;
      return interleaved(reader.tensor(prefix + "k_nope"), reader.tensor(prefix + "v"));
    };
    const auto nope = static_cast<double>(reader.tensor(id + ".in.k_nope").shape[2]);
    ReferenceCase r = reader.one(id, {{"nope", setting(nope)}, {"documents", documents(borders)}},
                                 {}, {{"q", "q"}, {"kr", "kr"}}, "o");
    r.inputs.varied["kv"] = both(".in.");
    r.autograd["kv"] = both(".grad.").data;
    r.inputs.sparse = id == "T1";  // attends to itself: q and key have no gradient
    all.push_back(std::move(r));
  }
}

void add_kda(const std::filesystem::path& folder, std::vector<ReferenceCase>& all) {
  const std::pair<const char*, std::vector<const char*>> files[] = {
      {"kda_recurrence", {"T1", "T5", "T17", "T64", "T17_state", "packed17"}},
      {"kda_saturated", {"T64", "T65", "T129_state", "T129_mixed", "T96_channels"}}};
  for (const auto& [file, ids] : files) {
    const Reader reader(folder, "kda", file);
    for (const std::string id : ids) {
      const std::int64_t tokens = reader.tensor(id + ".in.q").shape[0];
      const bool is_packed = id == "packed17";
      ReferenceCase r = reader.one(
          id, {{"documents", documents(is_packed ? Borders{0, 6, 7, 17} : Borders{0, tokens})}}, {},
          {{"q", "q"}, {"k", "k"}, {"v", "v"}, {"g", "g"}, {"beta", "beta"}}, "o");
      const NamedTensor& last = reader.tensor(id + ".out.S_T");
      NamedTensor zero{last.shape, std::vector<double>(last.data.size(), 0.0)};
      const bool with_state = id.find("_state") != std::string::npos;
      r.inputs.varied["state"] = with_state ? reader.tensor(id + ".in.S0") : zero;
      r.inputs.up["state"] = with_state ? reader.tensor(id + ".up.S_T") : zero;
      if (with_state) r.autograd["state"] = reader.tensor(id + ".grad.S0").data;
      r.inputs.sparse = id == "T1";  // a first token has no gradient by its gate
      all.push_back(std::move(r));
    }
  }
}

void add_experts(const std::filesystem::path& folder, std::vector<ReferenceCase>& all) {
  const auto add = [&](const Reader& reader, const std::string& id, int experts,
                       const std::string& prefix, const std::string& up, NamedTensor index) {
    ReferenceCase r = reader.one(id,
                                 {{"experts", setting(experts)},
                                  {"is_mxfp4", setting(1)},
                                  {"beta_gate", setting(4)},
                                  {"beta_linear", setting(25)}},
                                 {},
                                 {{"z", "z"},
                                  {"weight", "w"},
                                  {"expert_gate.lora_A", "expert_gate.lora_A"},
                                  {"expert_gate.lora_B", "expert_gate.lora_B"},
                                  {"expert_up.lora_A", "expert_up.lora_A"},
                                  {"expert_up.lora_B", "expert_up.lora_B"},
                                  {"expert_down.lora_A", "expert_down.lora_A"},
                                  {"expert_down.lora_B", "expert_down.lora_B"}},
                                 up, "routed");
    r.inputs.fixed["index"] = std::move(index);
    auto& weight = r.inputs.varied["weight"].shape;
    if (weight.size() == 1) weight.push_back(1);  // one expert: [T]
    for (int e = 0; e < experts; ++e) {
      for (const std::string matrix : {"w1", "w2", "w3"}) {
        for (const std::string part : {".weight_packed", ".weight_scale"}) {
          const std::string theirs =
              (prefix.empty() ? "" : prefix + std::to_string(e) + ".") + matrix + part;
          r.inputs.fixed[matrix + "." + std::to_string(e) + part] =
              reader.tensor(id + ".in." + theirs);
        }
      }
    }
    all.push_back(std::move(r));
  };
  const Reader one(folder, "experts", "expert_lora");
  for (const std::string id : {"T1", "T9"}) {
    const std::int64_t tokens = one.tensor(id + ".in.z").shape[0];
    add(one, id, 1, "", "out",
        {{tokens, 1}, std::vector<double>(static_cast<std::size_t>(tokens), 0.0)});
  }
  const Reader sum(folder, "experts", "moe_routed_sum");
  add(sum, "T7", 4, "experts.", "acc", sum.tensor("T7.in.idx"));
}

void add_rows(const std::filesystem::path& folder, std::vector<ReferenceCase>& all) {
  const Reader rms(folder, "rmsnorm", "rmsnorm");
  for (const char* id : {"normal", "small", "large", "heads"}) {
    all.push_back(rms.one(id, {{"eps", setting(1e-5)}}, {{"w", "w"}}, {{"x", "x"}}, "y"));
  }
  const Reader l2(folder, "l2norm", "l2norm");
  for (const std::string id : {"normal", "small"}) {
    const auto width = static_cast<double>(l2.tensor(id + ".in.x").shape[1]);
    all.push_back(
        l2.one(id, {{"width", setting(width)}, {"scale", setting(1)}}, {}, {{"x", "x"}}, "y"));
  }
  const Reader situ(folder, "situ_glu", "situ_glu");
  for (const char* id : {"normal", "wide", "saturated"}) {
    all.push_back(situ.one(id, {{"beta_gate", setting(4)}, {"beta_linear", setting(25)}}, {},
                           {{"a", "g"}, {"u", "u"}}, "y"));
  }
  const Reader gate(folder, "kda_gate", "decay_gate");
  for (const std::string id : {"d_g", "extreme_d_g"}) {
    const auto& shape = gate.tensor(id + ".in.z").shape;
    all.push_back(gate.one(id,
                           {{"heads", setting(static_cast<double>(shape[1]))},
                            {"width", setting(static_cast<double>(shape[2]))},
                            {"bound", setting(-5)}},
                           {{"a_log", "A_log"}, {"dt_bias", "dt_bias"}}, {{"z", "z"}}, "g"));
  }
  const Reader router(folder, "router", "router");
  for (const auto& [id, chosen, renormalize, scaling] : {std::tuple("renorm", 4, 1, 1.0),
                                                         {"renorm_rs2.5", 4, 1, 2.5},
                                                         {"no_renorm", 4, 0, 1.0},
                                                         {"top1", 1, 1, 1.0}}) {
    all.push_back(router.one(id,
                             {{"chosen", setting(chosen)},
                              {"renormalize", setting(renormalize)},
                              {"scaling", setting(scaling)}},
                             {{"gate", "W"}, {"bias", "bias"}}, {{"x", "x"}}, "w", "weight"));
  }
  const Reader loss(folder, "cross_entropy", "cross_entropy");
  for (const std::string id : {"normal", "large", "one_target"}) {
    const auto& targets = loss.tensor(id + ".in.targets").data;
    const auto trained =
        std::count_if(targets.begin(), targets.end(), [](double t) { return t >= 0; });
    ReferenceCase r = loss.one(id, {{"count", setting(static_cast<double>(trained))}},
                               {{"targets", "targets"}}, {{"logits", "logits"}}, "loss");
    r.inputs.sparse = true;  // masked rows are zero, and in one_target nearly all are
    all.push_back(std::move(r));
  }
}

void add_rest(const std::filesystem::path& folder, std::vector<ReferenceCase>& all) {
  const Reader conv(folder, "short_conv", "short_conv");
  const std::pair<const char*, Borders> cases[] = {
      {"T1", {0, 1}}, {"T2", {0, 2}}, {"T9", {0, 9}}, {"packed11", {0, 5, 6, 8, 11}}};
  for (const auto& [id, borders] : cases) {
    all.push_back(
        conv.one(id, {{"documents", documents(borders)}}, {{"w", "w"}}, {{"x", "x"}}, "y"));
  }
  const Reader res(folder, "attn_res", "attn_res_aggregate");
  for (const char* id : {"bank0", "bank1", "bank8", "bank8_scales", "bank3_peaky"}) {
    all.push_back(res.one(id, {{"eps", setting(1e-5)}}, {{"norm", "nw"}, {"proj", "pw"}},
                          {{"sources", "sources"}}, "y"));
  }
}

}  // namespace

std::vector<ReferenceCase> reference_cases(const std::filesystem::path& grad_ops) {
  std::vector<ReferenceCase> all;
  for (const auto add : {add_rows, add_rest, add_mla, add_kda, add_experts}) add(grad_ops, all);
  return all;
}

}  // namespace checks::ops
