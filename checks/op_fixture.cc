#include "checks/op_fixture.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace checks {
namespace {

using oracle::Bound;
using oracle::Dual;

template <class S>
Values<S> lifted(const NamedTensors& tensors) {
  Values<S> values;
  for (const auto& [name, tensor] : tensors) {
    for (const double x : tensor.data) values[name].push_back(S(x));
  }
  return values;
}

std::size_t every_element(std::size_t /*size*/) { return 1; }

// At every stride(size)-th element of every varied input.
template <class T>
Values<T> gradient(const OracleOp<Dual<T, kTangents>>& op, const FixtureCase& c,
                   const std::function<int(const std::string&)>& further,
                   const std::function<std::size_t(std::size_t)>& stride) {
  Values<Dual<T, kTangents>> in = lifted<Dual<T, kTangents>>(c.varied);
  Values<T> d;
  for (auto& [name, values] : in) {
    auto& all = values;
    const std::size_t step = stride(all.size());
    const std::size_t wanted = (all.size() + step - 1) / step;
    for (std::size_t first = 0; first < wanted; first += kTangents) {
      const std::size_t count = std::min<std::size_t>(kTangents, wanted - first);
      const auto at = [&](std::size_t n) -> auto& { return all[(first + n) * step]; };
      for (std::size_t n = 0; n < count; ++n) at(n).tangent[n] = T(1);
      const auto out = op(c, in);
      for (std::size_t n = 0; n < count; ++n) at(n).tangent[n] = T(0);
      std::array<oracle::Accumulator<T>, kTangents> sum;
      for (const auto& [output, up] : c.up) {
        for (std::size_t i = 0; i < up.data.size(); ++i) {
          for (std::size_t n = 0; n < count; ++n) {
            const T& term = out.at(output).at(i).tangent[n];
            if (up.data[i] != 0 && !oracle::is_nothing(term)) sum[n].add(T(up.data[i]), term);
          }
        }
      }
      for (std::size_t n = 0; n < count; ++n) d[name].push_back(sum[n].result(further(name)));
    }
  }
  return d;
}

std::function<int(const std::string&)> longer_chain(const OpFixture& op, const FixtureCase& c) {
  return [&](const std::string& name) { return op.longer_chain(c, name); };
}

template <class S>
NamedTensor part(const std::vector<S>& values, double (*of)(const S&)) {
  NamedTensor tensor{{static_cast<std::int64_t>(values.size())}, {}};
  for (const S& value : values) tensor.data.push_back(of(value));
  return tensor;
}

}  // namespace

std::vector<OpFixture> op_fixtures() {
  std::vector<OpFixture> all = row_fixtures();
  for (auto more : {time_fixtures(), product_fixtures()}) {
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  return all;
}

NamedTensors fixture_inputs(const FixtureCase& c) {
  NamedTensors inputs;
  for (const auto* tensors : {&c.fixed, &c.varied}) {
    for (const auto& [name, tensor] : *tensors) inputs[c.name + ".in." + name] = tensor;
  }
  for (const auto& [name, tensor] : c.up) inputs[c.name + ".up." + name] = tensor;
  return inputs;
}

NamedTensors fixture_inputs(const OpFixture& op) {
  NamedTensors inputs;
  for (const FixtureCase& c : op.cases) inputs.merge(fixture_inputs(c));
  return inputs;
}

NamedTensors solve(const OpFixture& op) {
  NamedTensors solution;
  const auto none = [](const std::string&) { return 0; };
  for (const FixtureCase& c : op.cases) {
    const auto put = [&](const std::string& kind, const auto& values, auto of) {
      for (const auto& [name, v] : values) solution[c.name + kind + name] = part(v, of);
    };
    put(".out.", op.value(c, lifted<double>(c.varied)), oracle::real_part<double>);
    put(".bound.", op.bound(c, lifted<Bound>(c.varied)), oracle::error_part<Bound>);
    if (c.up.empty()) continue;
    put(".grad.", gradient<double>(op.derivative, c, none, every_element),
        oracle::real_part<double>);
    put(".grad_bound.", gradient<Bound>(op.derivative_bound, c, longer_chain(op, c), every_element),
        oracle::error_part<Bound>);
  }
  return solution;
}

std::map<std::string, CertifiedGradient> certified_gradient(
    const OpFixture& op, const FixtureCase& c,
    const std::function<std::size_t(std::size_t size)>& stride) {
  std::map<std::string, CertifiedGradient> d;
  for (const auto& [name, bounds] :
       gradient<Bound>(op.derivative_bound, c, longer_chain(op, c), stride)) {
    for (const Bound& b : bounds) {
      d[name].want.push_back(b.value);
      d[name].bound.push_back(b.err);
    }
  }
  return d;
}

NamedTensor Draw::between(const std::string& name, std::vector<std::int64_t> shape, float low,
                          float high) const {
  const engine::base::CounterRng rng(7, prefix_ + "." + name);
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  NamedTensor tensor{std::move(shape), {}};
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = low + (high - low) * rng.uniform(static_cast<std::uint64_t>(i));
    tensor.data.push_back(double{value});
  }
  return tensor;
}

NamedTensor setting(double value) { return {{1}, {value}}; }

NamedTensor list(std::initializer_list<std::int64_t> numbers) {
  return {{static_cast<std::int64_t>(numbers.size())}, {numbers.begin(), numbers.end()}};
}

}  // namespace checks
