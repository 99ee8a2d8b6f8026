#!/usr/bin/env bash
# Usage: checks/cli_check.sh BUILD_DIR
# The program as a user meets it: exit codes, one clear line for what is wrong, nothing half-written.
set -uo pipefail
lazylora=$1/lazylora
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0

verdict() { # WHAT STATUS
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); echo "holds          $1"; else failed=$((failed + 1)); echo "DOES NOT HOLD  $1"; fi
}
# refuses WHAT CODE TEXT COMMAND...: exit code CODE, and TEXT on standard error.
refuses() {
  local what=$1 code=$2 text=$3
  shift 3
  "$@" >"$out/stdout" 2>"$out/stderr" </dev/null
  [ $? -eq "$code" ] && grep -qF -- "$text" "$out/stderr"
  verdict "$what" $?
}

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
echo 1,2,3,4,5,6,7,8,9,10,11,12 >"$out/ids"
echo 1,2,512 >"$out/outside"
echo 1,2,three >"$out/words"
: >"$out/empty"
forward=("$lazylora" forward --model "$out/model" --ids)
train=("$lazylora" train --model "$out/model" --ids "$out/ids" --rank 4 --alpha 8 --out)

refuses "no command is bad usage" 2 "subcommand" "$lazylora"
refuses "an unknown flag is bad usage" 2 "--colour" "${forward[@]}" "$out/ids" --colour
refuses "an adapter that is the empty string is not no adapter" 2 "--adapter" "${forward[@]}" "$out/ids" --adapter ""
refuses "a missing model is named" 1 "$out/nowhere" "$lazylora" forward --model "$out/nowhere" --ids "$out/ids"
refuses "a missing ids file is named" 1 "$out/nothing" "${forward[@]}" "$out/nothing"
refuses "an id outside the vocabulary is named" 1 "512" "${forward[@]}" "$out/outside"
refuses "a word among the ids is named" 1 "three" "${forward[@]}" "$out/words"
refuses "an empty ids file is refused" 1 "$out/empty" "${forward[@]}" "$out/empty"
refuses "a size without a number is refused" 1 "much" "${forward[@]}" "$out/ids" --ram much
refuses "a budget that cannot hold names what needs how much" 1 "weights of half a layer" \
  "$lazylora" train --model "$out/model" --ids "$out/ids" --out "$out/r0" --steps 1 --ram 60MB --rank 400
[ ! -e "$out/r0" ]
verdict "and writes nothing" $?
refuses "an unknown target is named with those there are" 1 "shared_down" "${train[@]}" "$out/r1" --steps 1 --targets q,o
refuses "an existing model is not overwritten" 1 "$out/model" "$lazylora" make-model "$out/model" --shape tiny --seed 2
refuses "an unknown shape is bad usage" 2 "huge" "$lazylora" make-model "$out/other" --shape huge --seed 1
cp -r "$out/model" "$out/a model's copy, ü"
"$lazylora" forward --model "$out/a model's copy, ü" --ids "$out/ids" --json >"$out/copy.json" 2>/dev/null &&
  "${forward[@]}" "$out/ids" --json | sed 's/"peak_rss_bytes":[0-9]*//' | cmp -s - <(sed 's/"peak_rss_bytes":[0-9]*//' "$out/copy.json")
verdict "J6 a path with a space, a quote and a letter that is not ASCII" $?

# A14: a shard that shrinks under a run stops it; the checkpoint it has is whole and goes on once the shard is back.
cp -r "$out/model" "$out/shrinking"
shard=$(ls "$out"/shrinking/*.safetensors | head -n 1)
job=("$lazylora" train --model "$out/shrinking" --ids "$out/ids" --rank 4 --alpha 8 --steps 400 --checkpoint-every 1 --out "$out/cut")
"${job[@]}" >"$out/stdout" 2>"$out/stderr" &
process=$!
until ls -d "$out"/cut/checkpoints/step_*[0-9] >/dev/null 2>&1 || ! kill -0 $process 2>/dev/null; do sleep 0.02; done
cp "$shard" "$out/whole"
truncate -s 200000 "$shard"
wait $process
[ $? -eq 1 ] && grep -q 'short read' "$out/stderr" && ! grep -q '^adapter ' "$out/stdout"
verdict "A14 a shard cut short under a run: exit 1, short read, no success" $?
cat "$out/whole" >"$shard"
steps=$(ls "$out/cut/checkpoints" | tail -n 1)
timeout 5 "${job[@]}" --resume >"$out/stdout" 2>"$out/stderr"
grep -q "going on behind .*$steps" "$out/stderr"
verdict "A14 and the run goes on from its newest checkpoint ($steps)" $?

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
