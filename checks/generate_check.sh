#!/usr/bin/env bash
# Usage: checks/generate_check.sh BUILD_DIR
# One answer, ids and logits to the bit, at the least, a middle and an ample budget, at 1 and 4 threads, on
# every instruction set, greedy and drawn, with an adapter; and what is refused. The least budget is found by
# asking: a smaller one must be refused by name.
set -uo pipefail
lazylora=$1/lazylora
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
seq -s, 7 19 240 >"$out/ids.txt"
"$lazylora" train --model "$out/model" --ids "$out/ids.txt" --out "$out/run" --steps 2 --rank 4 --alpha 8 \
  --lr 0.05 --warmup 0 >/dev/null 2>"$out/err" || { cat "$out/err"; exit 1; }
generate=("$lazylora" generate "$out/model")

# What an answer is: its ids, its text and its logits; not what it took.
digest() { grep -oE '"(ids|text|end|logits_sha256)":("[^"]*"|\[[^]]*\])' "$1" | sha256sum | cut -d' ' -f1; }
ask() { # FILE OPTIONS...
  local file=$1
  shift
  "${generate[@]}" --max-tokens 12 --json "$@" >"$file" 2>"$file.err" </dev/null
}

compare=(--prompt "What is a bank?" --adapter "$out/run/adapter.safetensors" --compare --temperature 0.8 --top-p 0.9)
ask "$out/plain" "${compare[@]}" --threads 1 --ram 1GB || { cat "$out/plain.err"; exit 1; }
want=$(digest "$out/plain")
echo "SHA-256 of both answers: $want"
[ "$(grep -o '"logits_sha256":"[0-9a-f]*"' "$out/plain" | sort -u | wc -l)" -eq 2 ]
verdict "the adapter changes the logits" $?

# The least budget, to within 1 %.
low=20000000 high=120000000 unnamed=0
while [ $((high * 100)) -gt $((low * 101)) ]; do
  middle=$(((low + high) / 2))
  if ask "$out/least" "${compare[@]}" --threads 4 --ram "$middle"; then
    high=$middle
  else
    low=$middle
    grep -q 'memory budget' "$out/least.err" || unnamed=1
  fi
done
verdict "every smaller budget is refused by name (refused: $low)" $unnamed
# What a process holds when it starts differs by some pages from start to start.
high=$((high + high / 50))
for ram in $high $((high + 3000000)) 1GB; do
  for threads in 1 4; do
    # Threads have stacks and rows of scores of their own.
    ask "$out/again" "${compare[@]}" --threads $threads --ram $ram && [ "$(digest "$out/again")" = "$want" ]
    verdict "$ram bytes, $threads threads (peak RSS $(grep -o '"peak_rss_bytes":[0-9]*' "$out/again" | cut -d: -f2))" $?
  done
done
# An adapter is in memory once: its gradients are nobody's, and its file is read to where it stays.
"$lazylora" train --model "$out/model" --ids "$out/ids.txt" --out "$out/large" --steps 1 --rank 512 >/dev/null 2>"$out/err" || cat "$out/err"
size=$(stat -c %s "$out/large/adapter.safetensors")
for command in "generate $out/model --max-tokens 2" "forward --model $out/model"; do
  # shellcheck disable=SC2086
  "$lazylora" $command --ids "$out/ids.txt" --adapter "$out/large" --json --ram $((high + size * 3 / 2)) >"$out/stdout" 2>"$out/stderr"
  verdict "${command%% *}: an adapter of $size bytes within half as much again" $? "$(cat "$out/stderr")"
  peak=$(grep -o '"peak_rss_bytes":[0-9]*' "$out/stdout" | cut -d: -f2)
  [ "${peak:-0}" -gt "$size" ] && [ "$peak" -lt $((high + size * 3 / 2)) ]
  verdict "and in truth (peak RSS $peak)" $?
done
# Only the program's own word says that a processor lacks an instruction set; any other end is a failure.
for isa in scalar avx2 avx512; do
  ask "$out/again" "${compare[@]}" --isa $isa
  status=$?
  if [ $status -eq 1 ] && grep -qF -- "--isa $isa: this processor runs" "$out/again.err"; then
    skip "$(cat "$out/again.err")"
  else
    [ $status -eq 0 ] && [ "$(digest "$out/again")" = "$want" ]
    verdict "instruction set $isa" $? "$(cat "$out/again.err")"
  fi
