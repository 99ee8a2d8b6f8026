#!/usr/bin/env bash
# Usage: checks/check_hash.sh BUILD_DIR [--out FILE]
# The same four training steps, two sequences each, at every combination of threads {1, 2, 3, 7}, memory {least,
# middle, ample} and instruction set {scalar, AVX2, AVX-512, as far as the processor has them}, uninterrupted,
# and killed at some write and resumed on another combination; and with the sequences of a step one at a time, each
# in a sweep of its own (checks/train_apart.cc): one SHA-256 of everything that is a number. That
# is log.jsonl (losses and gradient norms), the adapter, and adapter, moments and state of the checkpoint behind
# every step; the first step's moments are its gradient times a constant, so all gradients are in it.
# Memory is shown to have mattered by the bytes that were read. FILE: the table as JSON lines.
# checks/one_hash.sh is the short form, in `make test`.
set -uo pipefail
build=$1 record=
shift
if [ "${1:-}" = --out ]; then record=${2:?}; elif [ $# -gt 0 ]; then echo "usage: $0 BUILD_DIR [--out FILE]" >&2; exit 2; fi
. "$(dirname "$0")/verdicts.sh"
open_record check_hash "$record"
lazylora=$build/lazylora
shim=$(realpath "$build/checks/libfaults.so") || exit 1
export OMP_WAIT_POLICY=passive # or the program would start itself anew, and count its writes anew
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
run=$out/run

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
seq -s, 7 19 240 >"$out/a.txt"
seq -s, 500 -23 40 >"$out/b.txt"
seq -s, 1 37 300 >"$out/c.txt"
train() { # OPTIONS...
  "$lazylora" train --model "$out/model" --ids "$out"/[abc].txt --out "$run" --steps 4 --sequences 2 --warmup 1 \
    --rank 4 --alpha 8 --checkpoint-every 1 --keep 4 --scratch "$out" "$@" >"$out/said" 2>&1
}
digest() {
  (cd "$run" && find adapter.safetensors log.jsonl checkpoints -type f -print0 | sort -z | xargs -0 sha256sum) 2>/dev/null |
    sha256sum | cut -d' ' -f1
}
bytes_read() { sed -n 's/.*"bytes_read":\([0-9]*\).*/\1/p' "$run/timings.jsonl" | awk '{n += $1} END {print n}'; }
other_than() { # VALUE VALUES...: the one behind it in the list, cyclically
  local value=$1 first=$2
  shift
  while [ "$1" != "$value" ]; do shift; done
  echo "${2:-$first}"
}

isas=()
for isa in scalar avx2 avx512; do
  "$lazylora" forward --model "$out/model" --ids "$out/a.txt" --isa $isa >"$out/said" 2>&1
  status=$?
  # Only the program's own word says that a processor lacks an instruction set.
  if [ $status -eq 1 ] && grep -qF -- "--isa $isa: this processor runs" "$out/said"; then
    skip "$(cat "$out/said")"
  else
    isas+=($isa)
  fi
done

train --threads 1 --ram 1GB --isa scalar || { cat "$out/said"; exit 1; }
want=$(digest) ample_bytes=$(bytes_read)
writes=$(rm -rf "$run"; FAULTS=write:1-:count FAULTS_UNDER=$run FAULTS_LOG=$out/log LD_PRELOAD=$shim train --ram 1GB; awk '{print $2}' "$out/log")

# The least memory, to within 1 %: granted at `high`, refused at `low`. The most threads want the most.
low=20000000 high=100000000
while [ $((high * 100)) -gt $((low * 101)) ]; do
  middle=$(((low + high) / 2))
  rm -rf "$run"
  if train --threads 7 --ram "$middle"; then high=$middle least_bytes=$(bytes_read); else low=$middle; fi
done
# What a process holds when it starts differs by some pages from start to start.
high=$((high + high / 50))
rams=("$high" $((high + 2500000)) 1000000000)
rm -rf "$run"
train --threads 7 --ram "${rams[1]}" && [ "$(bytes_read)" -lt "${least_bytes:-0}" ] && [ "$(bytes_read)" -gt "$ample_bytes" ]
verdict "memory matters: ${least_bytes:-?}, $(bytes_read) and $ample_bytes bytes read at ${rams[*]}" $?

count=0 number=0
for threads in 1 2 3 7; do
  for ram in "${rams[@]}"; do
    for isa in "${isas[@]}"; do
      name="$threads threads, $ram bytes, $isa"
      rm -rf "$run"
      train --threads $threads --ram "$ram" --isa "$isa" && [ "$(digest)" = "$want" ]
      verdict "$name" $? "$(digest), wanted $want: $(tail -n 1 "$out/said")"
      # 37 is prime: the kill falls into another part of another step each time.
      number=$((number + 1)) at=$((1 + number * 37 * writes / 1000 % writes))
      rm -rf "$run"
      FAULTS=write:$at:kill FAULTS_UNDER=$run LD_PRELOAD=$shim train --threads $threads --ram "$ram" --isa "$isa" 2>/dev/null
      killed=$? again=
      [ ! -e "$run/manifest.json" ] || again=--resume # killed before, there is nothing to resume
      train $again --threads "$(other_than $threads 1 2 3 7)" --ram "$(other_than "$ram" "${rams[@]}")" \
        --isa "$(other_than "$isa" "${isas[@]}")" && [ $killed -eq 137 ] && [ "$(digest)" = "$want" ]
      verdict "$name, killed at write $at of $writes, resumed on others" $? "exit code $killed, then $(digest): $(tail -n 1 "$out/said")"
      count=$((count + 2))
    done
  done
done

apart() { # [--mean-of-means]
  rm -rf "$run"
  "$build/checks/train_apart" "$out/model" "$run" steps=4 sequences=2 warmup=1 rank=4 alpha=8 checkpoint-every=1 keep=4 \
    "$@" "$out"/[abc].txt >"$out/said" 2>&1
}
apart && [ "$(digest)" = "$want" ]
verdict "the sequences of a step one at a time" $? "$(digest), wanted $want: $(tail -n 1 "$out/said")"
apart --mean-of-means && [ "$(digest)" != "$want" ]
verdict "planted: the mean of the sequences' means is another hash" $? "$(tail -n 1 "$out/said")"

# Planted: what is a number of the run is in the hash.
rm -rf "$run"
train --ram 1GB --lr 0.00020001 && [ "$(digest)" != "$want" ]
verdict "planted: a learning rate a little different is another hash" $?
rm -rf "$run"
train --ram 1GB && printf '\001' | dd of="$run/checkpoints/step_00001/moments.safetensors" bs=1 seek=20000 conv=notrunc status=none && [ "$(digest)" != "$want" ]
verdict "planted: a byte of the first step's gradient is another hash" $?

echo "one hash of $count runs: $([ $failed -eq 0 ] && echo "$want" || echo "NO, $failed differ")"
close_record
