#!/usr/bin/env bash
# Usage: checks/usage_check.sh BUILD_DIR
# What a user types, presses and has: lists and rates at their ends, names that are no UTF-8, other ways to one
# folder, a signal in the middle of a copy, a disk with nothing free.
set -uo pipefail
lazylora=$1/lazylora
bench_memory=$1/checks/bench_memory
shim=$(realpath "$1/checks/libfaults.so") || exit 1
export OMP_WAIT_POLICY=passive # or the program would start itself anew, and the shim count anew
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
seq -s, 1 200 >"$out/ids"
train=("$lazylora" train --model "$out/model" --ids "$out/ids" --rank 2 --steps 2 --out)
# faulty RULES UNDER COMMAND...
faulty() {
  local rules=$1 under=$2
  shift 2
  FAULTS=$rules FAULTS_UNDER=$under LD_PRELOAD=$shim "$@"
}

# A copy that is stopped
pack=("$lazylora" pack "$out/model" "$out/pack")
refuses "a pack that is stopped says so" 1 "$out/pack: stopped by a signal; what was written is removed" \
  faulty "write:20:term" "$out/pack.lazylora-tmp" "${pack[@]}"
[ "$(wc -l <"$out/stderr")" -eq 1 ] && [ ! -e "$out/pack" ] && [ ! -e "$out/pack.lazylora-tmp" ]
verdict "in one line, and leaves nothing" $? "$(cat "$out/stderr"; ls "$out")"
"${pack[@]}" >/dev/null 2>&1
rm -f "$out/pack/verified"
faulty "pread-direct:5:term,pread:5:term" "$out/pack/pack.safetensors" "${pack[@]}" --verify >"$out/stdout" 2>&1
[ $? -eq 143 ] && [ ! -e "$out/pack/verified" ]
verdict "its comparison, which writes nothing, ends at once and notes nothing" $?
"${pack[@]}" --verify >/dev/null 2>&1
verdict "the next one goes through" $?

# Whatever else is stopped while it writes, or while it computes what it will write
"${train[@]}" "$out/trained" >/dev/null 2>&1 && "$lazylora" export "$out/trained" --model "$out/model" --format peft --probe-tokens 0 --out "$out/exported" >/dev/null 2>&1 &&
  "$lazylora" trace --model "$out/model" --ids "$out/ids" --out "$out/traced" >/dev/null 2>&1 || exit 1
examples=$(dirname "$0")/../docs/examples
printf '{"file": "%s", "date": "2030-01-01", "revision": "1", "source": "here"}\n' "$(realpath "$examples/slice.txt")" >"$out/list"
records=(--model "$out/model" --records "$examples/instructions.jsonl" --length 192 --too-long drop)
"$lazylora" data build "${records[@]}" --count 6 --out "$out/set" >/dev/null 2>&1 || exit 1
stopped() { # RULES UNDER COMMAND...: UNDER a file of the model, or empty for what the command writes, $to
  refuses "$4 that is stopped at $1 says so" 1 "$to: stopped by a signal; what was written is removed" faulty "$1" "${2:-$to.lazylora-tmp}" "${@:3}"
  [ ! -e "$to" ] && [ ! -e "$to.lazylora-tmp" ]
  verdict "and leaves nothing" $? "$(ls -d "$to"*)"
}
to=$out/stopped
stopped write:20:term "" "$lazylora" make-model "$to"
stopped write:1:term "" "$lazylora" data build "${records[@]}" --out "$to"
stopped write:1:term "" "$lazylora" data held-out "${records[@]}" --not-in "$out/set" --out "$to"
stopped write:1:term "" "$lazylora" data corpus --list "$out/list" --after 2029-12-31 --out "$to"
stopped write:1:term "" "$lazylora" export "$out/trained" --model "$out/model" --format peft --out "$to"
stopped write:1:term "" "$lazylora" import "$out/exported" --model "$out/model" --out "$to"
stopped write:1:term "" "$lazylora" trace --model "$out/model" --ids "$out/ids" --out "$to"
stopped write:1:term "" "$lazylora" trace export "$out/traced" "$to"
stopped write:1:term "" "$lazylora" analyze "$out/traced" --out "$to"
stopped write:1:term "" "$lazylora" shards "$out/model" --write-digests "$to"
stopped write:1:term "" "$lazylora" forward --model "$out/model" --ids "$out/ids" --dump "$to"
to=$out/stopped.h5
stopped pwrite:1:term "" "$lazylora" forward --model "$out/model" --ids "$out/ids" --dump "$to"
to=$out/stopped
stopped write:1:term "" "$lazylora" eval --model "$out/model" --ids "$out/ids" --out "$to"
stopped pread:300:term "$out/model" "$lazylora" trace --model "$out/model" --ids "$out/ids" --out "$to"
stopped pread:300:term "$out/model" "$lazylora" export "$out/trained" --model "$out/model" --format peft --out "$to"
stopped pread:300:term "$out/model" "$lazylora" eval --model "$out/model" --ids "$out/ids" --out "$to"
stopped pread:1800:term "$out/model" "$lazylora" shards "$out/model" --write-digests "$to"
faulty pread:1:term "$out/model" "$lazylora" trace --model "$out/model" --ids "$out/ids" --out "$to" >"$out/stdout" 2>&1
[ $? -eq 143 ] && [ ! -e "$to" ] && [ ! -e "$to.lazylora-tmp" ]
verdict "before there is anything to remove a signal ends it at once" $?

