#!/usr/bin/env bash
# Usage: checks/evidence/make.sh BUILD_DIR OUT [NAME...]
# Makes the claims' folders that are not in OUT yet, each as a whole or not at all. What a repetition must
# reproduce to the byte lies in the folder, what may differ (clocks, machine, fonts) in its may_differ/. Where
# a file cannot be made on this processor, FILE.absent says so. A claim that cannot be made here is skipped with its
# reason: those that need data of others, and 0009-mutants without the record that it takes (mutation_record.sh):
# MUTANTS=FILE and MUTANTS_COMMIT=COMMIT in the environment; so are those that take long, without LONG=1.
set -euo pipefail
shopt -s inherit_errexit
[ $# -ge 2 ] || { echo "usage: $0 BUILD_DIR OUT [NAME...]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/checks/evidence/common.sh"
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
export OMP_WAIT_POLICY=passive LC_ALL=C
lazylora=$build/lazylora
reference=${LAZYLORA_REFERENCE:-$root/../shared/reference}
scratch=$(mktemp -d) here= programs=()
trap 'rm -rf "$scratch" ${here:+"$here"}' EXIT # and the folder in the making: half a claim is none

# run FILE COMMAND...: standard output to FILE of the folder in the making; the command, with this machine's
# folders named, to commands.txt.
run() {
  local file=$1
  shift
  local text= word
  for word in "$@"; do # before quoting: a folder's name may need quotes that BUILD does not
    if [[ $word == "$build"/* && -f $word ]]; then programs+=("${word#"$build"/}"); fi
    # A script that is given BUILD chooses itself.
    if [ "$word" = "$build" ]; then mapfile -t -O ${#programs[@]} programs < <(cd "$build" && find lazylora checks -maxdepth 1 -type f -executable | sort); fi
    word=${word//"$build"/BUILD} word=${word//"$scratch"/SCRATCH} word=${word//"$reference"/REFERENCE} word=${word//"$root/"/}
    text+=$(printf '%q ' "$word")
  done
  printf '%s>%s\n' "$text" "$file" >>"$here/commands.txt"
  "$@" >"$here/$file" 2>"$scratch/stderr" || { cat "$here/$file" "$scratch/stderr" >&2; return 1; }
}
readme() { cat >"$here/README.md"; }
# A folder's name as a pattern of sed.
pattern() { printf '%s' "$1" | sed 's/[][\\.*^$|]/\\&/g'; }
# FILE...: made with the oracle, which uses exp and log of the C library.
rests_on_c_library() { printf '%s\n' "$@" >"$here/rests_on_c_library.txt"; }
# Times of GoogleTest are no result.
without_times() { sed -i -e 's/ ([0-9]* ms[^)]*)$//' "$1"; }

environment() {
  echo "program   $("$lazylora" --version), SHA-256 $(sha256sum <"$lazylora" | cut -d' ' -f1)"
  if git -C "$root" rev-parse --verify -q HEAD >/dev/null 2>&1; then
    echo "commit    $(git -C "$root" rev-parse HEAD)$(git -C "$root" diff --quiet HEAD -- engine oracle checks reports || echo ", with changes")"
  else
    echo "commit    not known"
  fi
  echo "compiler  $(${CXX:-c++} --version | head -n 1)"
  echo "flags     $(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt"), CMakeLists.txt SHA-256 $(sha256sum <"$root/CMakeLists.txt" | cut -d' ' -f1)"
  echo "c library $(ldd --version 2>&1 | head -n 1)"
  echo "kernel    $(uname -srm)"
  echo "processor $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
  echo "its flags $(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo | head -n 1 | tr ' ' '\n' | grep -E '^(fma|avx2|avx512f|avx512bw|avx512dq|avx512vl)$' | tr '\n' ' ')"
  echo "packages:"
  dpkg-query -W -f '  ${Package} ${Version}\n' libc6 $(cat "$root/packages.txt") 2>/dev/null || echo "  not known: no dpkg"
  # Of what the commands ran, and of what they read of tiny(). Here and not in commands.txt, which stays as it was recorded.
  [ ${#programs[@]} -eq 0 ] || { echo "programs, SHA-256:" && (cd "$build" && printf '%s\n' "${programs[@]}" | sort -u | xargs -d '\n' sha256sum | sed 's/^/  /'); }
  if grep -qF SCRATCH/model "$here/commands.txt"; then
    echo "model and ids, SHA-256, by BUILD/lazylora make-model SCRATCH/model $made_by and tiny() of checks/evidence/make.sh:"
    (cd "$scratch" && sha256sum -- model/* ids/* | sed 's/^/  /')
  fi
}

model=$scratch/model made_by="--shape tiny --seed 1"
tiny() {
  # shellcheck disable=SC2086 # words
  [ -d "$model" ] || "$lazylora" make-model "$model" $made_by >/dev/null
  [ -d "$scratch/ids" ] && return
  mkdir "$scratch/ids"
  local pattern ids
  for pattern in "17 305 42 7 211" "400 3 99" "250 251 252 253 8 120" "33 470 61 61"; do
    ids="$pattern $pattern $pattern $pattern $pattern"
    echo "$ids" >"$scratch/ids/pattern_${pattern%% *}.txt"
  done
}

0001-forward() {
  readme <<'END'
# The engine's forward pass is the oracle's, layer by layer

| file | what |
|---|---|
| `table.txt`, `table.jsonl` | `tiny`, 25 ids: a row a layer against the second implementation in double: cosine, largest difference, error over what is allowed, routing |
| `rests_on_c_library.txt` | files whose last digits may come out otherwise with another C library |
END
  run table.txt "$build/checks/check_forward" --model "$model" --ids "$scratch/ids/pattern_17.txt" --reference oracle --out "$scratch/forward.jsonl"
  cp "$scratch/forward.jsonl" "$here/table.jsonl"
  rests_on_c_library table.txt table.jsonl
}

0002-forward-dumps() {
  readme <<'END'
# The engine's forward pass is that of kimi-k3-in-c

| file | what |
|---|---|
| `tiny_34.txt`, `tiny_34.jsonl` | 34 ids, nested config: a row a layer against a dump of kimi-k3-in-c v1.0.0 |
| `tool_34.txt`, `tool_34.jsonl` | the same for its checkpoint with a flat config |
| `tiny_oracle.txt`, `tiny_oracle.jsonl`, `tool_oracle.txt`, `tool_oracle.jsonl` | both checkpoints against the oracle |
| `rests_on_c_library.txt` | files whose last digits may come out otherwise with another C library |

Made with data of others that is not in this repository (REFERENCE; docs/faq.md).
END
  local name
  for name in tiny tool; do
    run ${name}_34.txt "$build/checks/check_forward" --model "$reference/ckpt_$name" --ids "$reference/ids/ids34.txt" --reference "$reference/dump/${name}_34" --out "$scratch/${name}_34.jsonl"
    run ${name}_oracle.txt "$build/checks/check_forward" --model "$reference/ckpt_$name" --ids "$reference/ids/ids34.txt" --reference oracle --out "$scratch/${name}_oracle.jsonl"
    cp "$scratch/${name}_34.jsonl" "$scratch/${name}_oracle.jsonl" "$here/"
  done
  rests_on_c_library {tiny,tool}_{34,oracle}.{txt,jsonl} # what is allowed comes from the oracle each time
}

0003-gradients() {
  readme <<'END'
# The gradients are the exact ones

| file | what |
|---|---|
| `quick.txt`, `quick.jsonl` | every seventh tensor, layer inputs and bank entries against dual numbers; directions against central differences; planted errors refused |
| `rests_on_c_library.txt` | files whose last digits may come out otherwise with another C library |
END
  run quick.txt "$build/checks/check_gradients" --quick --out "$scratch/quick.jsonl"
  cp "$scratch/quick.jsonl" "$here/"
  rests_on_c_library quick.txt quick.jsonl
}

0004-ops() {
  readme <<'END'
# Every op does what the oracle recorded, within its derived bound

| file | what |
|---|---|
| `replay.txt` | the replay of fixtures/ops (values, gradients, bounds of every op), a relative error of 1e-4 seen everywhere, planted faults refused |
END
  run replay.txt "$build/checks/check_ops" --gtest_filter='OpFixtures.*' --gtest_brief=0
  without_times "$here/replay.txt"
}

0005-one-hash() {
  readme <<'END'
# The same bits for threads, memory, reads and instruction sets

| file | what |
|---|---|
| `threads_1.txt` ... | ten training steps of `tiny` under that setting: SHA-256 of adapter and of log.jsonl, which holds the losses; all the same |

Killed and resumed runs are compared by `checks/one_hash.sh`, at moments that no two runs share.
END
  local setting options
  while read -r setting options; do
    # shellcheck disable=SC2086
    if run "$setting.log" "$lazylora" train --model "$model" --ids "$scratch"/ids/*.txt --out "$scratch/$setting" --steps 10 --sequences 2 --warmup 2 --rank 4 --alpha 8 --checkpoint-every 5 $options 2>"$scratch/why"; then
      (cd "$scratch/$setting" && sha256sum adapter.safetensors log.jsonl) >"$here/$setting.txt"
    elif [[ $options == --isa* ]] && grep -q 'this processor runs' "$scratch/why"; then
      echo "this processor does not run it" >"$here/$setting.txt.absent"
    else
      cat "$scratch/why" >&2
      return 1
    fi
    rm -f "$here/$setting.log"
  done <<'END'
threads_1 --threads 1 --ram 1GB
threads_4 --threads 4 --ram 1GB
memory_80MB --threads 4 --ram 80MB
reads_direct --reads direct --ram 1GB
scalar --isa scalar --ram 1GB
avx2 --isa avx2 --ram 1GB
avx512 --isa avx512 --ram 1GB
END
  [ "$(cat "$here"/*.txt | grep -E '^[0-9a-f]{64}  ' | sort -u | wc -l)" -eq 2 ] || { echo "0005-one-hash: not one hash" >&2; return 1; }
}

0006-proof-run() {
  local registered=$root/preregistration/0006-proof-run.json
  readme <<'END'
# Ten steps on four patterns, and what they do to prose: registered, run, judged

The question stands in preregistration/0006-proof-run.md.

| file | what |
|---|---|
| `log.jsonl` | the run, a line a phase, each with the digest of the line before |
| `SHA256SUMS.adapter` | of the adapter that it made |
| `results.json`, `units.jsonl` | the evaluation on docs/examples/slice.txt and on what was trained on |
| `report.md` | its page; with figures in may_differ/ |
| `may_differ/timings.jsonl` | clocks, bytes and memory of the run |
END
  run train.txt "$lazylora" train --model "$model" --ids "$scratch"/ids/*.txt --out "$scratch/proof" --steps 10 --sequences 4 --lr 2e-3 --warmup 2 --checkpoint-every 5 --preregistration "$registered"
  run eval.txt "$lazylora" eval --run "$scratch/proof" --text "$root/docs/examples/slice.txt" --training-data --chunk 64 --gradient --preregistration "$registered" --out "$scratch/eval"
  rm "$here/train.txt" "$here/eval.txt"
  "$root/reports/render.sh" "$build" "$scratch/eval" >/dev/null
  cp "$scratch/proof/log.jsonl" "$scratch/eval"/{results.json,units.jsonl,report.md} "$here/"
  # The same page whether gnuplot was there or not.
  sed -i -E 's#\]\((loss|layers|routing)\.svg\)#](may_differ/\1.svg)#; s#^\((loss|layers|routing)\.svg was not drawn: (.*)\)$#![\2](may_differ/\1.svg)#' "$here/report.md"
  [ "$(grep -c '^!\[.*](may_differ/[a-z]*\.svg)$' "$here/report.md")" -eq 3 ] || { echo "0006-proof-run: report.md has not its three figures" >&2; return 1; }
  cp "$scratch/proof/timings.jsonl" "$scratch/eval/report.html" "$here/may_differ/"
  cp "$scratch/eval"/*.svg "$here/may_differ/" 2>/dev/null || true
  (cd "$scratch/proof" && sha256sum adapter.safetensors) >"$here/SHA256SUMS.adapter"
}

0007-routing() {
  readme <<'END'
# Which experts the tokens chose, before and after the proof run

| file | what |
|---|---|
| `base/trace.json`, `base/trace.bin` | routing of the four patterns under the base model |
| `adapter/trace.json`, `adapter/trace.bin` | under the adapter of 0006-proof-run |
| `analysis.md`, `analysis.json` | use, overlap and reuse; token against the same token, base and adapter |
END
  run train.txt "$lazylora" train --model "$model" --ids "$scratch"/ids/*.txt --out "$scratch/routed" --steps 10 --sequences 4 --lr 2e-3 --warmup 2 --checkpoint-every 5
  run base.txt "$lazylora" trace --model "$model" --ids "$scratch"/ids/*.txt --tag base --out "$scratch/base"
  run adapter.txt "$lazylora" trace --model "$model" --ids "$scratch"/ids/*.txt --tag adapter --adapter "$scratch/routed" --out "$scratch/adapter"
  run analysis.txt "$lazylora" analyze "$scratch/adapter" --against "$scratch/base" --out "$scratch/analysis"
  rm "$here"/{train,base,adapter,analysis}.txt
  local trace
  for trace in base adapter; do
    mkdir "$here/$trace"
    # When a trace was made is no result.
    sed -E 's/("(created|total_seconds|seconds|cpu|threads|peak_rss_gb|bytes_read)": )[^,]*(,?)$/\1null\3/' "$scratch/$trace/trace.json" >"$here/$trace/trace.json"
    cp "$scratch/$trace/trace.bin" "$here/$trace/"
  done
  cp "$scratch"/analysis/analysis.{md,json} "$here/"
}

0008-reference-training() {
  readme <<'END'
# Gradients and ten training steps are those of float64 autograd

| file | what |
|---|---|
| `gradients.txt`, `gradients.jsonl` | every comparison of `make check-gradients`: dual numbers, differences, and four cases of float64 autograd |
| `trajectory.txt` | two trajectories of ten steps, and a step resumed from given moments |
| `rests_on_c_library.txt` | files whose last digits may come out otherwise with another C library |

Made with data of others that is not in this repository (REFERENCE; docs/faq.md).
END
  run gradients.txt "$build/checks/check_gradients" --out "$scratch/gradients.jsonl"
  cp "$scratch/gradients.jsonl" "$here/"
  run trajectory.txt "$build/checks/check_trajectory"
  rests_on_c_library gradients.txt gradients.jsonl trajectory.txt
}

0009-mutants() {
  "$root/checks/evidence/mutation_record.sh" "$root" "$MUTANTS" "${MUTANTS_COMMIT:?the commit that $MUTANTS was made at}" "$here"
}

0010-models() {
  readme <<'END'
# The checkpoints that the claims are made with

| file | what |
|---|---|
| `inputs.txt` | SHA-256 of every file of SCRATCH/model and SCRATCH/ids, of which the claims from 0001-forward on are made |
| `tiny.txt`, `small.txt`, `medium.txt` | checkpoints of `lazylora make-model`: files, bytes, tensors |
| `digests.txt` | SHA-256 of the digests of their contents that `shards --write-digests` writes, against which `train --digests` holds a model |

SCRATCH/model is `tiny` of seed 1, and SCRATCH/ids are four patterns of ids; `tiny()` of checks/evidence/make.sh makes both.
END
  local shape
  for shape in tiny small medium; do
    run $shape.txt "$lazylora" make-model "$scratch/$shape" --shape $shape --seed 1
    run shards.txt "$lazylora" shards "$scratch/$shape" --write-digests "$scratch/$shape.json"
  done
  rm "$here/shards.txt"
  (cd "$scratch" && sha256sum -- {tiny,small,medium}.json) >"$here/digests.txt"
  diff -r "$scratch/tiny" "$model" || { echo "0010-models: SCRATCH/model is not what is said here" >&2; return 1; }
  (cd "$scratch" && sha256sum -- model/* ids/*) >"$here/inputs.txt"
}

0011-witness() {
  readme <<'END'
# Fifty digits and certified bounds: who watches the oracle

| file | what |
|---|---|
| `witness.txt` | loss of the tiny model and a derivative along all adapters, in double and in fifty digits |
| `gradients.txt` | gradients of every op within running error bounds of dual numbers |
| `rests_on_c_library.txt` | files whose last digits may come out otherwise with another C library |
END
  run witness.txt "$build/checks/check_model" '--gtest_filter=Witness.*'
  run gradients.txt "$build/checks/check_ops" '--gtest_filter=CertifiedGradients.*-*.ReferenceCases'
  without_times "$here/witness.txt"
  without_times "$here/gradients.txt"
  rests_on_c_library witness.txt gradients.txt
}

. "$root/checks/evidence/long_claims.sh"

needs_reference=" 0002-forward-dumps 0008-reference-training "
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(declare -F | sed -n 's/^declare -f \([0-9]\{4\}-.*\)/\1/p')
for name in "${names[@]}"; do
  [ ! -e "$out/$name" ] || allotted "$out/$name" || { echo "$name: is there"; continue; }
  declare -F -- "$name" >/dev/null || { echo "$name: nothing here makes it" >&2; exit 1; }
  if [[ $needs_reference == *" $name "* ]] && [ ! -d "$reference/dump" ]; then
    echo "skipped: $name: the data of other programs is not here (LAZYLORA_REFERENCE)"
    continue
  fi
  if [ "$name" = 0009-mutants ] && [ -z "${MUTANTS:-}" ]; then
    echo "skipped: $name: planting takes about an hour; \`checks/mutants.sh BUILD --out FILE\`, then MUTANTS=FILE MUTANTS_COMMIT=COMMIT"
    continue
  fi
  if [ -n "${takes[$name]:-}" ] && [ -z "${LONG:-}" ]; then
    echo "skipped: $name: takes ${takes[$name]}; LONG=1 makes it"
    continue
  fi
  here=$out/$name.tmp
  rm -rf "$here"
  mkdir -p "$here/may_differ"
  programs=()
  tiny
  "$name"
  # Where this machine had what is nobody's business, and differs each time. A log's lines stay as they are.
  find "$here" -type f \( -name '*.txt' -o -name '*.jsonl' -o -name '*.json' \) ! -name log.jsonl -exec \
    sed -i "s|$(pattern "$scratch")|SCRATCH|g; s|$(pattern "$reference")|REFERENCE|g; s|$(pattern "$root/")||g" {} +
  environment >"$here/may_differ/environment.txt"
  rm -rf "${out:?}/$name" # where it was only allotted
  mv "$here" "$out/$name"
  here=
  echo "$name: made"
done
