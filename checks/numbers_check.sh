#!/usr/bin/env bash
# Usage: checks/numbers_check.sh
# The figures of this repository's pages have their sources; and, on a small tree, a figure that its source does
# not say, one without a row, a row without its figure and a lazy bound are found and named.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

printed=$("$here/numbers.sh")
code=$?
echo "$printed"
verdict "the figures of this repository" $code
! grep -q '^skipped: ' <<<"$printed" || skipped=1

mkdir -p "$out/sealed/docs" "$out/sealed/evidence/0001-a"
cat >"$out/sealed/README.md" <<'END'
# Page 1
Errors of at most 3.7e-5, in 1,476 comparisons; 0.19 of what is allowed; `code 9.9` and [a link](x-1.5.md) do not count,
nor does v1.0.0 or 1.0.22 or 17. Of 1.56 TB, 2.0 rows.
END
printf '%s\n' '{"e":2.9e-5,"s":1.0,"t":"a","o":"holds"}' '{"e":7.3e-5,"s":2.0,"t":"a","o":"holds"}' '{"t":"a","o":"refused"}' '{"e":1.0,"s":1.0,"t":"b","o":"holds"}' >"$out/sealed/evidence/0001-a/rows.jsonl"
echo "1,476 compared, worst 0.1873 of it, 1,560,936,091,448 bytes" >"$out/sealed/source.txt"
: >"$out/sealed/evidence/SHA256SUMS"
cat >"$out/sealed/docs/numbers.md" <<'END'
Pages: README.md

| page | figure | how | source | where |
|---|---|---|---|---|
| README.md | 3.7e-5 | rounded up | evidence/0001-a/rows.jsonl | `max e/s of "a" & "holds"` |
| README.md | 1,476 | is | source.txt | `^([0-9,]+) compared` |
| README.md | 0.19 | rounded | source.txt | `worst ([0-9.]+) of` |
| README.md | 2.0 | is | evidence/0001-a/rows.jsonl | `count of "a" & "holds"` |
| README.md | 1.56 | rounded, in 1e12 | source.txt | `([0-9,]{9,}) bytes` |
END
tree=$out/tree
# expect WHAT TEXT [FILE SED-EXPRESSION]...: fails and says TEXT; an empty TEXT: holds.
expect() {
  local what=$1 text=$2 printed code
  shift 2
  rm -rf "$tree"
  cp -r "$out/sealed" "$tree"
  while [ $# -gt 0 ]; do sed -i "$2" "$tree/$1"; shift 2; done
  printed=$("$here/numbers.sh" "$tree")
  code=$?
  if [ -z "$text" ]; then [ $code -eq 0 ] && grep -q '^5 passed' <<<"$printed"; else [ $code -eq 1 ] && grep -qF -- "$text" <<<"$printed"; fi || { echo "$printed"; false; }
  verdict "$what" $?
}
expect "right figures hold" ""
expect "another digit on the page" "README.md:2: 1,477 has no source" README.md 's/1,476/1,477/'
expect "and its row says so" "does not say 1,476 any more" README.md 's/1,476/1,477/'
expect "page and row changed together" "README.md: 1,477: source.txt says 1476" README.md 's/1,476/1,477/' docs/numbers.md 's/1,476/1,477/'
expect "another number in the source" "README.md: 0.19: source.txt says 0.2" source.txt 's/0.1873/0.2001/'
expect "a bound that does not hold" "README.md: 3.7e-5: evidence/0001-a/rows.jsonl says 3.7" evidence/0001-a/rows.jsonl 's/7.3e-5/7.5e-5/'
expect "a bound that is lazy" "README.md: 3.7e-5" evidence/0001-a/rows.jsonl 's/7.3e-5/7.1e-5/'
expect "a value that is no number" "README.md: 3.7e-5" evidence/0001-a/rows.jsonl 's/7.3e-5/null/'
expect "lines that hold one of two texts only" "README.md: 2.0: evidence/0001-a/rows.jsonl says 3" docs/numbers.md 's/count of "a" & "holds"/count of "a"/'
expect "and have no such value" "README.md: 3.7e-5" docs/numbers.md 's/of "a" & "holds"` |$/of "a"` |/'
expect "a figure more" "README.md:3: 2.5e-3 has no source" README.md 's/nor does/nor 2.5e-3/'
expect "a row that is gone" "README.md:2: 0.19 has no source" docs/numbers.md '/0.19/d'
expect "a source that says nothing of it" "says nothing of" source.txt 's/compared/counted/'
expect "a recorded source that is gone" "row.jsonl is not there" docs/numbers.md 's/rows.jsonl/row.jsonl/'
expect "a row that stands there twice" "stands there twice" docs/numbers.md '/0.19/p'
expect "a page without a list" "has no rows" docs/numbers.md '/^| README/d'
rm "$out/sealed/evidence/SHA256SUMS" "$out/sealed/evidence/0001-a/rows.jsonl"
rm -rf "$tree"
cp -r "$out/sealed" "$tree"
"$here/numbers.sh" "$tree" | tail -n 2 | tr '\n' ' ' | grep -q 'not recorded yet: evidence/0001-a/rows.jsonl 3 passed, 0 failed, 1 skipped'
verdict "what is not recorded yet is counted, not passed" $?

close_record