# A run is saved instead. Before its first step there is nothing to save, and nothing else is promised.
"$lazylora" data held-out "${records[@]}" --not-in "$out/set" --count 2 --out "$out/held" >/dev/null 2>&1 || exit 1
early=("$lazylora" train --model "$out/model" --data "$out/set" --eval-data "$out/held" --eval-every 2 --rank 2 --steps 2 --out "$out/early")
exits "a run that is stopped in the evaluation before its first step" 0 "stopping behind what is at hand; steps that are not saved yet are saved then;" \
  faulty pwrite:5:term "$out/early/breadcrumb.json" "${early[@]}"
[ ! -e "$out/early/checkpoints" ] && ! grep -q step_end "$out/early/log.jsonl"
verdict "has nothing to save" $?
"$lazylora" status "$out/early" >"$out/stdout" 2>&1
[ $? -eq 5 ] && grep -q '; it was asked to stop in the time before its first step, evaluation, after layer 12, with ' "$out/stdout" &&
  { "$lazylora" status "$out/early" --json; true; } | grep -A1 '"phase": "evaluation"' | grep -q '"layer": 12'
verdict "and has one phase to status and status --json" $? "$(grep '^state' "$out/stdout")"
exits "with --resume it goes on at step 1" 0 "no step was taken yet: starting at step 1" "${early[@]}" --resume

# OUT is looked at before anything is read: a link to an empty folder would be met by the last rename
mkdir "$out/nothing"
ln -s "$out/nothing" "$out/to_nothing"
for to in "$out/to_nothing" "$out/to_nothing/"; do
  for command in "make-model $to" "data build --model $out/model --records $out/nowhere --length 8 --out $to" \
    "data corpus --list $out/nowhere --after 2029-12-31 --out $to" "train --model $out/nowhere --ids $out/ids --steps 1 --out $to" \
    "export $out/nowhere --model $out/model --format peft --out $to" "import $out/nowhere --model $out/model --out $to" \
    "trace --model $out/nowhere --ids $out/ids --out $to" "pack $out/nowhere $to" "analyze $out/nowhere --out $to" \
    "eval --model $out/nowhere --ids $out/ids --out $to"; do
    # shellcheck disable=SC2086
    refuses "${command%% *} into a link" 1 "$to: is a link to $out/nothing, and nothing is written over" "$lazylora" $command
  done
done

# One folder, two names
ln -s "$out/pack" "$out/link"
ln -s "$out/model" "$out/model_link"
"$lazylora" forward --model "$out/model_link" --ids "$out/ids" --pack "$out/link" --json >"$out/stdout" 2>"$out/stderr" &&
  grep -q '"bytes_from_pack":[1-9]' "$out/stdout"
verdict "a packed copy and its checkpoint are the same through links" $? "$(cat "$out/stderr")"
cp -r "$out/pack" "$out/other"
refuses "a copy of the copy is other files" 1 "was compared as" \
  "$lazylora" forward --model "$out/model" --ids "$out/ids" --pack "$out/other"
"$lazylora" shards "$out/model" --write-digests "$out/digests" >/dev/null 2>&1
touch -r "$out/pack/pack.safetensors" "$out/then"
for offset in 100000 600000; do
  printf X | dd of="$out/pack/pack.safetensors" bs=1 seek=$offset conv=notrunc 2>/dev/null
done
touch -r "$out/then" "$out/pack/pack.safetensors"
refuses "what differs in a copy is listed by its own command" 1 '(and 1 more; `lazylora pack MODEL OUT --verify` lists them)' \
  "${train[@]}" "$out/none" --digests "$out/digests" --pack "$out/pack"

# A disk with nothing free
full=statvfs:1-:ENOSPC
refuses "a run on a full disk is refused, each term in bytes" 1 "the final adapter of " \
  faulty $full "$out" "${train[@]}" "$out/run"
[ ! -e "$out/run" ]
verdict "and is not begun" $?
"${train[@]}" "$out/run" >/dev/null 2>&1 || exit 1
exits "a finished run has nothing to write there" 0 "adapter $out/run/adapter.safetensors" \
  faulty $full "$out" "${train[@]}" "$out/run" --resume
refuses "one with steps to take has" 1 ": 3 checkpoints of " \
  faulty $full "$out" "${train[@]}" "$out/run" --resume --checkpoint-every 1 --override checkpoint-every=1 --override steps=9
rm "$out/run/adapter.safetensors"
refuses "and one whose adapter is not written yet needs it alone" 1 ": 0 checkpoints of " \
  faulty $full "$out" "${train[@]}" "$out/run" --resume
"${train[@]}" "$out/run" --resume >/dev/null 2>&1
refuses "an override for which no step is left is not announced" 1 "--override lr=0.5: $out/run: its 2 steps were taken with 0.0002" \
  "${train[@]}" "$out/run" --resume --override lr=0.5
