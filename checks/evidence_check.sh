#!/usr/bin/env bash
# Usage: checks/evidence_check.sh
# The evidence that is here has its recorded bytes; and, on a small tree of its own, every byte that is flipped in
# it, every file that is added, taken away or promised in vain is found and named.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

printed=$("$here/evidence/verify.sh")
code=$?
echo "$printed" | sed '$d'
if [ $code -eq 77 ]; then skipped=1; else verdict "the evidence of this repository" $code; fi

# Two claims and a registration.
tree=$out/tree
mkdir -p "$tree"/evidence/000{1-one,2-two}/may_differ "$tree/preregistration" "$tree/reports"
echo "project" >"$tree/CMakeLists.txt"
echo '{"frozen": true}' >"$tree/preregistration/0002-two.json"
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
rm "$tree/preregistration/0002-two.json"
caught "a registration that is gone" "preregistration/0002-two.json: is missing"
# Whoever changes a file and seals anew: refused, and without the refusal the chain and the promises still speak.
sed -i 's/"step":0/"step":9/' "$tree/evidence/0002-two/log.jsonl"
"$here/evidence/seal.sh" "$tree" 2>"$out/why"
[ $? -eq 1 ] && grep -q "0002-two/log.jsonl" "$out/why"
verdict "what is recorded is not sealed anew" $?
rm "$tree/evidence/SHA256SUMS" && "$here/evidence/seal.sh" "$tree" >/dev/null
caught "a log whose chain is broken, with right sums" "evidence/0002-two/log.jsonl: line 2"
rm "$tree/evidence/SHA256SUMS" "$tree/evidence/0001-one/table.txt" && "$here/evidence/seal.sh" "$tree" >/dev/null
caught "a promise that is not kept, with right sums" "evidence/0001-one/table.txt: is promised and missing"
mkdir -p "$tree/evidence/0003-three/may_differ"
cp "$tree"/evidence/0001-one/{README.md,commands.txt,table.txt} "$tree/evidence/0003-three/"
echo machine >"$tree/evidence/0003-three/may_differ/environment.txt"
"$here/evidence/seal.sh" "$tree" >/dev/null && "$here/evidence/verify.sh" "$tree" >/dev/null
verdict "a claim more is added" $?
[ "$("$here/evidence/new_claim.sh" next "$tree")" = 0004-next ] && ! "$here/evidence/new_claim.sh" "No Slug" "$tree" 2>/dev/null
verdict "and the next one gets the next number" $?
if command -v node >/dev/null; then
  node -e 'const fs=require("fs");for(const f of ["statement.json","ro-crate-metadata.json"])JSON.parse(fs.readFileSync(process.argv[1]+"/evidence/"+f));' "$tree"
  verdict "statement and crate are JSON" $?
else
  skip "nothing here reads JSON but our own programs (node)"
fi

close_record
