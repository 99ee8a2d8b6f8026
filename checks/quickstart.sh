#!/usr/bin/env bash
# Usage: checks/quickstart.sh BUILD_DIR OUT
# From nothing to a trained adapter on a small random model, every step checked; what it does is told in
# docs/quickstart.md. Writes under OUT only.
set -euo pipefail
build=$1 out=$2
lazylora=$build/lazylora
export OMP_WAIT_POLICY=passive

title() { printf '\n== %s\n' "$*"; }
fail() {
  printf '\nquickstart stopped: %s\n' "$*" >&2
  exit 1
}
# The digest of a file alone, so that two folders can be compared.
digest() { sha256sum <"$1" | cut -d' ' -f1; }
# Milliseconds since some moment.
now() { echo $(($(date +%s%N) / 1000000)); }
losses() { sed -n '/"phase":"step_end"/s/.*"step":\([0-9]*\),.*"loss":\([0-9.eE+-]*\).*/\1 \2/p' "$1"; }

[ -x "$lazylora" ] || fail "$lazylora is not there (make build)"
rm -rf "$out"
mkdir -p "$out/ids"

title "1/7 a small model with random weights, in the layout of the released checkpoint"
"$lazylora" make-model "$out/model" --shape tiny --seed 1 || fail "make-model failed"

title "2/7 its shards: every header fact, then every byte"
"$lazylora" shards "$out/model" --write-digests "$out/digests.json" || fail "shards found something"
"$lazylora" shards "$out/model" --digests "$out/digests.json" || fail "the content does not have its digests"

# Four short patterns, repeated: a thing that an adapter can learn in ten steps.
for pattern in "17 305 42 7 211" "400 3 99" "250 251 252 253 8 120" "33 470 61 61"; do
  ids=
  for _ in 1 2 3 4 5; do ids="$ids $pattern"; done
  echo "${ids# }" >"$out/ids/pattern_${pattern%% *}.txt"
done
ids=("$out"/ids/*.txt)

title "3/7 forward, engine against oracle, layer by layer"
"$build/checks/check_forward" --model "$out/model" --ids "${ids[0]}" --reference oracle \
  --out "$out/forward.jsonl" || fail "the engine's forward pass is not the oracle's"

title "4/7 gradients, engine against exact derivatives and finite differences"
"$build/checks/check_gradients" --quick || fail "a gradient does not hold"

title "5/7 training: ten steps, all four sequences in each"
# Words, not a function: in the background a function is a shell of its own, and the kill below would hit
# that shell and leave the program running.
train=("$lazylora" train --model "$out/model" --ids "${ids[@]}" --steps 10 --sequences 4 --lr 2e-3 --warmup 2
  --checkpoint-every 2)
start=$(now)
"${train[@]}" --out "$out/run" || fail "training failed"
took=$(($(now) - start))
losses "$out/run/log.jsonl" | awk '
  NR == 1 {first = $2}
  {last = $2; bar = sprintf("%*s", 50 * last / first + 0.5, ""); gsub(/ /, "#", bar); printf "  step %2d  loss %.4f  %s\n", $1, $2, bar}
  END {exit !(NR == 10 && last < first)}' || fail "the loss did not fall in ten steps ($out/run/log.jsonl)"

title "6/7 the same training, killed (SIGKILL) at a random moment and resumed"
# A moment after the first checkpoint, so that there is something to resume; a run that was faster than
# that is tried again with a shorter wait.
killed=
for share in 80 50 25 10; do
  rm -rf "$out/killed"
  "${train[@]}" --out "$out/killed" >"$out/killed.log" 2>&1 &
  process=$!
  until ls -d "$out"/killed/checkpoints/step_*[0-9] >/dev/null 2>&1; do
    kill -0 $process 2>/dev/null || break
    sleep 0.01
  done
  wait_ms=$((RANDOM * 32768 + RANDOM))
  wait_ms=$((wait_ms % (took * share / 100 + 1)))
  sleep "$(printf '%d.%03d' $((wait_ms / 1000)) $((wait_ms % 1000)))"
  if kill -9 $process 2>/dev/null; then
    wait $process 2>/dev/null || true
    if [ ! -e "$out/killed/adapter.safetensors" ]; then
      killed=yes
      break
    fi
  else
    wait $process || { cat "$out/killed.log" >&2; fail "the run to be killed failed by itself"; }
  fi
done
[ -n "$killed" ] || fail "every try ended before it could be killed"
echo "killed $wait_ms ms after the first checkpoint, at step $(losses "$out/killed/log.jsonl" | tail -n 1 | cut -d' ' -f1) of 10"
"${train[@]}" --out "$out/killed" --resume || fail "the killed run could not be resumed"

title "7/7 the interrupted run and the other: the same bytes"
for file in adapter.safetensors log.jsonl; do
  one=$(digest "$out/run/$file") other=$(digest "$out/killed/$file")
  [ "$one" = "$other" ] || fail "$file differs: $one without, $other with interruption"
  echo "  $one  $file"
done

cat <<END

Everything held. Where to look:
  $out/run/adapter.safetensors   the adapter
  $out/run/log.jsonl             what happened, reproducible to the byte
  $out/run/timings.jsonl         when it happened and what it took
  $out/run/manifest.json         settings, digests, machine
  $out/run/checkpoints/          the newest states, each enough to go on from
  $out/forward.jsonl             the layer-by-layer comparison
  docs/quickstart.md             what each of these says, and what to try next
END
