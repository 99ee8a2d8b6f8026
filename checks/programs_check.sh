#!/usr/bin/env bash
# Usage: checks/programs_check.sh BUILD_DIR
# The check programs as a reader meets them: exit code 0 where it holds, 1 where it does not or where the
# input is wrong (one line that names file and place), 2 for bad usage. And dumps on a disk that fills up.
set -uo pipefail
build=$1
lazylora=$build/lazylora oracle_dump=$build/oracle/oracle_dump checks=$build/checks
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
"$lazylora" make-model "$out/other" --shape tiny --seed 1 >/dev/null || exit 1
sed -i 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1.1e-05/' "$out/other/config.json"
echo 5,6,7,8 >"$out/ids"
echo 5,6,7,9 >"$out/ids_other"
echo 5,6,7 >"$out/ids_short"
mkdir "$out/empty"
echo '{' >"$out/empty/result.json"
mkdir "$out/odd"
echo '{"r": "four"}' >"$out/odd/result.json"
echo text >"$out/text.h5"
"$lazylora" forward --model "$out/model" --ids "$out/ids" --dump "$out/dump" >/dev/null || exit 1
"$lazylora" forward --model "$out/model" --ids "$out/ids" --dump "$out/dump.h5" >/dev/null || exit 1
"$oracle_dump" --model "$out/model" --ids "$out/ids" "$out/oracle.h5" || exit 1
forward=("$checks/check_forward" --model "$out/model" --ids "$out/ids" --reference)

for program in check_forward check_gradients check_trajectory; do
  exits "$program --help" 0 "--model" "$checks/$program" --help
  exits "$program with an unknown option" 2 "--colour" "$checks/$program" --colour
  exits "$program with half of a pair" 2 "requires" "$checks/$program" --model "$out/model"
done
# Timed programs: what they cannot take is refused, and not taken for something else.
exits "bench_memory of a layer behind the last" 1 "layer 99: the model has 13" "$checks/bench_memory" "$out/model" 16 3GB 99
for arguments in "16 3GB -1" "16 3GB abc" "0 3GB" "16x 3GB" "16"; do
  exits "bench_memory MODEL $arguments" 2 "--help" "$checks/bench_memory" "$out/model" $arguments
done
for arguments in 0 "16 abc" "16 1 clock"; do
  exits "bench_stream MODEL $arguments" 2 "--help" "$checks/bench_stream" "$out/model" $arguments
done
for arguments in 0 "16 -5"; do
  exits "bench_sequences MODEL $arguments" 2 "--help" "$checks/bench_sequences" "$out/model" $arguments
done
exits "oracle_dump --help" 0 "usage" "$oracle_dump" --help
exits "oracle_dump without arguments" 2 "usage" "$oracle_dump"

exits "check_forward holds against the engine's own folder" 0 "verdict: agrees" "${forward[@]}" "$out/dump"
exits "check_forward holds against the engine's own file" 0 "verdict: agrees" "${forward[@]}" "$out/dump.h5"
exits "check_forward holds against the oracle's file" 0 "verdict: agrees" "${forward[@]}" "$out/oracle.h5"
for dump in dump dump.h5 oracle.h5; do
  exits "$dump of other ids" 1 "id 3 is 8 there, 9 is given" "$checks/check_forward" --model "$out/model" --ids "$out/ids_other" --reference "$out/$dump"
  exits "$dump of more ids" 1 "4 ids" "$checks/check_forward" --model "$out/model" --ids "$out/ids_short" --reference "$out/$dump"
  exits "$dump of another configuration" 1 "SHA-256" "$checks/check_forward" --model "$out/other" --ids "$out/ids" --reference "$out/$dump"
