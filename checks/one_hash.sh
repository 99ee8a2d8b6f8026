#!/usr/bin/env bash
# Usage: checks/one_hash.sh BUILD_DIR
# The same ten training steps at 1 and 4 threads, with the sequences of a step together and one at a time, on
# every instruction set, at the least and at an ample memory budget, uninterrupted and killed (SIGKILL) at
# random moments and resumed: one SHA-256 of the adapter and one of log.jsonl, which holds the losses. The
# least budget is found by asking: a smaller one must be refused before anything is written, and what is
# granted must not be exceeded. The long form is checks/check_hash.sh.
set -uo pipefail
build=$1 lazylora=$1/lazylora
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"
digests() { cat "$1/adapter.safetensors" "$1/log.jsonl" 2>/dev/null | sha256sum | cut -d' ' -f1; }

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
seq -s, 7 19 240 >"$out/a.txt"
seq -s, 500 -23 40 >"$out/b.txt"
seq -s, 1 37 300 >"$out/c.txt"
train() { # RUN OPTIONS...
  local run=$1
  shift
  "$lazylora" train --model "$out/model" --ids "$out"/[abc].txt --out "$run" --steps 10 --sequences 2 \
    --warmup 2 --rank 4 --alpha 8 --checkpoint-every 2 "$@" >"$run.out" 2>"$run.err"
}

train "$out/plain" --threads 1 --ram 1GB || { cat "$out/plain.err"; exit 1; }
want=$(digests "$out/plain")
echo "SHA-256 of adapter and log: $want"

same() { # WHAT OPTIONS...
  local what=$1 run=$out/${1//[^a-z0-9]/_}
  shift
  train "$run" "$@" && [ "$(digests "$run")" = "$want" ]
  verdict "$what" $?
}
same "4 threads" --threads 4 --ram 1GB
# The two sequences of a step one at a time, each in a sweep of its own (checks/train_apart.cc).
apart() { # RUN [--mean-of-means]
  "$build/checks/train_apart" "$out/model" "$out/$1" steps=10 sequences=2 warmup=2 rank=4 alpha=8 checkpoint-every=2 \
    "${@:2}" "$out"/[abc].txt >"$out/$1.out" 2>&1
}
apart apart && [ "$(digests "$out/apart")" = "$want" ]
verdict "the sequences of a step one at a time" $? "$(tail -n 1 "$out/apart.out")"
apart means --mean-of-means && [ "$(digests "$out/means")" != "$want" ]
verdict "planted: the mean of the sequences' means is another hash" $? "$(tail -n 1 "$out/means.out")"
# Where the file system lets nothing be read directly, everything is buffered and shows nothing more.
train "$out/direct" --reads direct --ram 1GB && [ "$(digests "$out/direct")" = "$want" ]
status=$?
how=$(grep -h '^reads ' "$out/direct.out" "$out/direct.err" | head -n 1)
if [ $status -eq 0 ] && [[ $how == "reads buffered: "* ]]; then
  skip "no reads around the page cache: $how"
else
  [ $status -eq 0 ] && [ "$how" = "reads direct" ]
  verdict "reads around the page cache ($how)" $?
fi
# Only the program's own word says that a processor lacks an instruction set; any other end is a failure.
for isa in scalar avx2 avx512; do
  "$lazylora" forward --model "$out/model" --ids "$out/a.txt" --isa $isa >/dev/null 2>"$out/isa.err"
  status=$?
  if [ $status -eq 1 ] && grep -qF -- "--isa $isa: this processor runs" "$out/isa.err"; then
    skip "$(cat "$out/isa.err")"
  else
    [ $status -eq 0 ] || cat "$out/isa.err"
    same "instruction set $isa" --isa $isa --ram 1GB
  fi
done

# The least budget, to within 1 %: granted at `high`, refused at `low`.
low=20000000 high=100000000 refused=0 unclean=0
while [ $((high * 100)) -gt $((low * 101)) ]; do
  middle=$(((low + high) / 2))
  rm -rf "$out/least" "$out/refused"
  if train "$out/least" --threads 4 --ram "$middle"; then
    high=$middle
    cp -r "$out/least" "$out/granted.new" && rm -rf "$out/granted" && mv "$out/granted.new" "$out/granted"
    peak=$(sed -n 's/^peak RSS //p' "$out/least.out")
  else
    low=$middle
    refused=$((refused + 1))
    grep -q 'memory budget' "$out/least.err" && [ ! -e "$out/least" ] || unclean=$((unclean + 1))
  fi
done
[ $refused -gt 0 ] && [ $unclean -eq 0 ]
verdict "$refused smaller budgets are refused by name, nothing written (up to $low)" $?
[ "$(digests "$out/granted")" = "$want" ]
verdict "least memory ($high bytes, peak RSS ${peak:-?})" $?
awk -v most="$high" 'match($0, /"rss_bytes":[0-9]+/) {v = substr($0, RSTART + 12, RLENGTH - 12) + 0; if (v > most) bad = 1; n++} END {exit !(n > 0 && !bad)}' \
  "$out/granted/timings.jsonl"
verdict "resident memory within the least budget at every line of timings.jsonl" $?

# Killed ten times, wherever that falls; a run that ends before is compared, and killed from its start again.
kills=0 unequal=0
for _ in $(seq 100); do
  [ "$kills" -lt 10 ] || break
  again=
  [ ! -e "$out/killed/manifest.json" ] || again=--resume # killed before, there is nothing to resume
  train "$out/killed" --ram 1GB $again &
  process=$!
  sleep "0.$(printf '%03d' $((RANDOM % 400 + 30)))"
  # The program itself, not the shell around it.
  if pkill -9 -P $process 2>/dev/null; then kills=$((kills + 1)); fi
  wait $process 2>/dev/null
  [ -e "$out/killed/adapter.safetensors" ] || continue
  [ "$(digests "$out/killed")" = "$want" ] || unequal=1
  rm -r "$out/killed"
done
again=
[ ! -e "$out/killed/manifest.json" ] || again=--resume
train "$out/killed" --ram 1GB $again && [ "$(digests "$out/killed")" = "$want" ] && [ $unequal -eq 0 ]
verdict "killed $kills times at random and resumed" $?
[ "$kills" -eq 10 ]
verdict "ten kills were kills" $?

# A planted fault: another seed is another hash.
train "$out/other" --ram 1GB --seed 1 && [ "$(digests "$out/other")" != "$want" ]
verdict "another seed gives another hash" $?

close_record