done
ask "$out/other" "${compare[@]}" --seed 1 && [ "$(digest "$out/other")" != "$want" ]
verdict "another seed gives another hash" $?

# Greedy on ids is the argmax of the whole pass, one token after the other.
ask "$out/greedy" --ids "$out/ids.txt" && cp "$out/ids.txt" "$out/grown.txt"
for _ in $(seq 3); do
  next=$("$lazylora" forward --model "$out/model" --ids "$out/grown.txt" --json | grep -o '"argmax_last":[0-9]*' | cut -d: -f2)
  echo "$(cat "$out/grown.txt"),$next" >"$out/grown.txt"
done
grep -qF "\"ids\":[$(tail -c +$(($(wc -c <"$out/ids.txt") + 1)) "$out/grown.txt")," "$out/greedy"
verdict "greedy is the argmax of a pass over all before" $?
"${generate[@]}" --max-tokens 12 --ids "$out/ids.txt" 2>/dev/null | grep -qxE '[0-9]+(,[0-9]+){11}'
verdict "ids in, ids out" $?
"${generate[@]}" --max-tokens 40 --prompt-file "$out/ids.txt" --form plain 2>"$out/cost" | iconv -f UTF-8 -t UTF-8 >/dev/null
verdict "what is printed is UTF-8" $?
grep -qE 'each token .* times .* s, .* read, .* experts found' "$out/cost"
verdict "the cost of a token is told" $?

for text in "a sequence of 1000" "carried from token to token"; do
  refuses "an answer that memory cannot hold is refused: $text" 1 "$text" "${generate[@]}" --prompt a --max-tokens 1000000 --ram 200MB
done
refuses "a prompt is needed" 2 "prompt" "${generate[@]}"
refuses "but one" 2 "prompt" "${generate[@]}" --prompt a --ids "$out/ids.txt"
refuses "an empty prompt is bad usage" 2 "--prompt" "${generate[@]}" --prompt ""
refuses "nothing to compare with" 2 "--adapter" "${generate[@]}" --prompt a --compare
refuses "no token is bad usage" 2 "--max-tokens is \"0\"" "${generate[@]}" --prompt a --max-tokens 0
refuses "a temperature below zero is bad usage" 2 "--temperature is \"-1\"" "${generate[@]}" --prompt a --temperature -1
refuses "a top-p of zero is bad usage" 2 "--top-p is \"0\"" "${generate[@]}" --prompt a --top-p 0
refuses "a prompt that is no UTF-8 is named" 1 "--prompt" "${generate[@]}" --prompt "$(printf 'a\377')"
refuses "a missing prompt file is named" 1 "$out/nothing" "${generate[@]}" --prompt-file "$out/nothing"
refuses "a missing adapter is named" 1 "$out/nothing" "${generate[@]}" --prompt a --adapter "$out/nothing"
for source in "--ids $out/ids.txt" "--prompt a --adapter $out/run"; do
  # shellcheck disable=SC2086
  refuses "100 KB are refused with what needs how much: ${source//$out\//}" 1 "program, libraries" "${generate[@]}" $source --ram 100KB
  grep -q 'weights of half a layer' "$out/stderr" && grep -q '  sum ' "$out/stderr"
  verdict "in one table" $?
done
cp -r "$out/run" "$out/altered"
printf '\001' | dd of="$out/altered/adapter.safetensors" bs=1 seek=$(($(stat -c %s "$out/run/adapter.safetensors") - 3)) conv=notrunc status=none
refuses "planted: another byte in a run's adapter" 1 "$out/altered/adapter.safetensors: has SHA-256 " "${generate[@]}" --prompt a --adapter "$out/altered"
cp -r "$out/run" "$out/unfinished" && rm "$out/unfinished/adapter.safetensors"
refuses "an unfinished run is one, and its newest checkpoint is named" 1 "its newest checkpoint is $out/unfinished/checkpoints/step_00002" \
  "${generate[@]}" --prompt a --adapter "$out/unfinished"
ask "$out/again" --prompt a --adapter "$out/unfinished/checkpoints/step_00002"
verdict "which can be taken" $?
rm -r "$out/unfinished/checkpoints"
refuses "or that it has none" 1 "has no whole checkpoint yet" "${generate[@]}" --prompt a --adapter "$out/unfinished"

close_record
