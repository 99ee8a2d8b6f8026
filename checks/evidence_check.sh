#!/usr/bin/env bash
# Usage: checks/evidence_check.sh
# The evidence that is here has its recorded bytes; and, on a small tree of its own, every byte that is flipped in
# it, every file that is added, taken away or promised in vain is found and named; a claim made again is compared file
# by file; and a record of planted faults is taken only if it is that of its commit's table.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

printed=$("$here/evidence/verify.sh")
code=$?
echo "$printed" | sed '$d'
verdict "the evidence of this repository" $code
skipped=$(grep -c '^skipped: ' <<<"$printed")

# Two claims, and the registration of a question with its page.
tree=$out/tree
mkdir -p "$tree"/evidence/000{1-one,2-two}/may_differ "$tree/preregistration" "$tree/reports"
echo "project" >"$tree/CMakeLists.txt"
cat >"$tree/preregistration/0002-two.json" <<'END'
{
 "format": "lazylora preregistration 2",
 "name": "0002-two",
 "question": "Is it \"so\"?\nOr 100 % \\ not,",
 "data": [
  {
   "name": "a.txt",
   "sha256": "12ab"
  }
 ],
 "task": "text:a.txt",
 "metric": "loss",
 "compared": "adapter minus base",
 "direction": "below",
 "threshold": -1.0,
 "units": 40,
 "chunk": 256,
 "stride": 128,
 "bos": "none",
 "seed": 1,
 "resamples": 10000,
 "stopping_rule": "Once.",
 "refuted_by": "No less.",
 "expected": "Less.",
 "registered_unix_ns": 1796024948883697109
}
END
cat >"$tree/preregistration/0002-two.md" <<END
Is it "so"?
Or 100 % \\ not,
Frozen as \`0002-two.json\`, SHA-256 \`$(sha256sum <"$tree/preregistration/0002-two.json" | cut -d' ' -f1)\`.
loss of text:a.txt, adapter minus base, is to lie below -1: **met** if it does, or with fewer than 40 units.
In chunks of 256 predictions, a stride of 128, begin-of-text id none; 10000 resamples of seed 1.
* \`12ab\` a.txt
Once. Refuted: No less. Expected: Less.
END
for claim in 0001-one 0002-two; do
  printf '# It "holds": %s\n\n| file | what |\n|---|---|\n| `table.txt` | rows |\n' $claim >"$tree/evidence/$claim/README.md"
  echo "check --all >table.txt" >"$tree/evidence/$claim/commands.txt"
  echo "row $claim" >"$tree/evidence/$claim/table.txt"
  echo "some machine" >"$tree/evidence/$claim/may_differ/environment.txt"
done
first='{"run":"r","step":0,"phase":"start","prev":"'$(printf '0%.0s' $(seq 64))'"}'
second='{"run":"r","step":1,"phase":"step_end","prev":"'$(printf '%s' "$first" | sha256sum | cut -d' ' -f1)'"}'
printf '%s\n%s\n' "$first" "$second" >"$tree/evidence/0002-two/log.jsonl"
"$here/evidence/seal.sh" "$tree" >/dev/null && "$here/evidence/verify.sh" "$tree" >/dev/null
verdict "a sealed tree verifies" $?
cp -r "$tree" "$out/sealed"

# caught WHAT NAMED: the tree does not verify, and NAMED is named; then the tree is as it was sealed.
caught() {
  local printed
  printed=$("$here/evidence/verify.sh" "$tree")
  [ $? -eq 1 ] && grep -qF -- "$2" <<<"$printed" || { echo "$printed"; false; }
  verdict "$1" $?
  rm -rf "$tree"
  cp -r "$out/sealed" "$tree"
}
# The same of what is not sealed, either.
sealed_not() { # WHAT NAMED
  ! "$here/evidence/seal.sh" "$tree" >/dev/null 2>"$out/why" && grep -qF -- "$2" "$out/why"
  verdict "$1: is not sealed" $? "$(cat "$out/why")"
  caught "$1: does not verify" "$2"
}
# One bit of one byte of every file, the sums themselves among them; a different place in each.
place=3
while IFS= read -r file; do
  place=$((place * 7 % 31))
  size=$(stat -c %s "$tree/$file")
  at=$((place % size))
  byte=$(od -An -tu1 -j "$at" -N 1 "$tree/$file")
  printf "\\x$(printf %02x $((byte ^ 32)))" | dd of="$tree/$file" bs=1 seek="$at" conv=notrunc status=none
  caught "a flipped bit in $file" "$file"
done < <(cd "$tree" && find evidence preregistration -type f | sort)
rm "$tree/evidence/0001-one/table.txt"
caught "a file that is gone" "evidence/0001-one/table.txt: is missing"
echo more >"$tree/evidence/0001-one/more.txt"
caught "a file that nobody recorded" "evidence/0001-one/more.txt: is not in"
rm "$tree/preregistration/0002-two.json" && echo "{}" >"$tree/preregistration/0003-three.json"
caught "a registration that is gone" "preregistration/0002-two.json: is missing"
# All of it gone is no clone from before it was recorded.
rm -r "$tree/evidence"
caught "evidence/ that is gone" "evidence: is missing"
rm -r "$tree/preregistration"
caught "preregistration/ that is gone" "preregistration: is missing"
rm -r "$tree"/evidence/*
caught "an empty evidence/" "evidence: is an empty folder"
rm "$tree/evidence/SHA256SUMS"
caught "sums that are gone" "evidence/SHA256SUMS: is missing"
rm "$tree/evidence/statement.json"
caught "a statement that is gone" "evidence/statement.json: is missing"
# A number has one name, a registration and a claim of one name have one number.
cp "$tree/preregistration/0002-two.json" "$tree/preregistration/0001-other.json"
sealed_not "a registration with the number of another claim" "preregistration/0001-other.json: one number, two names: evidence/0001-one has 0001"
mkdir "$tree/evidence/0002-other" && cp "$tree/evidence/0001-one/README.md" "$tree/evidence/0002-other/"
sealed_not "a claim with the number of another claim" "evidence/0002-two: one number, two names: evidence/0002-other has 0002"
for file in json md; do mv "$tree/preregistration/0002-two.$file" "$tree/preregistration/0003-three.$file"; done
echo >"$tree/preregistration/0003-thre.json"
sealed_not "two registrations of one number" "preregistration/0003-three.json: one number, two names: preregistration/0003-thre.json has 0003"
# A registration's page is what its JSON says.
rm "$tree/preregistration/0002-two.md"
sealed_not "a registration without its page" "preregistration/0002-two.md: is missing: the page of 0002-two.json"
rm "$tree/preregistration/0002-two.json"
sealed_not "a page without its registration" "preregistration/0002-two.md: is the page of no registration: 0002-two.json is missing"
while IFS='=' read -r from to; do
  sed -i "s|$from|$to|" "$tree/preregistration/0002-two.md"
  sealed_not "a page with '$to'" "preregistration/0002-two.md: does not say what 0002-two.json says: "
done <<'END'
-1:=-1.5:
below=above
loss of=top1 of
text:a.txt=set:a.txt
of 128=of 256
seed 1=seed 2
12ab=12ac
"so"=so
Less=More
END
sed -i 's/-1.0/-1.1/' "$tree/preregistration/0002-two.json"
sealed_not "a page of another threshold" "does not say what 0002-two.json says: loss of text:a.txt, adapter minus base, is to lie below -1.1:"
echo '{"frozen": true}' >"$tree/preregistration/0002-two.json"
sealed_not "a registration of another form" "does not say what 0002-two.json says: SHA-256"
# What is no file.
mkdir -p "$tree/evidence/0001-one/a/b"
caught "an empty folder" "evidence/0001-one/a/b: is an empty folder"
ln -s table.txt "$tree/evidence/0001-one/link"
caught "a link" "evidence/0001-one/link: is a symbolic link"
mv "$tree/evidence/0001-one" "$out/one" && ln -s "$out/one" "$tree/evidence/0001-one"
caught "a claim that is a link to its right bytes" "evidence/0001-one: is a symbolic link"
mkfifo "$tree/preregistration/pipe"
caught "a FIFO" "preregistration/pipe: is a FIFO"
rm "$tree/evidence/0001-one/README.md" && mkfifo "$tree/evidence/0001-one/README.md"
caught "and one in the place of a page, without waiting for it" "evidence/0001-one/README.md: is a FIFO"
if command -v node >/dev/null; then
  (cd "$tree/evidence" && node -e 'require("net").createServer().listen("socket",()=>process.reallyExit(0))')
  caught "a socket" "evidence/socket: is a socket"
fi
echo more >"$tree/evidence/0001-one/"$'table.txt\nmore'
caught "a name with a line end" "evidence/0001-one/table.txt\nmore': is not a plain name"
echo more >"$tree/evidence/0001-one/a b"
caught "a name with a space" "is not a plain name"
# The sums are their lines and nothing else.
sed -i '1s/$/\x0/' "$tree/evidence/SHA256SUMS"
caught "a NUL byte in the sums" "evidence/SHA256SUMS: no line of sums: "
echo >>"$tree/evidence/SHA256SUMS"
caught "an empty line in the sums" "evidence/SHA256SUMS: no line of sums: "
truncate -s -1 "$tree/evidence/SHA256SUMS"
caught "sums without their last line end" "evidence/SHA256SUMS: is not what seal.sh would write"
sed -i '1s/^[0-9a-f]*/\U&/' "$tree/evidence/SHA256SUMS"
caught "a digest in capitals" "evidence/SHA256SUMS: no line of sums: "
sed -i '1s/  /   /' "$tree/evidence/SHA256SUMS"
caught "a space more" "evidence/SHA256SUMS: no line of sums: "
sed -i '1p' "$tree/evidence/SHA256SUMS"
caught "a line twice" "stands there twice"
sed -i '1{h;d};2G' "$tree/evidence/SHA256SUMS"
caught "lines in another order" "evidence/SHA256SUMS: is not what seal.sh would write"
# The statement, with the right sum of what it is now.
stated() { # SED-EXPRESSION
  sed -i "$1" "$tree/evidence/statement.json"
  sed -i "s|^[0-9a-f]*  evidence/statement.json|$(sha256sum <"$tree/evidence/statement.json" | cut -d' ' -f1)  evidence/statement.json|" "$tree/evidence/SHA256SUMS"
}
stated '/0001-one.table.txt/d'
caught "a statement without a file" "evidence/0001-one/table.txt: is not in evidence/statement.json"
stated '/0001-one.table.txt/{p;s/table.txt/more.txt/}'
caught "a statement with one more" "evidence/0001-one/more.txt: is missing, and recorded in evidence/statement.json"
stated '/0001-one.table.txt/{p;s/: "[0-9a-f]\{8\}/: "00000000/}'
caught "a statement with two digests of one" "evidence/statement.json: evidence/0001-one/table.txt stands there twice"
stated '/0001-one.table.txt/s/: "[0-9a-f]\{8\}/: "00000000/'
caught "a statement with another digest" "evidence/0001-one/table.txt: SHA-256 is"
stated '/0001-one.table.txt/s/sha256/sha512/'
caught "a statement of another form" 'evidence/statement.json: no line of sums:   {"name": "evidence/0001-one/table.txt"'
# Whoever changes a file and seals anew is refused by each of three that have the digest; and without the refusal the
# chain and the promises still speak.
kept() { # WHAT: not sealed, and the changed log is named
  ! "$here/evidence/seal.sh" "$tree" >/dev/null 2>"$out/why" && grep -qF "evidence/0002-two/log.jsonl: recorded, and not to be changed" "$out/why"
  verdict "$1" $? "$(cat "$out/why")"
}
change() { sed -i 's/"step":0/"step":9/' "$tree/evidence/0002-two/log.jsonl"; }
forget() { sed -i '/0002-two.log.jsonl/d' "$tree/evidence/$1"; } # SHA256SUMS or statement.json
unsealed() { rm -f "$tree"/evidence/{SHA256SUMS,statement.json}; }
change
kept "what is recorded is not sealed anew"
forget SHA256SUMS
kept "nor without its line in the sums"
rm "$tree/evidence/SHA256SUMS"
kept "nor without the sums"
rm -r "$tree" && cp -r "$out/sealed" "$tree" && change && forget statement.json
kept "nor with a statement that does not have it"
rm "$tree/evidence/statement.json" "$tree/evidence/0002-two/log.jsonl"
kept "nor if it is gone"
rm -r "$tree" && cp -r "$out/sealed" "$tree"
sed -i '1s/  / /' "$tree/evidence/SHA256SUMS"
! "$here/evidence/seal.sh" "$tree" 2>"$out/why" && grep -q "SHA256SUMS: no line of sums" "$out/why"
verdict "nor over sums that cannot be read" $?
rm -r "$tree" && cp -r "$out/sealed" "$tree" && ln -s table.txt "$tree/evidence/0001-one/link"
! "$here/evidence/seal.sh" "$tree" 2>"$out/why" && grep -q "0001-one/link: is a symbolic link" "$out/why"
verdict "nor what is no file" $?
rm -r "$tree" && cp -r "$out/sealed" "$tree"
if command -v git >/dev/null; then
  (cd "$tree" && git init -q && git add -A && git -c user.name=a -c user.email=a@example.org commit -qm sealed) >/dev/null
  change && forget SHA256SUMS && forget statement.json
  kept "nor what the last commit's sums have, whatever is forgotten"
  unsealed
  kept "nor as if nothing had been recorded"
  rm -r "$tree" && cp -r "$out/sealed" "$tree"
fi
change && unsealed && "$here/evidence/seal.sh" "$tree" >/dev/null
caught "a log whose chain is broken, with right sums" "evidence/0002-two/log.jsonl: line 2"
unsealed && rm "$tree/evidence/0001-one/table.txt" && "$here/evidence/seal.sh" "$tree" >/dev/null
caught "a promise that is not kept, with right sums" "evidence/0001-one/table.txt: is promised and missing"
unsealed && printf '\n![loss](loss.svg)\n' >>"$tree/evidence/0001-one/README.md" && "$here/evidence/seal.sh" "$tree" >/dev/null
caught "a page that leads nowhere, with right sums" "evidence/0001-one/README.md: leads to loss.svg"
mkdir -p "$tree/evidence/0003-three/may_differ"
cp "$tree"/evidence/0001-one/{README.md,commands.txt,table.txt} "$tree/evidence/0003-three/"
echo machine >"$tree/evidence/0003-three/may_differ/environment.txt"
"$here/evidence/seal.sh" "$tree" >/dev/null && "$here/evidence/verify.sh" "$tree" >/dev/null
verdict "a claim more is added" $?
new_claim() { "$here/evidence/new_claim.sh" "$1" "$tree"; }
cp -r "$tree" "$out/three"
[ "$(new_claim next) $(new_claim next)" = "0004-next 0005-next" ] && ! new_claim "No Slug" 2>/dev/null
verdict "the next ones get the next numbers" $?
for i in 1 2 3 4 5 6; do new_claim at-once >"$out/number_$i" & done
wait
[ "$(cat "$out"/number_* | sort | paste -sd' ')" = "0006-at-once 0007-at-once 0008-at-once 0009-at-once 0010-at-once 0011-at-once" ]
verdict "and so do six who ask at once" $?
printed=$("$here/evidence/verify.sh" "$tree") && grep -qxF "skipped: evidence/0004-next: allotted, not recorded" <<<"$printed" && [ "$(tail -n 1 <<<"$printed")" = "1 passed, 0 failed, 8 skipped" ]
verdict "what is allotted is skipped by name" $? "$printed"
"$here/evidence/seal.sh" "$tree" >/dev/null && "$here/evidence/verify.sh" "$tree" >/dev/null && ! grep -rq allotted "$tree"/evidence/{SHA256SUMS,README.md}
verdict "and is not sealed" $?
rm -r "$out/sealed" && cp -r "$tree" "$out/sealed"
sed -i 's/allotted/Allotted/' "$tree/evidence/0004-next/allotted.txt"
caught "a changed byte in it" "evidence/0004-next/allotted.txt: is not in"
echo more >"$tree/evidence/0004-next/more.txt"
caught "a file more in it" "evidence/0004-next/more.txt: is not in"
cp "$tree/evidence/0004-next/allotted.txt" "$tree/evidence/0001-one/"
caught "an allotment of what is recorded" "evidence/0001-one/allotted.txt: is not in"
mkdir "$tree/evidence/0003-again" && cp "$tree/evidence/0004-next/allotted.txt" "$tree/evidence/0003-again/"
caught "one number allotted twice" "evidence/0003-three: one number, two names: evidence/0003-again has 0003"
mkdir -p "$out/made/0009-mutants"
cp "$tree/evidence/0004-next/allotted.txt" "$out/made/0009-mutants/"
made() { MUTANTS='' "$here/evidence/make.sh" "$out" "$out/made" 0009-mutants; }
[[ $(made) == "skipped: 0009-mutants: planting"* ]] && echo record >"$out/made/0009-mutants/record.jsonl" && [ "$(made)" = "0009-mutants: is there" ]
verdict "an allotted claim is still to be made, a recorded one is there" $?
rm -r "$tree" "$out/sealed" && cp -r "$out/three" "$tree"
cp -r "$tree" "$out/large"
head -c 20000000 /dev/zero >"$out/large/evidence/0003-three/zeros"
! "$here/evidence/seal.sh" "$out/large" 2>"$out/why" && grep -q "at most 20000000" "$out/why"
verdict "more than 20 MB are not sealed" $?
rm -r "$out/large"

# Claims made again, by a small maker in the place of make.sh.
mkdir -p "$out/repeat/checks/evidence"
cp "$here"/evidence/{reproduce,common}.sh "$out/repeat/checks/evidence/"
cp -r "$tree/evidence" "$out/repeat/"
cat >"$out/repeat/checks/evidence/make.sh" <<'END'
#!/usr/bin/env bash
was=$(dirname "$0")/../../evidence/$3
cp -r "$was" "$2/$3"
cd "$2/$3" && eval "$LATER"
END
again() { # WHAT CODE TEXT CHANGE: what the maker does otherwise; CHANGED: to what is recorded
  local printed code
  printed=$(LATER=$4 bash "$out/repeat/checks/evidence/reproduce.sh" build 0001-one)
  code=$?
  [ $code -eq "$2" ] && grep -qF -- "$3" <<<"$printed" || { echo "$code: $printed"; false; }
  verdict "$1" $?
}
chmod +x "$out/repeat/checks/evidence/make.sh"
again "a claim that comes out the same" 0 "3 passed, 0 failed, 0 skipped" "echo other >may_differ/environment.txt"
again "and is named as it begins" 0 $'evidence/0001-one: is made again ...\n3 passed' ":"
again "a file with other bytes is named" 1 "DIFFERS  evidence/0001-one/table.txt" "echo more >>table.txt"
again "a file less" 1 "DIFFERS  evidence/0001-one/table.txt" "rm table.txt"
again "a file more" 1 "MORE     evidence/0001-one/more.txt" "echo more >more.txt"
again "one that this processor cannot make" 0 "skipped: evidence/0001-one/table.txt: no such instructions" 'rm table.txt; echo "no such instructions" >table.txt.absent'
again "a claim that cannot be made" 1 "NOT MADE evidence/0001-one" 'rm -r "$PWD"; exit 1'
again "one that needs what is not here" 77 "skipped: 0001-one: no data" 'rm -r "$PWD"; echo "skipped: 0001-one: no data"'
again "none of it is no success without a reason" 1 "NOT MADE evidence/0001-one" 'rm -r "$PWD"'
echo table.txt >"$out/repeat/evidence/0001-one/rests_on_c_library.txt"
printf 'c library one\n' >"$out/repeat/evidence/0001-one/may_differ/environment.txt"
again "last digits of the same C library are a failure" 1 "DIFFERS  evidence/0001-one/table.txt" "echo more >>table.txt"
again "those of another are not" 0 "table.txt: differs; it rests on the C library, recorded one" "echo more >>table.txt; echo 'c library two' >may_differ/environment.txt"
again "but only in the files that rest on it" 1 "DIFFERS  evidence/0001-one/commands.txt" "echo more >>commands.txt; echo 'c library two' >may_differ/environment.txt"

# What a claim's environment says of programs, model and ids, of a claim by programs in the place of ours.
mkdir -p "$out/programs/checks"
printf '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" != make-model ] || { mkdir "$2" && echo weights >"$2/weights"; }; [ "$1" != --out ] || echo row >"$2"; shift; done\necho said\n' >"$out/programs/lazylora"
chmod +x "$out/programs/lazylora"
for check in forward gradients; do cp "$out/programs/lazylora" "$out/programs/checks/check_$check" && echo "# $check" >>"$out/programs/checks/check_$check"; done
"$here/evidence/make.sh" "$out/programs" "$out/made" 0001-forward 0003-gradients >"$out/why" 2>&1
says() { # CLAIM FILE TEXT
  grep -qxF -- "$3" "$out/made/$1/may_differ/environment.txt"
  verdict "the environment of $1 has $2" $? "$(cat "$out/why" "$out/made/$1/may_differ/environment.txt")"
}
of_program() { (cd "$out/programs" && sha256sum "$1" | sed 's/^/  /'); }
says 0001-forward "its check program" "$(of_program checks/check_forward)"
says 0001-forward "what made its model" "model and ids, SHA-256, by BUILD/lazylora make-model SCRATCH/model --shape tiny --seed 1 and tiny() of checks/evidence/make.sh:"
says 0001-forward "its model" "  $(echo weights | sha256sum | cut -d' ' -f1)  model/weights"
says 0001-forward "its ids" "  $(echo 400 3 99 400 3 99 400 3 99 400 3 99 400 3 99 | sha256sum | cut -d' ' -f1)  ids/pattern_400.txt"
says 0003-gradients "its check program" "$(of_program checks/check_gradients)"
! grep -qE 'check_forward|model and ids|ids/' "$out/made/0003-gradients/may_differ/environment.txt" && [ "$(wc -l <"$out/made/0001-forward/commands.txt")" -eq 1 ]
verdict "and nothing that it did not use; commands.txt is as ever" $?

# A record of planted faults, in a repository of its own.
git() { command git -C "$out/planted" -c user.name=a -c user.email=a@example.org -c init.defaultBranch=main "$@"; }
mkdir -p "$out/planted"/{checks/mutants,engine,oracle}
touch "$out/planted"/{engine,oracle}/a.cc
printf '# head\n\n[one]\nwhy   w\nfile  a.cc\ncheck check_a --gtest_filter=X.*\n<<<\n[none] x\n===\n[no]\n>>>\n\n[two]\nwhy   w\nfile  a.cc\ncheck check_b\n<<<\na\n===\nb\n>>>\n' >"$out/planted/checks/mutants/table.txt"
if command -v git >/dev/null && git init -q && git add -A && git commit -qm one >/dev/null; then
  row() { printf '{"check":"mutants","name":"%s","outcome":"%s","by":"%s"}\n' "$@"; }
  total() { printf '{"check":"mutants","passed":%d,"failed":%d,"skipped":0}\n' "$@"; }
  one=$(row one killed 'check_a --gtest_filter=X.*') two=$(row two killed check_b)
  take() { # the record on standard input
    cat >"$out/record.jsonl"
    rm -rf "$out/taken" && mkdir -p "$out/taken/may_differ"
    "$here/evidence/mutation_record.sh" "$out/planted" "$out/record.jsonl" "${1:-HEAD}" "$out/taken"
  }
  whole=$(printf '%s\n%s\n' "$one" "$two"; total 2 0)
  take <<<"$whole" && cmp -s "$out/record.jsonl" "$out/taken/record.jsonl" && grep -q '^# Each of 2 planted faults' "$out/taken/README.md" &&
    grep -q "^commit  *$(git rev-parse HEAD)$" "$out/taken/belongs_to.txt" && grep -q "$(sha256sum <"$out/planted/checks/mutants/table.txt" | cut -d' ' -f1), 2 rows" "$out/taken/belongs_to.txt" &&
    [ "$(cat "$out/taken/may_differ/since.txt")" = nothing ]
  verdict "a record of planted faults is taken, with its commit and table" $?
  take < <(echo "$one"; total 1 0; row two survived check_b; total 0 1) && grep -q '^# 1 of 2 planted faults' "$out/taken/README.md" && grep -q 'Not killed: two (survived)' "$out/taken/README.md"
  verdict "and one of two runs, with what survived" $?
  not_taken() { # WHAT TEXT [COMMIT]
    ! take "${3:-HEAD}" 2>"$out/why" && grep -qF -- "$2" "$out/why" && [ ! -e "$out/taken/record.jsonl" ] || { cat "$out/why"; false; }
    verdict "$1" $?
  }
  not_taken "a record without a row" "has the row two" < <(echo "$one"; total 1 0)
  not_taken "a record with a row more" "has the row three" < <(printf '%s\n%s\n' "$one" "$two"; row three killed check_b; total 3 0)
  not_taken "a row of another check" "has the row two" < <(echo "$one"; row two killed check_a; total 2 0)
  not_taken "a row twice" "one stands there twice" < <(printf '%s\n%s\n%s\n' "$one" "$two" "$one"; total 3 0)
  not_taken "counts that are not its rows'" "counts 2 and 0" < <(echo "$one"; row two survived check_b; total 2 0)
  not_taken "a run that did not end" "did not end" < <(printf '%s\n%s\n' "$one" "$two")
  not_taken "what is no record" "is no row" <<<'{"name":"one"}'
  not_taken "a commit that there is not" "no commit" 1234567 <<<"$whole"
  git checkout -q -b aside && sed -i 's/^\[two\]/[three]/' "$out/planted/checks/mutants/table.txt" && git commit -qam aside && aside=$(git rev-parse HEAD) && git checkout -q main
  not_taken "a commit aside of the history" "is not in the history" "$aside" <<<"$whole"
  git merge -q --ff-only aside
  not_taken "a record of a table before this one" "has the row three" HEAD~1 <<<"$whole"
  git revert --no-edit HEAD >/dev/null && echo "// more" >>"$out/planted/engine/a.cc" && git commit -qam more
  take HEAD~1 <<<"$whole" && grep -q "engine/a.cc" "$out/taken/may_differ/since.txt"
  verdict "a source that is another now is said" $?
else
  skip "records of planted faults: no git"
fi
unset -f git

if command -v node >/dev/null; then
  node -e 'const fs=require("fs");for(const f of ["statement.json","ro-crate-metadata.json"])JSON.parse(fs.readFileSync(process.argv[1]+"/evidence/"+f));' "$tree"
  verdict "statement and crate are JSON" $?
else
  skip "nothing here reads JSON but our own programs (node)"
fi

close_record
