#include "engine/adapter/read_me.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace engine::adapter {
namespace {

std::string experts_text(const ExportSettings& settings) {
  switch (settings.format) {
    case Format::kPeft:
      return "One adapter serves all routed experts of a layer. It stands here once, under\n"
             "`...experts.w1` (w3, w2), as tensors with an expert dimension of one: lora_A [1, r, "
             "in],\n"
             "lora_B [1, out, r]. This is SGLang's shared form. adapter_config.json has no key "
             "that\n"
             "says so: the server must be told (`--experts-shared-outer-loras`). PEFT itself does "
             "not\n"
             "load it; export with `--format peft-per-expert` for that.\n";
    case Format::kPeftPerExpert:
      return "One adapter serves all routed experts of a layer. It is repeated here under every\n"
             "expert, so every lora_A.weight is [r, in] and every lora_B.weight [out, r].\n";
    case Format::kPeftFused:
      return fmt::format(
          "For a model whose experts are 3-D parameters `experts.w1.weight` [E, out, in] (w3, "
          "w2).\n"
          "lora_A.weight [E*r, x] has the expert slowest, lora_B.weight [y, r*E] the expert "
          "fastest.\n"
          "Laid out for PEFT {}: x is the parameter's {} dimension. Under the other meaning of "
          "the\n"
          "two (it changed between 0.18 and 0.19.1) this is another adapter or none.\n",
          settings.peft_version,
          fused_input(settings.peft_version) == FusedInput::kLast ? "last" : "middle");
    case Format::kGguf:
      break;
  }
  return "One adapter serves all routed experts of a layer. llama.cpp looks an expert up in both\n"
         "factors, so it is repeated for every expert. kv_b_proj is cut by head into attn_k_b, "
         "held\n"
         "transposed, and attn_v_b, as the model file is. A graph may multiply a matrix without\n"
         "asking for adapters: check with the probe that all of them have taken effect.\n";
}

}  // namespace

std::string read_me(const ExportSettings& settings, const NativeAdapter& native,
                    std::span<const Module> modules) {
  const bool routed =
      std::ranges::any_of(modules, [](const Module& module) { return module.experts > 0; });
  std::string text = fmt::format(
      "# LoRA adapter for {}\n\nRank {}, alpha {}, {}; targets {}. The change to a frozen matrix "
      "is\n"
      "(alpha/r) B A.\n",
      settings.base_model, native.rank, native.alpha, base::name_of(settings.dtype),
      fmt::join(native.targets, ", "));
  if (routed) text += "\n" + experts_text(settings);
  text +=
      "\n`expected_keys.json` has a digest over all keys: a loader that drops one silently can be\n"
      "told by it. `probe.json`, where there is one, has token ids and the logits that the model\n"
      "gives for them without and with this adapter.\n";
  return text;
}

}  // namespace engine::adapter