! grep -q "becomes" "$out/stderr"
verdict "but refused" $? "$(cat "$out/stderr")"

# A step that is too large is planned from borders: a tenth of its tokens would not fit in this address space.
refuses "a million sequences are refused from their borders" 1 "a sweep over 199000000 tokens needs" \
  bash -c 'ulimit -v 1200000; exec "$@"' _ "${train[@]}" "$out/million" --sequences 1000000 --ram 2TB --threads 1

# plan
plan=("$lazylora" plan "$out/model" --tokens 64)
for disk in "500,," "500," ",500" "500,1,2" "500;1" "1e-300" "1e300" "0" "-5" "nan" ""; do
  refuses "plan --disk \"$disk\" is bad usage" 2 "--disk" "${plan[@]}" --gflops 10 --disk="$disk"
done
refuses "so is a processor that computes nothing" 2 '--gflops: "1e-300" must be a decimal number in 0.001 ... 1000000000' \
  "${plan[@]}" --disk 500 --gflops 1e-300
"${plan[@]}" --disk 0.001 --gflops 0.001 --sequences 1024 --ram 100GB >"$out/stdout" 2>&1 && ! grep -qE -- '-[0-9]+ s|inf|nan' "$out/stdout"
verdict "at the least rates no time overflows" $? "$(cat "$out/stdout")"
least() { "${plan[@]}" --disk 500 --gflops 10 --threads 1 --ram "$1" 2>/dev/null | awk '/tokens\/hour/ {table = 1; next} table {print $1, $4, $5; exit}'; }
[ "$(least 40MB)" = "$(least 60MB)" ] && [ "$(least 60MB)" = "$(least 2GB)" ] && [ -n "$(least 2GB)" ]
verdict "the least memory is the same at every --ram" $? "$(least 40MB), $(least 60MB), $(least 2GB)"

# A header of 6 MB of names, which takes eight times as much: refused before it is read, by the budget's own size.
mkdir "$out/wide"
{ printf '{' && seq 100000 209999 | sed 's/.*/"&":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}/' | paste -sd, - | tr -d '\n' && printf '}'; } >"$out/names"
bytes=$(stat -c %s "$out/names")
{ for i in 0 1 2 3 4 5 6 7; do printf "\\x$(printf %02x $((bytes >> 8 * i & 255)))"; done && cat "$out/names"; } >"$out/wide/model.safetensors"
refuses "a header that memory does not hold is not read" 1 "error" "$lazylora" shards "$out/wide" --ram 48MB --threads 1
grep -q "the header takes $bytes bytes, and 8 times as much memory while it is read, of which 48000000 bytes are free" "$out/stdout"
verdict "and its size is named" $? "$(head -n 1 "$out/stdout" | cut -c1-200)"
"$lazylora" shards "$out/wide" --ram 1GB 2>&1 | grep "the header takes" >"$out/stdout"
[ ! -s "$out/stdout" ]
verdict "with more it is" $?

# disk
refuses "disk --bytes 0 is bad usage" 2 "--bytes 0: is 0 bytes, and less than a block of 17547264 is not read" \
  "$lazylora" disk "$out" --bytes 0
refuses "disk of what is not there names it" 1 "$out/nowhere" "$lazylora" disk "$out/nowhere"
[ ! -s "$out/stdout" ]
verdict "and prints nothing else" $? "$(cat "$out/stdout")"
exits "what is read is what is said" 0 ": 35.1 MB, 2 whole blocks of 17547264 bytes" "$lazylora" disk "$out" --bytes 40MB

# Names that are no UTF-8
odd=$out/q$'\xff'
refuses "a run's name that is no UTF-8 is bad usage" 2 "is no UTF-8 from byte" "${train[@]}" "$odd"
refuses "so is that of a set" 2 "--out" "$lazylora" data build --model "$out/model" --records "$out/ids" --length 8 --out "$odd"
refuses "and of a trace" 2 "--out" "$lazylora" trace --model "$out/model" --ids "$out/ids" --out "$odd"
[ ! -e "$odd" ] && ! grep -q "^run " "$out/stderr"
verdict "before work" $?
mkdir "$odd"
refuses "a working folder of such a name is named" 1 "the working folder's name is no UTF-8" \
  bash -c 'cd "$1" && shift && exec "$@"' _ "$odd" "$(realpath "$lazylora")" "${train[@]:1}" "$out/here"
mv "$out/model" "$odd/model"
"$lazylora" shards "$odd/model" >"$out/stdout" 2>&1
verdict "what only reads takes it" $? "$(tail -n 2 "$out/stdout")"
mv "$odd/model" "$out/model"

# What is asked for is looked at before tables are read.
if [ -x "$bench_memory" ]; then
  refuses "bench_memory of a layer that there is not" 1 "layer 99: the model has 13, from 0 on" "$bench_memory" "$out/model" 8 1GB 99
  [ ! -s "$out/stdout" ]
  verdict "opens nothing" $? "$(cat "$out/stdout")"
else
  skip "bench_memory was not built"
fi

close_record
