#!/usr/bin/env bash
# Usage: checks/words_check.sh BUILD_DIR
# What the program says, and that a terminal can only show it: text of others (names, ids files, JSON, metadata)
# arrives as characters, refusals of the file system with path and reason, and what differs is named.
set -uo pipefail
lazylora=$(cd "$1" && pwd)/lazylora
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"
records=$(cd "$(dirname "$0")/.." && pwd)/docs/examples/instructions.jsonl

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
echo 1,2,3,4,5,6,7,8,9,10,11,12 >"$out/ids"
train=("$lazylora" train --model "$out/model" --steps 1 --rank 2 --alpha 4 --out)
forward=("$lazylora" forward --model "$out/model" --ids)

# No byte that a terminal obeys: C0 but tab and line end, DEL, C1 as UTF-8 or alone.
tame() { ! LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|(?<![\xc2-\xf4\x80-\xbf])[\x80-\x9f]' "$@"; }
shows() { # WHAT CODE TEXT COMMAND...: as refuses, and tame
  refuses "$@"
  tame "$out/stdout" "$out/stderr"
  verdict "and a terminal only shows it" $? "$(cat -v "$out/stderr")"
}
esc=$'\x1b[2J' c1=$'\xc2\x9b31m'
hostile="a$esc$c1"$'\x7fü漢'
shown='a\x1B[2J\xC2\x9B31m\x7Fü漢'
shows "a name of a file" 1 "$shown" "${forward[@]}" "$out/$hostile"
printf '1,2,%s' "$hostile" >"$out/words"
shows "a word of an ids file" 1 '\x1B[2J' "${forward[@]}" "$out/words"
shows "a name that is no UTF-8" 1 'x\xFF\x9B: ' "${forward[@]}" "$out/x"$'\xff\x9b'
cp -r "$out/model" "$out/odd"
sed 's/"model_type": *"[^"]*"/"model_type": "k\\u001b]0;title\\u0007\\u009b"/' "$out/model/config.json" >"$out/odd/config.json"
shows "a field of config.json" 1 '\u001b]0;title\u0007\xC2\x9B' "$lazylora" data build --model "$out/odd" --records "$records" --length 192 --out "$out/d"
shows "an option that there is not" 2 "$shown" "${forward[@]}" "$out/ids" "--$hostile"
shows "a command that there is not" 2 "$shown" "$lazylora" "$hostile"
shows "a value that is none" 2 "$shown" "${forward[@]}" "$out/ids" --ram "$hostile"
shows "a name of a run" 2 '\x1B[2J\xC2\x9B31m' "${train[@]}" "$out/r0" --ids "$out/ids" --name "$esc$c1"
"${train[@]}" "$out/$hostile" --ids "$out/ids" >"$out/stdout" 2>"$out/stderr"
grep -qF "$shown" "$out/stdout" "$out/stderr" && tame "$out/stdout" "$out/stderr"
verdict "a run's folder" $? "$(cat -v "$out/stdout" "$out/stderr")"
"$lazylora" status "$out/$hostile" >"$out/stdout" 2>&1
grep -qF "$shown" "$out/stdout" && tame "$out/stdout"
verdict "and its status" $? "$(cat -v "$out/stdout")"
"$lazylora" status "$out/$hostile" --json >"$out/stdout" 2>&1
grep -qF 'a\u001b[2J\u009b31m\u007fü漢' "$out/stdout" && tame "$out/stdout"
verdict "in JSON it is the same JSON" $? "$(cat -v "$out/stdout")"
"$lazylora" --help >"$out/stdout" && tame "$out/stdout" && grep -q 'make-model' "$out/stdout"
verdict "help is as it was" $?
for planted in "$esc" "$c1" $'\x7f' $'\r' $'a\x9b2J'; do
  printf '%s\n' "$planted" >"$out/planted"
  ! tame "$out/planted"
  verdict "planted: $(cat -v <<<"$planted") is seen" $?
done
printf 'ü漢 ⟦a⟧ 😀\tb\n' >"$out/planted" && tame "$out/planted"
verdict "and other text is not" $?

# An option that has to be given is not given by the empty string.
refuses "an empty MODEL" 2 "is empty" "$lazylora" pack "" y
refuses "an empty --model" 2 "is empty" "$lazylora" forward --model "" --ids "$out/ids"
refuses "an empty TRACE" 2 "is empty" "$lazylora" analyze ""
refuses "an empty question" 2 "is empty" "$lazylora" preregister 0001-x --question ""

# What the file system refuses: the path and its reason, whoever asked.
long=$out/$(printf 'x%.0s' {1..300})
while read -r line; do
  # shellcheck disable=SC2086
  refuses "a name that is too long: ${line%% *}" 1 "$long" "$lazylora" $line
  grep -qF 'File name too long' "$out/stderr"
  verdict "and why" $? "$(tail -n 1 "$out/stderr")"
done <<END
data show $long
data build --model $out/model --records $records --length 192 --too-long drop --out $long
import $long --model $out/model --out $out/i
export $long --model $out/model --format peft --out $out/e
forward --model $out/model --ids $out/ids --pack $long
eval --model $out/model --text $long
analyze $long
disk $long
status $long
tokenize --model $out/model $long
END
refuses "a text that is not there: the reason" 1 "No such file or directory" "$lazylora" tokenize --model "$out/model" "$out/none"

# Data sets.
build=("$lazylora" data build --model "$out/model" --records "$records" --length 192 --too-long drop)
"${build[@]}" --count 6 --out "$out/set" >/dev/null 2>&1 && "${build[@]}" --shuffle --seed 7 --not-in "$out/set" --out "$out/other" >/dev/null 2>&1
verdict "two sets" $?
"${build[@]}" --count 8 --out "$out/wider" >/dev/null 2>&1
in_both=$(comm -12 <(grep -o '"record":"[0-9a-f]*' "$out/set/records.jsonl" | sort) <(grep -o '"record":"[0-9a-f]*' "$out/wider/records.jsonl" | sort) | wc -l)
[ "$in_both" -gt 0 ]
verdict "and one that shares records with the first" $?
refuses "a category that no record has is not passed over" 1 'no record has the category "tukrish" of --categories' "${build[@]}" --categories turkish,tukrish --out "$out/none"
cp -r "$out/set" "$out/copy"
held=(--data "$out/set" --eval-every 1 --eval-data)
refuses "what is trained is not what is held out" 1 "6 of its 6 records are in --data $out/set" "${train[@]}" "$out/r1" "${held[@]}" "$out/set"
refuses "not even in part" 1 "$in_both of its 8 records are in --data $out/set" "${train[@]}" "$out/r1" "${held[@]}" "$out/wider"
refuses "nor under another name" 1 "$out/copy" "${train[@]}" "$out/r1" "${held[@]}" "$out/copy"
[ ! -e "$out/r1" ]
verdict "and nothing is begun" $?
"${train[@]}" "$out/r2" "${held[@]}" "$out/other" >/dev/null 2>"$out/stderr"
verdict "other records are" $? "$(tail -n 1 "$out/stderr")"
sed -i '1s/"line":[0-9]*/"line":9/' "$out/copy/records.jsonl"
refuses "records.jsonl is held against its digest" 1 "copy/records.jsonl: SHA-256 is" "${train[@]}" "$out/r1" --data "$out/copy"
refuses "and by eval" 1 "copy/records.jsonl: SHA-256 is" "$lazylora" eval --model "$out/model" --set "$out/copy"
cp -r "$out/model" "$out/tokens" && sed -i 's/\[UNK\]/[NIL]/' "$out/tokens/tokenizer_config.json"
for command in "data show $out/set --model" "eval --set $out/set --model" "train --steps 1 --out $out/r1 --data $out/set --model"; do
  # shellcheck disable=SC2086
  refuses "another tokenizer is named: ${command%% *}" 1 "$(sha256sum <"$out/tokens/tokenizer_config.json" | cut -d' ' -f1)" "$lazylora" $command "$out/tokens"
  grep -qF "$(sha256sum <"$out/model/tokenizer_config.json" | cut -d' ' -f1)" "$out/stderr"
  verdict "and that of the set" $? "$(tail -n 1 "$out/stderr")"
done

# A folder of one kind where another is wanted is named as what it is.
before=$(cat "$out"/set/* | sha256sum)
for command in status watch "export --model $out/model --format peft --out $out/e1" "eval --ids $out/ids --run" "generate $out/model --prompt a --adapter" \
  "forward --model $out/model --ids $out/ids --adapter" "train --model $out/model --ids $out/ids --steps 1 --out"; do
  # shellcheck disable=SC2086
  refuses "a set is no run: ${command%% *}" 1 "$out/set: is a data set, not a run: --data takes it" "$lazylora" $command "$out/set"
done
[ "$(cat "$out"/set/* | sha256sum)" = "$before" ] && [ "$(ls "$out/set" | wc -l)" -eq 3 ]
verdict "and stays what it is" $?
for command in "data show" "eval --model $out/model --set" "train --model $out/model --steps 1 --out $out/r3 --data" \
  "preregister 0009-set --folder $out/r3 --model $out/model --question q --task set:a --metric loss --direction above --threshold 1 --units 4 --stopping-rule s --refuted-by r --expected e --data"; do
  # shellcheck disable=SC2086
  refuses "a run is no set: ${command%% *}" 1 "$out/r2: is a run, not a data set: \`lazylora status\` and --adapter take it" "$lazylora" $command "$out/r2"
  # shellcheck disable=SC2086
  refuses "nor is a model: ${command%% *}" 1 "$out/model: is a model, not a data set: --model takes it" "$lazylora" $command "$out/model"
done
[ ! -e "$out/r3" ]
verdict "and nothing is written" $?

# An adapter with a NaN.
cp "$out/r2/adapter.safetensors" "$out/nan"
printf '\0\0\xc0\x7f' | dd of="$out/nan" bs=1 seek=$(($(stat -c %s "$out/nan") - 4)) conv=notrunc 2>/dev/null
refuses "a NaN in an adapter" 1 "is nan, not finite" "${forward[@]}" "$out/ids" --adapter "$out/nan"
grep -qE "$out/nan: tensor layers\.[0-9]+\.[a-z_]+\.lora_[AB]: element [0-9]+ is nan" "$out/stderr"
verdict "with tensor and element" $? "$(tail -n 1 "$out/stderr")"

# A packed copy that differs, whose `verified` cannot be removed.
"$lazylora" pack "$out/model" "$out/pack" >/dev/null 2>&1
printf X | dd of="$out/pack/pack.safetensors" bs=1 seek=100000 conv=notrunc 2>/dev/null
rm "$out/pack/verified" && mkdir -p "$out/pack/verified/x"
refuses "what differs is named" 1 "pack.json says" "$lazylora" pack "$out/model" "$out/pack" --verify
grep -qF "$out/pack/verified, which says otherwise, cannot be removed: Directory not empty" "$out/stderr"
verdict "and that \`verified\` stays" $? "$(tail -n 1 "$out/stderr")"

close_record
