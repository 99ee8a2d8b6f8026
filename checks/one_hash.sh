#!/usr/bin/env bash
# Usage: checks/one_hash.sh BUILD_DIR
# The same ten training steps at 1 and 4 threads, on every instruction set, at the least and at an ample
# memory budget, uninterrupted and killed (SIGKILL) at random moments and resumed: one SHA-256 of the
# adapter and one of log.jsonl, which holds the losses. The least budget is found by asking: a smaller one
# must be refused before anything is written, and what is granted must not be exceeded.
set -uo pipefail
lazylora=$1/lazylora
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0

verdict() { # WHAT STATUS
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); echo "holds          $1"; else failed=$((failed + 1)); echo "DOES NOT HOLD  $1"; fi
}
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
same "reads around the page cache" --reads direct --ram 1GB
for isa in scalar avx2 avx512; do
  if "$lazylora" forward --model "$out/model" --ids "$out/a.txt" --isa $isa >/dev/null 2>&1; then
    same "instruction set $isa" --isa $isa --ram 1GB
  else
    echo "not on this processor: $isa"
  fi
done

# The least budget, to within 1 %: granted at `high`, refused at `low`.
low=20000000 high=100000000 refused_clean=0
while [ $((high * 100)) -gt $((low * 101)) ]; do
  middle=$(((low + high) / 2))
  rm -rf "$out/least" "$out/refused"
  if train "$out/least" --threads 4 --ram "$middle"; then
    high=$middle
    cp -r "$out/least" "$out/granted.new" && rm -rf "$out/granted" && mv "$out/granted.new" "$out/granted"
    peak=$(sed -n 's/^peak RSS //p' "$out/least.out")
  else
    low=$middle
    grep -q 'memory budget' "$out/least.err" && [ ! -e "$out/least" ] || refused_clean=1
  fi
done
verdict "every smaller budget is refused by name, nothing written (refused: $low)" $refused_clean
[ "$(digests "$out/granted")" = "$want" ]
verdict "least memory ($high bytes, peak RSS ${peak:-?})" $?
awk -v most="$high" 'match($0, /"rss_bytes":[0-9]+/) {v = substr($0, RSTART + 12, RLENGTH - 12) + 0; if (v > most) bad = 1; n++} END {exit !(n > 0 && !bad)}' \
  "$out/granted/timings.jsonl"
verdict "resident memory within the least budget at every line of timings.jsonl" $?

# Killed until it has been interrupted three times, wherever that falls.
kills=0
for _ in $(seq 40); do
  train "$out/killed" --ram 1GB --resume &
  process=$!
  sleep "0.$(printf '%03d' $((RANDOM % 900 + 50)))"
  # The program itself, not the shell around it.
  if pkill -9 -P $process 2>/dev/null; then kills=$((kills + 1)); fi
  wait $process 2>/dev/null
  [ "$kills" -ge 3 ] || [ -e "$out/killed/adapter.safetensors" ] && break
done
train "$out/killed" --ram 1GB --resume && [ "$(digests "$out/killed")" = "$want" ]
verdict "killed $kills times and resumed" $?
[ "$kills" -gt 0 ]
verdict "the kill was a kill" $?

# A planted fault: another seed is another hash.
train "$out/other" --ram 1GB --seed 1 && [ "$(digests "$out/other")" != "$want" ]
verdict "another seed gives another hash" $?

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
