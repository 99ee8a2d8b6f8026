#!/usr/bin/env bash
# Usage: checks/eval_check.sh BUILD_DIR
# A registered run, evaluated and reported: every number of a report is that of the line it links to, a run is
# judged only by what it began with, and a refusal gets its page as well. Pages are opened in Chromium, offline,
# where there is one.
set -uo pipefail
build=$1
lazylora=$build/lazylora here=$(cd "$(dirname "$0")/.." && pwd)
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
printf 'The wind had fallen. He wrote the hour, the bearing, and how he knew them.' >"$out/note.txt"
seq -s, 7 19 240 >"$out/a.txt"
register=("$lazylora" preregister --folder "$out/reg" --question "Does it?" --data "$out/note.txt" --task text:note.txt
  --metric loss --direction below --threshold 0.5 --units 4 --chunk 16 --model "$out/model" --stopping-rule "2 steps" --refuted-by "more" --expected "yes")
train=("$lazylora" train --model "$out/model" --ids "$out/a.txt" --steps 2 --rank 2 --alpha 4 --lr 1e-3 --warmup 1)
eval=("$lazylora" eval --run "$out/run" --text "$out/note.txt" --chunk 16)

exits "a registration" 0 "0001-note.json" "${register[@]}" 0001-note
before=$(cat "$out"/reg/* | sha256sum)
exits "the same text again changes nothing" 0 "is registered already" "${register[@]}" 0001-note
exits "another text under that name does not" 1 "is there already, SHA-256 $(sha256sum <"$out/reg/0001-note.json" | cut -d' ' -f1), and this text would have" "${register[@]/#0.5/0.4}" 0001-note
exits "nor do other settings" 1 "is not changed" "${register[@]}" 0001-note --seed 2
exits "nor another name under its number" 1 "has that number already, and 0001-other may not" "${register[@]}" 0001-other
exits "what is not UTF-8 is bad usage" 2 "is no UTF-8 from byte 2 on" "${register[@]:0:${#register[@]}-1}" $'no\xff' 0004-odd
exits "and so is a stride beyond the chunk" 2 "would not be scored" "${register[@]}" 0004-odd --stride 17
mkdir -p "$out/odd/0004-folder.json"
: >"$out/odd/0005-empty.json"
: >"$out/odd/0006-page.md"
exits "a folder in its place" 1 "0004-folder.json: is a directory, not a regular file (a registration is the NNNN-slug.json of" "${register[@]/#$out\/reg/$out/odd}" 0004-folder
exits "an empty file in its place" 1 "of \`lazylora preregister\`); it is in the place of a registration: move it away" "${register[@]/#$out\/reg/$out/odd}" 0005-empty
ln -s "$out/nowhere" "$out/odd/0007-link.json"
exits "a link that leads nowhere in its place" 1 "0007-link.json: is a link that leads nowhere" "${register[@]/#$out\/reg/$out/odd}" 0007-link
exits "a question of blanks" 2 "question is blanks alone" "${register[@]/#Does it?/   }" 0008-blank
exits "one file twice" 2 "note.txt stands there twice" "${register[@]}" 0008-twice --data "$out/note.txt"
exits "a page alone" 1 "0006-page.md: is there, and 0006-page.json is not" "${register[@]/#$out\/reg/$out/odd}" 0006-page
[ "$(cat "$out"/reg/* | sha256sum)" = "$before" ] && [ "$(find "$out/odd" -type f | wc -l)" -eq 2 ]
verdict "none of these wrote anything" $?
exits "a name without a number is bad usage" 2 "NNNN-slug" "${register[@]}" note
[ ! -e "$out/reg/note.json" ] && [ "$(sha256sum <"$out/reg/0001-note.json" | cut -d' ' -f1)" = "$(sed -n 's/.*SHA-256 `\([0-9a-f]*\)`.*/\1/p' "$out/reg/0001-note.md")" ]
verdict "its page names its digest" $?
# A time stamping authority of our own: `stamp NAME FILE` makes NAME.tsr of FILE, NAME.pem being its certificate.
if command -v openssl >/dev/null; then
  mkdir "$out/tsa"
  printf '[tsa]\ndefault_tsa=one\n[one]\nserial=%s/serial\ndefault_policy=1.2.3\ndigests=sha256\naccuracy=secs:1\nsigner_digest=sha256\n' "$out/tsa" >"$out/tsa/config"
  stamp() {
    local pem=$out/tsa/$1.pem key=$out/tsa/$1.key
    [ -e "$pem" ] || openssl req -x509 -newkey rsa:2048 -nodes -subj "/CN=$1" -days 2 -keyout "$key" -out "$pem" \
      -addext extendedKeyUsage=critical,timeStamping -addext keyUsage=critical,digitalSignature
    openssl ts -query -data "$2" -sha256 -cert -out "$out/tsa/query" &&
      openssl ts -reply -config "$out/tsa/config" -queryfile "$out/tsa/query" -signer "$pem" -inkey "$key" -out "$out/tsa/$3.tsr"
  }
  { stamp ours "$out/reg/0001-note.json" early && stamp ours "$out/note.txt" other && stamp theirs "$out/reg/0001-note.json" theirs; } >"$out/tsa/log" 2>&1 || cat "$out/tsa/log"
  sleep 1.1 # a token knows whole seconds
fi

exits "a run does not begin with what is no registration" 1 "note.txt" "${train[@]}" --out "$out/run" --preregistration "$out/note.txt"
exits "a run begins with it" 0 adapter "${train[@]}" --out "$out/run" --preregistration "$out/reg/0001-note.json"
grep -q "\"preregistration_sha256\": \"$(sha256sum <"$out/reg/0001-note.json" | cut -d' ' -f1)\"" "$out/run/manifest.json"
verdict "and its manifest says so" $?

exits "is judged by it" 0 "0001-note: met" "$here/reports/eval.sh" "$build" "$out/met" "${eval[@]:2}" --gradient --preregistration "$out/reg/0001-note.json"
grep -q '"time": "own clock only"' "$out/met/results.json"
verdict "by its own clock only, it says" $?
[ "$(grep -c '"jaccard": ' "$out/met/results.json")" -gt 3 ] && grep -q '^## Routing, before and after' "$out/met/report.md"
verdict "routing before and after is measured and reported" $?
"${eval[@]}" --threads 1 --batch-tokens 20 --isa scalar --gradient --preregistration "$out/reg/0001-note.json" --out "$out/again" >/dev/null
cmp "$out/met/results.json" "$out/again/results.json" && cmp "$out/met/units.jsonl" "$out/again/units.jsonl"
verdict "one thread, small sweeps, scalar: the same bytes" $?

# Every link [NUMBER](results.json#LINE) of a page: that line says that number.
audit() { # PAGE RESULTS
  awk 'NR == FNR {line[NR] = $0; next}
    {text = $0
     while (match(text, /\[[^]]*\]\(results.json#L[0-9]+\)/)) {
       link = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
       shown = substr(link, 2, index(link, "](") - 2); number = link; sub(/.*#L/, "", number)
       said = line[number + 0]; sub(/^ *("([^"\\]|\\.)*": )?/, "", said); sub(/,$/, "", said); gsub(/^"|"$/, "", said)
       gsub(/\\/, "", shown); gsub(/\\/, "", said); ++links
       if (shown ~ /^-?[0-9]+\.[0-9]+(e[-+][0-9]+)?$/) {
         off = shown - said; if (off < 0) off = -off
         if (off > 0.50001e-6 * (shown ~ /e/ ? said : 1)) {print shown " is " said; bad = 1}
       } else if (shown != said && !(shown == "-" && said == "null")) {print shown " is " said; bad = 1}
     }}
    END {exit bad || links < 30}' "$2" "$1"
}
audit "$out/met/report.md" "$out/met/results.json"
verdict "every number of the page is that of its line" $?
sed 's/\(report\|[0-9]\.\)\([0-8]\)\([0-9]*\](results.json#L5)\)/\19\3/' "$out/met/report.md" >"$out/planted.md"
! cmp -s "$out/planted.md" "$out/met/report.md" && ! audit "$out/planted.md" "$out/met/results.json" >/dev/null
verdict "planted: another digit is noticed" $?
[ "$(grep -o 'href="#L[0-9]*"' "$out/met/report.html" | sort -u | tr -dc '0-9\n' | sort -n | tail -n 1)" -le "$(grep -o 'id="L[0-9]*"' "$out/met/report.html" | wc -l)" ]
verdict "every link of the HTML has its line in the same file" $?
! grep -oE '(src|href)="[^"]*"' "$out/met/report.html" | grep -vE '"(#L[0-9]+|data:image/svg\+xml;base64,[A-Za-z0-9+/=]+)"'
verdict "and it asks for nothing outside itself" $?

# Refusals are reported, not hidden.
refused() { # WHAT TEXT OPTIONS...
  local what=$1 text=$2
  shift 2
  rm -rf "$out/refused"
  exits "$what" 1 "does not hold for this run" "$here/reports/eval.sh" "$build" "$out/refused" "${eval[@]:2}" "$@"
  head -n 1 "$out/refused/report.md" | grep -q '^# Refused' && grep -q "$text" "$out/refused/report.md"
  verdict "and its page says so" $?
}
pages=$(cat "$out/met"/* | sha256sum)
exits "a second evaluation into one folder says what to do" 1 "$out/met: holds an evaluation already, and nothing was evaluated: name another folder" \
  "$here/reports/eval.sh" "$build" "$out/met" "${eval[@]:2}"
[ "$pages" = "$(cat "$out/met"/* | sha256sum)" ]
verdict "and renders nothing again" $?
sed 's/"threshold": 0.5/"threshold": 9.5/' "$out/reg/0001-note.json" >"$out/changed.json"
refused "a registration that was changed" "changed: the run began with" --preregistration "$out/changed.json"
refused "one that is not given" "missing: the run began with"
refused "one that is gone" "missing: .*nowhere.json" --preregistration "$out/nowhere.json"
refused "a folder" "unreadable: .*/odd: is a directory, not a regular file" --preregistration "$out/odd"
refused "an empty file" "unreadable: .*0005-empty.json: is empty" --preregistration "$out/odd/0005-empty.json"
if command -v openssl >/dev/null; then
  registered=(--preregistration "$out/reg/0001-note.json" --time-authorities "$out/tsa/ours.pem" --time-proof)
  exits "a time proof holds" 0 "0001-note: met" "${eval[@]}" "${registered[@]}" "$out/tsa/early.tsr" --out "$out/proven"
  grep -q '"time": "RFC 3161: existed at 20[0-9-]* [0-9:]* UTC' "$out/proven/results.json"
  verdict "and the report says when" $?
  refused "a proof of something else" "time proof: .*other.tsr" "${registered[@]}" "$out/tsa/other.tsr"
  refused "a proof by another authority" "time proof: .*theirs.tsr" "${registered[@]}" "$out/tsa/theirs.tsr"
  refused "a proof that is none" "time proof: .*note.txt" "${registered[@]}" "$out/note.txt"
  head -c -1 "$out/tsa/early.tsr" >"$out/tsa/cut.tsr"
  refused "a proof that is cut short" "time proof: .*cut.tsr" "${registered[@]}" "$out/tsa/cut.tsr"
  stamp ours "$out/reg/0001-note.json" late >/dev/null 2>&1
  refused "a proof from after the start" "younger: proven for" "${registered[@]}" "$out/tsa/late.tsr"
else
  skip "time proofs: no openssl command to make one with"
fi
# An OpenTimestamps proof, and the header of a block that nobody mined for Bitcoin: `ots NAME FILE TIME` makes
# NAME.ots of FILE, its hash hashed twice more, and NAME.header with that as its Merkle root.
bytes() { printf "$(tr -d ' ' <<<"$1" | sed 's/../\\x&/g')"; }
hash() { bytes "$1" | sha256sum | cut -c 1-64; }
ots() {
  local digest word header nonce=0
  digest=$(sha256sum <"$2" | cut -c 1-64)
  bytes "004f70656e54696d657374616d7073000050726f6f6600bf89e2e884e8929401 08 $digest 0808 00 0588960d73d71901 01 07" >"$out/$1.ots"
  word=$(printf %08x "$3")
  header=$(printf '00000020%064d%s%s' 0 "$(hash "$(hash "$digest")")" "${word:6:2}${word:4:2}${word:2:2}${word:0:2}ffff7f20")
  until [[ $(hash "$(hash "$header$(printf %02x000000 $nonce)")") =~ [0-6].$ ]]; do nonce=$((nonce + 1)); done
  printf '%s%02x000000\n' "$header" $nonce >"$out/$1.header"
}
start=$(sed -n 's/.*"start_unix_ns": \([0-9]*\).*/\1/p' "$out/run/manifest.json" | head -n 1)
ots early "$out/reg/0001-note.json" $((start / 1000000000 - 60))
ots late "$out/reg/0001-note.json" $((start / 1000000000 + 60))
ots other "$out/note.txt" $((start / 1000000000 - 60))
registered=(--preregistration "$out/reg/0001-note.json" --block-header "$out/early.header" --ots-proof)
exits "an OpenTimestamps proof holds" 0 "0001-note: met" "${eval[@]}" "${registered[@]}" "$out/early.ots" --out "$out/stamped"
grep -q '"time": "OpenTimestamps: existed when block .* about 2^1 hashes .* block 7; .* checked elsewhere' "$out/stamped/results.json"
verdict "and the report says what that rests on" $?
# The settings are those of the registration.
grep -q '"settings": "as registered"' "$out/met/results.json" && grep -q '\[as registered\](results.json#L' "$out/met/report.md"
verdict "the report says that its settings were registered" $?
"$lazylora" eval --run "$out/run" --text "$out/note.txt" --gradient --preregistration "$out/reg/0001-note.json" --out "$out/unsaid" >/dev/null &&
  cmp "$out/met/results.json" "$out/unsaid/results.json"
verdict "without a flag they are the registered ones" $?
for other in "--chunk 17 16" "--stride 8 16" "--bos first none" "--seed 2 1"; do
  read -r flag given frozen <<<"$other"
  exits "another $flag is refused" 1 "$flag is $given, and $out/reg/0001-note.json has $frozen" "$lazylora" eval --run "$out/run" --text "$out/note.txt" \
    --preregistration "$out/reg/0001-note.json" --out "$out/chosen" $flag $given
done
[ ! -e "$out/chosen" ]
verdict "and nothing is written" $?
# The model and the tokenizer are those of the registration, too; of the weights a report says how far they were verified.
exits "a registration without its model is bad usage" 2 "--model is required" "${register[@]:0:20}" "${register[@]:22}" 0008-loose
said() { grep -qF "\"weights\": \"$2\"" "$out/$1/results.json" && grep -qF "Weights: [$2](results.json#L" "$out/$1/report.md" && grep -q '"model": "as registered"' "$out/$1/results.json"; }
said met "content not verified"
verdict "the report says that no weights were verified" $?
"$lazylora" shards "$out/model" --write-digests "$out/digests.json" >/dev/null
digests=$(sha256sum <"$out/digests.json" | cut -d' ' -f1)
exits "verified, but not registered" 0 "weights: content verified against digests of SHA-256 $digests, which are not in the registration" \
  "${eval[@]}" --preregistration "$out/reg/0001-note.json" --digests "$out/digests.json"
"${register[@]}" 0007-bound --digests "$out/digests.json" >/dev/null
"${train[@]}" --out "$out/bound" --preregistration "$out/reg/0007-bound.json" >/dev/null 2>&1
bound=("$lazylora" eval --run "$out/bound" --text "$out/note.txt" --preregistration "$out/reg/0007-bound.json")
"$here/reports/eval.sh" "$build" "$out/verified" "${bound[@]:2}" --digests "$out/digests.json" >/dev/null 2>&1
said verified "content verified against the registered digests, SHA-256 $digests"
verdict "verified against what was registered" $?
exits "without --digests that is missing" 0 "weights: content not verified against the registered digests, SHA-256 $digests" "${bound[@]}"
computes_nothing() { # WHAT TEXT COMMAND...: what cannot be judged is said before hours of computing, nothing is written
  exits "$1" 1 "$2" "${@:3}" --out "$out/unread"
  [[ $("${@:3}" 2>&1) != *"  base "* ]] && [ ! -e "$out/unread" ]
  verdict "and nothing was computed" $?
}
digest() { sha256sum <"$1" | cut -d' ' -f1; }
odd_train=("${train[@]/#$out\/model/$out/odd_model}" --preregistration "$out/reg/0007-bound.json")
for file in tiktoken.model config.json tokenizer_config.json; do
  rm -rf "$out/odd_model"
  cp -r "$out/model" "$out/odd_model"
  if [ $file = tiktoken.model ]; then
    awk '{t[NR] = $1; r[NR] = $2} END {x = t[98]; t[98] = t[99]; t[99] = x; for (i = 1; i <= NR; ++i) print t[i], r[i]}' "$out/model/$file" >"$out/odd_model/$file"
  else
    echo >>"$out/odd_model/$file"
  fi
  why="SHA-256 of its $file is $(digest "$out/odd_model/$file"), and $out/reg/0007-bound.json was registered with $(digest "$out/model/$file")"
  computes_nothing "planted: another $file" "$why" "${bound[@]}" --model "$out/odd_model"
  computes_nothing "with which no run begins either" "$why" "${odd_train[@]}"
done
rm -rf "$out/odd_model"
cp -r "$out/model" "$out/odd_model"
shard=$(find "$out/odd_model" -name '*.safetensors' | sort | tail -n 1)
head -c 64 /dev/zero | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 64)) conv=notrunc status=none
computes_nothing "planted: other weights behind the same headers" ", the manifest says " "${bound[@]}" --model "$out/odd_model" --digests "$out/digests.json"
exits "which nothing else tells, as the report says" 0 "weights: content not verified" "${bound[@]}" --model "$out/odd_model"
"$lazylora" shards "$out/odd_model" --write-digests "$out/odd_digests.json" >/dev/null
why="SHA-256 of its --digests is $(digest "$out/odd_digests.json"), and $out/reg/0007-bound.json was registered with $digests"
computes_nothing "planted: their digests" "$why" "${bound[@]}" --model "$out/odd_model" --digests "$out/odd_digests.json"
computes_nothing "with which no run begins either" "$why" "${odd_train[@]}" --digests "$out/odd_digests.json"
# Of the first format, which fixed none of them: what was registered so stays what it is.
mkdir "$out/first"
sed -E 's/preregistration 2/preregistration 1/; /^ "(chunk|stride|bos|seed|resamples)": /d; /^ "model": /,/^ [}]/d' "$out/reg/0001-note.json" >"$out/first/0001-note.json"
"${train[@]}" --out "$out/of_first" --preregistration "$out/first/0001-note.json" >/dev/null 2>&1
exits "a registration of the first format leaves them open, and that is said" 0 "0001-note was registered without chunk, stride, bos, seed and resamples" \
  "$lazylora" eval --run "$out/of_first" --text "$out/note.txt" --chunk 16 --seed 3 --preregistration "$out/first/0001-note.json" --out "$out/open"
grep -q '"verdict": "met"' "$out/open/results.json" && ! grep -q '"settings"' "$out/open/results.json"
verdict "and its results are those that it always had" $?
exits "without the header it proves nothing" 0 "0001-note: met" "${eval[@]}" "${registered[@]:0:2}" --ots-proof "$out/early.ots" --out "$out/headless"
grep -q '"time": "own clock only: the OpenTimestamps proof leads to Bitcoin block 7, whose header was not given"' "$out/headless/results.json"
verdict "and the report says so" $?
refused "an OpenTimestamps proof of something else" "time proof: .*other.ots" "${registered[@]}" "$out/other.ots"
refused "one by another header" "time proof: .*early.ots.*other.header has" "${registered[@]:0:2}" --ots-proof "$out/early.ots" --block-header "$out/other.header"
refused "one whose block is younger than the run" "younger: proven for" "${registered[@]:0:2}" --ots-proof "$out/late.ots" --block-header "$out/late.header"
exits "a place that takes no folder" 1 "/proc/none" "${eval[@]}" --out /proc/none/e
[[ $("${eval[@]}" --out /proc/none/e 2>&1) != *"loss "* ]]
verdict "and nothing was computed" $?
computes_nothing "a proof that is not there" "nowhere.ots" "${eval[@]}" "${registered[@]}" "$out/nowhere.ots"
computes_nothing "a header that is not there" "nowhere.header" "${eval[@]}" "${registered[@]:0:2}" --ots-proof "$out/early.ots" --block-header "$out/nowhere.header"
computes_nothing "a folder for a time proof" "/tsa" "${eval[@]}" "${registered[@]:0:2}" --time-proof "$out/tsa" --time-authorities "$out/note.txt"
refused_early=$("${eval[@]}" "${registered[@]}" "$out/other.ots" 2>&1 | grep -nE 'will be refused: time proof|  base ' | cut -d: -f2 | cut -c1-8 | tr -d '\n')
[ "$refused_early" = "warning  base  " ]
verdict "one that does not hold is said before the numbers" $? "$refused_early"
exits "a header without a proof is bad usage" 2 "ots-proof" "${eval[@]}" "${registered[@]:0:4}"
"${register[@]}" 0002-late >/dev/null
refused "one that is younger than the run" "younger: registered at" --preregistration "$out/reg/0002-late.json"
"${train[@]}" --out "$out/plain" >/dev/null 2>&1
exits "a run without one is exploratory" 0 "exploratory" "$lazylora" eval --run "$out/plain" --text "$out/note.txt" --chunk 16
"$lazylora" eval --model "$out/model" --text "$out/note.txt" --chunk 16 --out "$out/base" >/dev/null && "$here/reports/render.sh" "$build" "$out/base" >/dev/null &&
  grep -q '"routing": {}' "$out/base/results.json" && ! grep -q 'Routing' "$out/base/report.md"
verdict "the base model alone has no routing to compare" $?
exits "a registration is about one model" 2 "excludes" "$lazylora" eval --run "$out/run" --foreign-adapter --text "$out/note.txt" --preregistration "$out/reg/0001-note.json"
exits "and cannot get one afterwards" 1 "began without" "$lazylora" eval --run "$out/plain" --text "$out/note.txt" --preregistration "$out/reg/0001-note.json"

# Texts of a corpus: what is dated after the day, checked, and told where from.
printf '{"file":"note.txt","date":"2026-09-01","revision":"r7","source":"a hand"}\n{"file":"a.txt","date":"2024-02-29","revision":"r1","source":"seq"}\n' >"$out/list.jsonl"
exits "a corpus" 0 "1 texts, 1 left out" "$lazylora" data corpus --list "$out/list.jsonl" --after 2025-12-31 --out "$out/later"
exits "a day that was not is bad usage" 2 "no calendar has" "$lazylora" data corpus --list "$out/list.jsonl" --after 2025-02-30 --out "$out/never"
exits "a run is judged on its texts" 0 "0001-note: met" "$here/reports/eval.sh" "$build" "$out/corpus" --run "$out/run" --text "$out/later" --chunk 16 --preregistration "$out/reg/0001-note.json"
grep -q '"revision": "r7"' "$out/corpus/results.json" && grep -q '\[r7\](results.json#L' "$out/corpus/report.md" && audit "$out/corpus/report.md" "$out/corpus/results.json"
verdict "and the report says their revisions" $?
exits "registered as its texts" 0 "0003-later.json" "$lazylora" preregister 0003-later "${register[@]:2:4}" --data "$out/later" "${register[@]:8}"
grep -q "\"sha256\": \"$(sha256sum <"$out/note.txt" | cut -d' ' -f1)\"" "$out/reg/0003-later.json"
verdict "with their digests" $?
printf 'w' | dd of="$out/later/texts/note.txt" bs=1 conv=notrunc status=none
exits "a text that changed since is not evaluated" 1 "the manifest says" "$lazylora" eval --run "$out/run" --text "$out/later" --chunk 16

# What a registered run says of itself, edited: manifest, log and checkpoint hold one another.
planted() { # WHAT TEXT FILE SED-SCRIPT [REGISTRATION]
  rm -rf "$out/edited"
  cp -r "$out/run" "$out/edited"
  sed -i "$4" "$out/edited/$3"
  ! cmp -s "$out/run/$3" "$out/edited/$3" || echo "nothing was planted in $3"
  exits "planted: $1" 1 "$2" "$lazylora" eval --run "$out/edited" --text "$out/note.txt" --preregistration "${5:-$out/reg/0001-note.json}" --out "$out/of_edited"
}
ours=$(sha256sum <"$out/reg/0001-note.json" | cut -d' ' -f1) theirs=$(sha256sum <"$out/changed.json" | cut -d' ' -f1)
another="s/$ours/$theirs/"
planted "another registration's digest in the manifest" "settings and digests make run" manifest.json "$another" "$out/changed.json"
id=$("$lazylora" status "$out/edited" 2>&1 | sed -n 's/.* make run \([0-9a-f]*\):.*/\1/p')
planted "with the run id that it makes" "$out/edited/manifest.json has \"$id\"" manifest.json "$another; s/\"run\": \"[0-9a-f]*\"/\"run\": \"$id\"/" "$out/changed.json"
[ ${#id} -eq 16 ]
verdict "which is one" $? "$id"
rm -r "$out/edited/checkpoints"
exits "planted: and without the checkpoint" 1 "$out/edited/manifest.json is of run $id" "$lazylora" eval --run "$out/edited" --text "$out/note.txt" --preregistration "$out/changed.json"
planted "a later start" "the first line of $out/edited/timings.jsonl was written at $(sed -n '1s/.*"wall_ns":\([0-9]*\).*/\1/p' "$out/run/timings.jsonl")" \
  manifest.json "s/\"start_unix_ns\": $start/\"start_unix_ns\": $((start + 3600000000000))/"
planted "the log's last line changed" "the checkpoint wants 8, " log.jsonl '$s/moments_sha256":"./moments_sha256":"x/'
planted "the log's last line gone" "log.jsonl: 7 lines, and no checkpoint among them" log.jsonl '$d'
planted "a registration's digest in the checkpoint" "checkpoints: the newest state.json that is whole is behind step 0" checkpoints/step_00002/state.json "$another"
rm -rf "$out/edited/checkpoints"
exits "planted: no checkpoint" 1 "nothing holds what its log says" "$lazylora" eval --run "$out/edited" --text "$out/note.txt" --preregistration "$out/reg/0001-note.json"
[ ! -e "$out/of_edited" ]
verdict "none of these is evaluated" $?
rm -rf "$out/edited"
cp -r "$out/run" "$out/edited"
rm "$out/edited/timings.jsonl"
exits "lost timings are no reason to refuse" 0 "0001-note: met" "$lazylora" eval --run "$out/edited" --text "$out/note.txt" --preregistration "$out/reg/0001-note.json" --out "$out/untimed"
grep -q '"time": "own clock only; the run.s start is the word of manifest.json alone' "$out/untimed/results.json"
verdict "and the report says what that leaves" $?

cp "$out/run/timings.jsonl" "$out/edited/timings.jsonl"
for junk in x '{}' '[1]' ''; do
  sed "2s/.*/$junk/" "$out/run/timings.jsonl" >"$out/edited/timings.jsonl"
  exits "planted: a line of timings that is '$junk'" 1 "timings.jsonl line 2: is no JSON object that has the digest" "${eval[@]/$out\/run/$out/edited}"
done
echo x >"$out/edited/timings.jsonl"
exits "planted: nothing but that" 1 "timings.jsonl line 1: is no JSON object" "${eval[@]/$out\/run/$out/edited}"
head -c -9 "$out/run/timings.jsonl" >"$out/edited/timings.jsonl"
exits "a last line that was cut short is lost" 0 "base" "${eval[@]/$out\/run/$out/edited}" --preregistration "$out/reg/0001-note.json"
cp "$out/run/timings.jsonl" "$out/edited/timings.jsonl"
sed -i 's/"start_unix_ns": [0-9]*/"start_unix_ns": "now"/' "$out/edited/manifest.json"
exits "a field of the manifest is named with its file" 1 "$out/edited/manifest.json: start_unix_ns of the first of its starts: type must be number, but is string" "${eval[@]/$out\/run/$out/edited}"

# What does not belong to the run.
trained=("$lazylora" eval --run "$out/plain" --training-data --chunk 16)
exits "what it was trained on is a task" 0 "ids: " "${trained[@]}" --out "$out/seen"
grep -q '"trained_on": true' "$out/seen/results.json"
verdict "and the report says so" $?
seq -s, 8 19 240 >"$out/a.txt"
computes_nothing_of_it() { # WHAT FILE
  local was
  was=$(sed -n 's/.*"data_sha256": "\([0-9a-f]*\)".*/\1/p' "$out/$2/manifest.json")
  exits "$1" 1 "the run was trained on data of $was" "$lazylora" eval --run "$out/$2" --training-data --chunk 16 --out "$out/changed"
  [ ${#was} -eq 64 ] && [ ! -e "$out/changed" ]
  verdict "and nothing is written" $?
}
computes_nothing_of_it "and not once it changed" plain
seq -s, 7 19 240 >"$out/a.txt"
records=("$lazylora" data build --model "$out/model" --records "$here/docs/examples/instructions.jsonl" --length 192 --too-long drop --count)
"${records[@]}" 3 --out "$out/set" >/dev/null 2>&1 &&
  "$lazylora" train --model "$out/model" --data "$out/set" --steps 1 --rank 2 --alpha 4 --out "$out/of_set" >/dev/null 2>&1
exits "a run on a set: the set" 0 "set:set: " "$lazylora" eval --run "$out/of_set" --training-data --gradient --out "$out/seen_set"
grep -q '"trained_on": true' "$out/seen_set/results.json"
verdict "and that was it" $?
rm -r "$out/set" && "${records[@]}" 2 --out "$out/set" >/dev/null 2>&1
computes_nothing_of_it "another set under its name" of_set
sed -i '2s/"loss":/"loss": /' "$out/plain/log.jsonl"
exits "a log whose chain is broken" 1 "log.jsonl line 3" "$lazylora" eval --run "$out/plain" --text "$out/note.txt"
cp "$out/plain/adapter.safetensors" "$out/other"
printf '\x7f' | dd of="$out/run/adapter.safetensors" bs=1 seek="$(($(stat -c %s "$out/other") - 1))" conv=notrunc status=none
exits "another adapter than the log's" 1 "the last checkpoint" "${eval[@]}"
exits "nothing to evaluate is bad usage" 2 "--text" "$lazylora" eval --model "$out/model"
exits "a stride beyond the chunk is bad usage" 2 "would not be scored" "${eval[@]}" --stride 17
exits "an existing folder is not written over" 1 "is there already" "${eval[@]}" --out "$out/met"

# A browser has the last word: it loads the page with the network cut off, and all pictures have a size.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ ! -e "$out/met/loss.svg" ]; then
  skip "figures: gnuplot is not installed"
elif [ -z "$browser" ]; then
  skip "the report in a browser: no chromium here"
else
  look() { # PAGE: "N of M pictures", as the browser sees them
    { cat "$1"; echo '<script>addEventListener("load",()=>{const p=[...document.images];document.body.dataset.seen=p.filter(i=>i.complete&&i.naturalWidth>100).length+" of "+p.length+" pictures"})</script>'; } >"$out/look.html"
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$out/profile" --host-resolver-rules="MAP * ~NOTFOUND" \
      --virtual-time-budget=5000 --dump-dom "file://$out/look.html" 2>/dev/null | grep -o 'data-seen="[^"]*"'
  }
  [ "$(look "$out/met/report.html")" = 'data-seen="3 of 3 pictures"' ]
  verdict "the page in Chromium: all pictures visible" $?
  sed 's/base64,PD94/base64,AAAA/' "$out/met/report.html" >"$out/planted.html"
  [ "$(look "$out/planted.html")" = 'data-seen="0 of 3 pictures"' ]
  verdict "planted: broken pictures are noticed" $?
fi

close_record
