#include "checks/ops/fixture_faults.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace checks::ops {
namespace {

using Tensors = NamedTensors;
using Before = std::function<void(NamedTensor&)>;

// Changes one input, in the cases that have it.
FixtureFault input(std::string name, std::string which, Before change) {
  return {std::move(name),
          [which, change](Tensors& tensors, const std::string& id) {
            const auto found = tensors.find(id + ".in." + which);
            if (found != tensors.end()) change(found->second);
          },
          nullptr};
}

FixtureFault exchanged(std::string name, std::string one, std::string other) {
  return {std::move(name),
          [one, other](Tensors& tensors, const std::string& id) {
            const auto first = tensors.find(id + ".in." + one);
            const auto second = tensors.find(id + ".in." + other);
            if (first != tensors.end()) std::swap(first->second, second->second);
          },
          nullptr};
}

// Changes one result by a factor.
FixtureFault result(std::string name, std::string which,
                    std::function<double(const Tensors&, const std::string&)> factor) {
  return {std::move(name), nullptr,
          [which, factor](Values<double>& values, const Tensors& tensors, const std::string& id) {
            for (double& value : values.at(which)) value *= factor(tensors, id);
          }};
}

Before set_to(double value) {
  return [value](NamedTensor& t) { std::fill(t.data.begin(), t.data.end(), value); };
}
Before times(double factor) {
  return [factor](NamedTensor& t) {
    for (double& value : t.data) value *= factor;
  };
}
// One document instead of several.
void merge(NamedTensor& borders) {
  borders.data = {borders.data.front(), borders.data.back()};
  borders.shape = {2};
}
void reverse_rows(NamedTensor& t) {
  for (auto row = t.data.begin(); row != t.data.end(); row += t.shape.back()) {
    std::reverse(row, row + t.shape.back());
  }
}
void rotate(NamedTensor& t) { std::rotate(t.data.begin(), t.data.begin() + 1, t.data.end()); }
void swap_nibbles(NamedTensor& t) {
  for (double& value : t.data) {
    const int byte = static_cast<int>(value);
    value = (byte >> 4) | ((byte & 15) << 4);
  }
}
void drop_last_column(NamedTensor& t) {
  const auto width = static_cast<std::size_t>(t.shape.back());
  for (std::size_t i = width - 1; i < t.data.size(); i += width) t.data[i] = 0;
}

double root_of_width(const Tensors& tensors, const std::string& id) {
  return std::sqrt(static_cast<double>(at(tensors, id + ".in.x").shape.back()));
}

// The gradient of `which` element by element from up, output and the case's own tensors.
FixtureFault gradient(
    std::string name, const std::string& which,
    std::function<double(const Tensors&, const std::string&, double, std::size_t)> wrong) {
  return {std::move(name), nullptr,
          [which, wrong](Values<double>& values, const Tensors& tensors, const std::string& id) {
            auto& d = values.at("grad." + which);
            for (std::size_t i = 0; i < d.size(); ++i) d[i] = wrong(tensors, id, d[i], i);
          }};
}
double tensor_value(const Tensors& tensors, const std::string& key, std::size_t i) {
  return at(tensors, key).data.at(i);
}

// y / x is what a norm multiplies by.
FixtureFault no_projection() {
  return {"no projection in the gradient", nullptr,
          [](Values<double>& values, const Tensors& t, const std::string& id) {
            const auto& x = at(t, id + ".in.x").data;
            const auto& up = at(t, id + ".up.y").data;
            for (std::size_t i = 0; i < x.size(); ++i) {
              values.at("grad.x")[i] = up[i] * values.at("out.y")[i] / x[i];
            }
          }};
}

std::vector<FixtureFault> product_faults(const std::string& weight) {
  return {input("last column dropped", "x", drop_last_column),
          input("rows of the weight rotated", weight, rotate)};
}

}  // namespace