done
rm "$out/dump/ids.txt" "$out/dump/config_sha256.txt"
exits "a dump that does not say its ids, of other rows" 1 "are not rows of 3 tokens" "$checks/check_forward" --model "$out/model" --ids "$out/ids_short" --reference "$out/dump"
exits "a dump that is not there" 1 "$out/nowhere" "${forward[@]}" "$out/nowhere"
exits "a dump that is no HDF5" 1 "text.h5: is no HDF5 file" "${forward[@]}" "$out/text.h5"
exits "a folder that is no dump" 1 "$out/empty" "${forward[@]}" "$out/empty"
mv "$out/dump/h_layer_004.bin" "$out/h_layer_004.bin"
exits "a dump that lacks a layer" 1 "has no h_layer_004" "${forward[@]}" "$out/dump"
# Planted: one value of one layer is another. 6.0 as float32, in the middle of the file.
cp "$out/h_layer_004.bin" "$out/dump/"
printf '\x00\x00\xc0\x40' | dd of="$out/dump/h_layer_004.bin" bs=4 seek=200 conv=notrunc status=none
exits "planted: one value of one layer's dump" 1 "DOES NOT AGREE" "${forward[@]}" "$out/dump"
exits "an existing table is not written over" 1 "text.h5: exists already" "${forward[@]}" "$out/dump.h5" --out "$out/text.h5"
exits "check_gradients likewise" 1 "text.h5: exists already" "$checks/check_gradients" --quick --out "$out/text.h5"
exits "check_trajectory likewise" 1 "text.h5: exists already" "$checks/check_trajectory" --out "$out/text.h5"
exits "check_self likewise" 1 "text.h5: exists already" "$checks/check_self" --out "$out/text.h5"
exits "check_self with an unknown option" 2 "usage" "$checks/check_self" --colour
# Records: every line JSON with check and outcome, names unique in their table, and the counts at the end.
exits "a record of check_forward" 0 "verdict: agrees" "${forward[@]}" "$out/oracle.h5" --out "$out/forward.jsonl"
exits "a record of check_self" 0 "0 failed" "$checks/check_self" --out "$out/self.jsonl"
sound() { # FILE
  awk '!/^\{"check":"[a-z_]+"/ || /[^}]$/ {exit 1} /"outcome"/ {match($0, /.*"outcome"/); if (seen[substr($0, 1, RLENGTH)]++) exit 1; rows++} {last = $0}
       END {exit !(rows > 3 && last ~ /"passed":[1-9][0-9]*,"failed":0,"skipped":[0-9]+\}$/)}' "$1"
}
for record in forward self; do
  sound "$out/$record.jsonl"
  verdict "the record of check_$record is one" $? "$(tail -n 2 "$out/$record.jsonl")"
  head -n -1 "$out/$record.jsonl" >"$out/cut.jsonl"
  ! sound "$out/cut.jsonl"
  verdict "planted: without its last line it is none" $?
done

for program in check_gradients check_trajectory; do
  one=("$checks/$program" --model "$out/model" --reference)
  exits "$program without a case" 1 "$out/nowhere/result.json: cannot be opened" "${one[@]}" "$out/nowhere"
  exits "$program with half a file" 1 "$out/empty/result.json: not valid JSON" "${one[@]}" "$out/empty"
  exits "$program with another file" 1 "$out/odd/result.json: /" "${one[@]}" "$out/odd"
done
exits "a model that is not there" 1 "$out/nowhere" "$checks/check_forward" --model "$out/nowhere" --ids "$out/ids"

# A disk that fills up. ulimit counts KiB; the signal that goes with it is ignored, as on a full disk.
full() { (trap '' XFSZ && ulimit -f "$1" && shift && exec "$@"); }
nothing_left() { ! compgen -G "$out/full*" >/dev/null; verdict "and nothing is left" $?; }
for size in 0 8 60 200; do
  exits "forward --dump FILE with room for $size KiB" 1 "File too large" full $size "$lazylora" forward --model "$out/model" --ids "$out/ids" --dump "$out/full.h5"
  nothing_left
done
exits "forward --dump FOLDER with room for 1 KiB a file" 1 "File too large" full 1 "$lazylora" forward --model "$out/model" --ids "$out/ids" --dump "$out/full"
nothing_left
exits "oracle_dump with room for 60 KiB" 1 "File too large" full 60 "$oracle_dump" --model "$out/model" --ids "$out/ids" "$out/full.h5"
nothing_left
exits "oracle_dump does not write over a file" 1 "text.h5: exists already" "$oracle_dump" --model "$out/model" --ids "$out/ids" "$out/text.h5"

close_record