std::map<std::string, std::vector<FixtureFault>> fixture_faults() {
  std::map<std::string, std::vector<FixtureFault>> faults;
  faults["rmsnorm"] = {
      result("sum instead of mean", "out.y",
             [](const Tensors& t, const std::string& id) { return 1 / root_of_width(t, id); }),
      input("no eps", "eps", set_to(0)), input("no weight", "w", set_to(1)), no_projection()};
  faults["l2norm"] = {result("mean instead of sum", "out.y", root_of_width),
                      input("scale twice", "scale", times(double{0.3f})), no_projection()};
  faults["situ_glu"] = {
      {"sigmoid of the capped gate", nullptr,
       [](Values<double>& values, const Tensors& t, const std::string& id) {
         const auto& a = at(t, id + ".in.a").data;
         const double beta = at(t, id + ".in.beta_gate").data[0];
         for (std::size_t i = 0; i < a.size(); ++i) {
           values.at("out.y")[i] *=
               (1 + std::exp(-a[i])) / (1 + std::exp(-beta * std::tanh(a[i] / beta)));
         }
       }},
      gradient("sigmoid taken for a constant", "a",
               [](const Tensors& t, const std::string& id, double d, std::size_t i) {
                 const double a = tensor_value(t, id + ".in.a", i);
                 const double beta = tensor_value(t, id + ".in.beta_gate", 0);
                 const double h = std::tanh(a / beta);
                 const double of_tanh = 1 - h * h;  // times σ
                 const double of_sigmoid = beta * h / (1 + std::exp(a));
                 return d * of_tanh / (of_tanh + of_sigmoid);
               }),
      exchanged("branches exchanged", "a", "u"),
      exchanged("caps exchanged", "beta_gate", "beta_linear"),
      input("no cap of the gate", "beta_gate", set_to(1e6)),
      input("no cap of the linear branch", "beta_linear", set_to(1e6))};
  faults["kda_gate"] = {
      input("rate of another head", "a_log", rotate), input("no rate", "a_log", set_to(0)),
      input("no bias", "dt_bias", set_to(0)), input("another bound", "bound", set_to(-4.99)),
      gradient("no rate in the slope", "z",
               [](const Tensors& t, const std::string& id, double d, std::size_t i) {
                 const auto& shape = at(t, id + ".in.z").shape;
                 const auto head =
                     i / static_cast<std::size_t>(shape[2]) % static_cast<std::size_t>(shape[1]);
                 return d / std::exp(tensor_value(t, id + ".in.a_log", head));
               })};
  faults["router"] = {input("choice without bias", "bias", set_to(0)),
                      input("not renormalised", "renormalize", set_to(0)),
                      input("scaling forgotten", "scaling", set_to(1)),
                      {"1e-20 forgotten", nullptr,
                       [](Values<double>& values, const Tensors& t, const std::string& id) {
                         auto& weight = values.at("out.weight");
                         const auto chosen =
                             static_cast<std::size_t>(at(t, id + ".in.chosen").data[0]);
                         if (at(t, id + ".in.renormalize").data[0] == 0 || chosen == 1) return;
                         for (std::size_t i = 0; i < weight.size(); i += chosen) {
                           double sum = 0;  // scaling s / (s + 1e-20)
                           for (std::size_t j = 0; j < chosen; ++j) sum += weight[i + j];
                           for (std::size_t j = 0; j < chosen; ++j) weight[i + j] *= 2.5 / sum;
                         }
                       }}};
  faults["cross_entropy"] = {
      input("label of another row", "targets", [](NamedTensor& t) { t.data[0] += 1; }),
      input("masked tokens counted", "count", [](NamedTensor& t) { t.data[0] += 1; }),
      {"second band dropped but for the target",
       [](Tensors& tensors, const std::string& id) {
         auto& logits = tensors.at(id + ".in.logits");
         const double target = at(tensors, id + ".in.targets").data[0];
         for (std::size_t i = 1024; i < logits.data.size(); ++i) {
           if (static_cast<double>(i) != target) logits.data[i] = -1e4;
         }
       },
       nullptr},
      gradient("probabilities alone as the gradient", "logits",
               [](const Tensors& t, const std::string& id, double d, std::size_t i) {
                 const auto width = static_cast<std::size_t>(at(t, id + ".in.logits").shape[1]);
                 const double target = tensor_value(t, id + ".in.targets", i / width);
                 const double count = tensor_value(t, id + ".in.count", 0);
                 return static_cast<double>(i % width) == target ? d + 1 / count : d;
               }),
      result("in bits", "out.nll",
             [](const Tensors&, const std::string&) { return 1 / std::log(2.0); })};
  faults["short_conv"] = {input("taps reversed", "w", reverse_rows),
                          input("leak across a border", "documents", merge)};
  faults["kda"] = {exchanged("key and query exchanged", "k", "q"),
                   input("no beta", "beta", set_to(1)),
                   input("no decay", "g", set_to(0)),
                   input("decay of the next channel", "g", rotate),
                   input("leak across a border", "documents", merge),
                   input("no first state", "state", set_to(0)),
                   {"gradient by alpha instead of g", nullptr,
                    [](Values<double>& values, const Tensors& t, const std::string& id) {
                      const auto& g = at(t, id + ".in.g").data;
                      for (std::size_t i = 0; i < g.size(); ++i) {
                        values.at("grad.g")[i] *= std::exp(-g[i]);
                      }
                    }}};
  faults["mla"] = {{"scale of the nope part alone",
                    [](Tensors& t, const std::string& id) {
                      const double nope = at(t, id + ".in.nope").data[0];
                      const auto rope = static_cast<double>(at(t, id + ".in.kr").shape[1]);
                      times(std::sqrt((nope + rope) / nope))(t.at(id + ".in.q"));
                    },
                    nullptr},
                   input("rope part dropped", "kr", set_to(0)),
                   input("leak across a border", "documents", merge)};
  faults["attn_res"] = {input("no norm weight", "norm", set_to(1)),
                        input("no eps", "eps", set_to(0)),
                        {"with a temperature",
                         [](Tensors& t, const std::string& id) {
                           auto& proj = t.at(id + ".in.proj");
                           times(1 / std::sqrt(static_cast<double>(proj.data.size())))(proj);
                         },
                         nullptr},
                        input("without scores", "proj", set_to(0))};
  faults["matmul_f32"] = product_faults("w");
  faults["matmul_bf16"] = product_faults("w");
  faults["matmul_mxfp4"] = product_faults("w.weight_packed");
  faults["matmul_mxfp4"].push_back(input("nibbles exchanged", "w.weight_packed", swap_nibbles));
  faults["matmul_mxfp4"].push_back(input("scales of the next group", "w.weight_scale", rotate));
  faults["matmul_mxfp4"].push_back(input("byte 0 taken for zero", "w.weight_scale", [](auto& t) {
    for (double& byte : t.data) byte = byte == 0 ? 255 : byte;
  }));
  faults["lora"] = {input("scale twice", "scale", times(double{0.3f})),
                    input("y overwritten", "y", set_to(0)),
                    result("gradient of A without scale", "grad.a",
                           [](const Tensors&, const std::string&) { return 1 / 0.3; })};
  faults["experts"] = {exchanged("gate and up exchanged", "w1.0", "w3.0"),
                       input("unweighted", "weight", set_to(1)),
                       input("down adapter forgotten", "expert_down.lora_B", set_to(0)),
                       input("gate adapter forgotten", "expert_gate.lora_B", set_to(0)),
                       exchanged("caps exchanged", "beta_gate", "beta_linear"),
                       input("next expert", "index", rotate)};
  return faults;
}

}  // namespace checks::ops
