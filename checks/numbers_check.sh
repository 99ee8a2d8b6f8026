#!/usr/bin/env bash
# Usage: checks/numbers_check.sh
# The figures of this repository's pages have their sources; every spelling of a numeral is found as one; and, on a small
# tree, a numeral that its source does not say, one without a row, a row without its numeral or for two places, a lazy
# bound, a page that nobody reads and a figure that loses its source are found and named.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

printed=$("$here/numbers.sh")
code=$?
echo "$printed"
verdict "the figures of this repository" $code

# TEXT=NUMERALS of it as they stand there, and as a program reads them.
number=0
while IFS='=' read -r text said read_as; do
  number=$((number + 1))
  printf '%s\n' "$text" >"$out/page.md"
  found=$(LC_ALL=C awk -f "$here/numbers/page.awk" "$out/page.md")
  [ "$(cut -f2 <<<"$found" | paste -sd'|')" = "$said" ] && [ "$(cut -f3 <<<"$found" | paste -sd'|')" = "$read_as" ]
  verdict "numerals of '$text'" $? "$found"
done <<'END_OF_SPELLINGS'
at 12.5MB or 12.5 MB=12.5MB|12.5 MB=12.5|12.5
from 1E-3 to 1e-3, 2e+4=1E-3|1e-3|2e+4=1E-3|1e-3|2e+4
10000, 10,000, 10 000, 10 000, 10'000, 10_000=10000|10,000|10 000|10 000|10'000|10_000=10000|10000|10000|10000|10000|10000
1 560 936.5 bytes=1 560 936.5 bytes=1560936.5
3×10^-4, 3 × 10^4, 3·10^-4, 10⁻⁴, 2^20=3×10^-4|3 × 10^4|3·10^-4|10⁻⁴|2^20=3e-4|3e4|3e-4|10⁻⁴|2^20
99.9 % and 99.9%, 4/5 of it, ½ of it=99.9 %|99.9%|4/5|½=99.9|99.9|4/5|½
0x1F and 0XFF=0x1F|0XFF=0x1F|0XFF
-5, −5, +5, (-5), 1 - 2e-11, 3-4=-5|−5|+5|-5|1|2e-11|3|4=-5|-5|5|-5|1|2e-11|3|4
.5 and 0.5, one,5, 1,3=.5|0.5|5|1,3=.5|0.5|5|1,3
x86-64, SHA-256, C++20, K3, v1.0.22=86|64|256|20|3|1.0.22=86|64|256|20|3|1.0.22
# 7 headings=7=7
`code 1` and ``2 ` 3`` and [4](page-5.6.md), https://example.org/7 8=4|8=4|8
a span ` that does not end 9=9=9
```no fence``` but 9=9=9
- four | 9 | 90 | 900=9|90|900=9|90|900
[no target](at 9 MB)=9 MB=9
7 kB, 7 KiB, 7 GiB/s, 7 tokens/s, 7 GFLOP/s, 3e2 ms, 5 µs, 2‰=7 kB|7 KiB|7 GiB/s|7 tokens/s|7 GFLOP/s|3e2 ms|5 µs|2‰=7|7|7|7|7|3e2|5|2
1 s, 2 min, 3 h, 4 hours, 9.2 times, 2x and 3×; 26 billion=1 s|2 min|3 h|4 hours|9.2 times|2x|3×|26 billion=1|2|3|4|9.2|2|3|26
3 x 4, 3x4, 5 sums, 6 MBs, 7 tokens, 8 minds, K3 s, AVX-512 B=3|4|3|4|5|6|7|8|3|512=3|4|3|4|5|6|7|8|3|512
END_OF_SPELLINGS
[ $number -eq 19 ]
verdict "all spellings were tried" $?
printf '%s\n' 'a `span' 'over 1 lines` 2' '' '```' '3' '~~~' '`' '```' '4' >"$out/page.md"
[ "$(LC_ALL=C awk -f "$here/numbers/page.awk" "$out/page.md" | cut -f1,2 | tr '\t\n' ': ')" = "2:2 9:4 " ]
verdict "code over several lines, and lines after it" $?

mkdir -p "$out/sealed/docs/more" "$out/sealed/evidence/0001-a"
cat >"$out/sealed/README.md" <<'END'
# Page
Errors of at most 3.7e-5, in 1,476 comparisons; 0.19 of what is allowed; `code 9.9` and [a link](x-1.5.md) do not count.
Of 1.56 TB, 7 rows of 3 to more: 2 hold, at most 5 s. SHA-256 of it,
and once more SHA-256.
END
printf '%s\n' 'Over 640 ids, 12.5MB and 12.5MB more; 4 threads. It took 89 to 108 % or 451 s on K3 and 9 cores.' '' '| n | s |' '|---|---|' '| 2 | 64 or 5 |' >"$out/sealed/docs/page.md"
echo "Defines 1.5." >"$out/sealed/docs/more/other.md"
printf 'bench: ## times\n' >"$out/sealed/Makefile"
printf '%s\n' '{"e":2.9e-5,"s":1.0,"t":"a","o":"holds"}' '{"e":7.3e-5,"s":2.0,"t":"a","o":"holds"}' '{"t":"a","o":"refused"}' '{"e":1.0,"s":1.0,"t":"b","o":"holds"}' >"$out/sealed/evidence/0001-a/rows.jsonl"
printf '1,476 compared, worst 0.1873 of it, 1,560,936,091,448 bytes, 12.5 here\n3 more\n4 more\n89 to 108 in 451\n' >"$out/sealed/source.txt"
cat >"$out/sealed/docs/numbers.md" <<'END'
| page | read | by command | no claim |
|---|---|---|---|
| README.md | every numeral | 1 | 1 |
| docs/more/other.md | no: defines | 0 | 0 |
| docs/numbers.md | no: the list | 0 | 0 |
| docs/page.md | figures | 0 | 1 |

| page | numeral | how | source | where |
|---|---|---|---|---|
| README.md | 3.7e-5 | rounded up | evidence/0001-a/rows.jsonl | `max e/s of "a" & "holds"` |
| README.md | 1,476 | is | source.txt | `^([0-9,]+) compared` |
| README.md | 0.19 | rounded | source.txt | `worst ([0-9.]+) of` |
| README.md | 7 | is | source.txt | `sum of ^([0-9]+) more` |
| README.md | of [3] to | is | source.txt | `min of ^([0-9]+) more` |
| README.md | 2 | is | evidence/0001-a/rows.jsonl | `count of "a" & not "refused"` |
| README.md | 1.56 TB | rounded, in 1e12 | source.txt | `([0-9,]{9,}) bytes` |
| README.md | most [5 s] | by command | | `make bench` says so |
| docs/page.md | [12.5MB] and | is | source.txt | `([0-9.]+) here` |
| docs/page.md | [12.5MB] more | is | source.txt | `([0-9.]+) here` |
| docs/page.md | 89 | is | source.txt | `([0-9]+) to` |
| docs/page.md | 108 % | is | source.txt | `to ([0-9]+) in` |
| docs/page.md | 451 s | is | source.txt | `in ([0-9]+)$` |

| page | no claim | why |
|---|---|---|
| README.md | SHA-[256] | name |
| docs/page.md | ; [2] ; 64 or | setting |
END
tree=$out/tree
# expect WHAT TEXT [FILE SED-EXPRESSION]...: fails and says TEXT; an empty TEXT: holds.
expect() {
  local what=$1 text=$2 printed code
  shift 2
  rm -rf "$tree"
  cp -r "$out/sealed" "$tree"
  while [ $# -gt 0 ]; do sed -i -E "$2" "$tree/$1"; shift 2; done
  printed=$("$here/numbers.sh" "$tree")
  code=$?
  if [ -z "$text" ]; then [ $code -eq 0 ] && [ "$(tail -n 1 <<<"$printed")" = "13 passed, 0 failed, 0 skipped" ]; else [ $code -eq 1 ] && grep -qF -- "$text" <<<"$printed"; fi
  verdict "$what" $? "$printed"
}
list=docs/numbers.md
expect "right figures hold" ""
# The page.
expect "another digit on the page" "README.md:2: 1,477 has no source" README.md 's/1,476/1,477/'
expect "and its row says so" "README.md does not say 1,476" README.md 's/1,476/1,477/'
expect "page and row changed together" "README.md: 1,477: source.txt says 1476" README.md 's/1,476/1,477/' $list 's/1,476/1,477/'
expect "a figure more" "README.md:2: 2.5e-3 has no source" README.md 's/do not count/nor 2.5e-3/'
expect "a whole number more" "README.md:2: 9 has no source" README.md 's/do not count/nor 9/'
expect "one in a heading" "README.md:1: 9 has no source" README.md '1s/Page/& 9/'
expect "a number in another spelling" "README.md:2: 12.5MB has no source" README.md 's/do not count/12.5MB/'
expect "the same figure in another place" "README.md says 0.19 in 2 places" README.md 's/do not count/0.19/'
expect "and one of them with the row's words" "README.md:2: 0.19 has no source" README.md 's/do not count/0.19/' $list 's/ 0.19 / [0.19] of what /'
expect "another sign" "README.md:3: -2 has no source" README.md 's/ 2 hold/ -2 hold/'
expect "a full-width digit" "README.md:2: ９ is no ASCII numeral" README.md "s/do not count/nor ９/"
for numeral in ٣ ۳ ߃ ३ ൩ ๓ ༣ ᠓ Ⅻ ⅻ ↂ ⅓ ① ⒓ ⓴ ❷ ➓ ₉ 〇 〣 ㈠ ㊿ ꘣ ꯳ 𝟗 𐒢 𑁩 🄃 🯳; do echo "nor $numeral"; done >>"$tree/README.md"
printed=$("$here/numbers.sh" "$tree")
[ "$(grep -c '^numbers: README.md:[0-9]*: [^ ]* is no ASCII numeral: ' <<<"$printed")" -eq 30 ]
verdict "and each of another script or form" $? "$printed"
expect "one of another spelling in a heading" "README.md:1: Ⅸ is no ASCII numeral" README.md '1s/Page/& Ⅸ/'
expect "signs that are none" "" README.md 's/do not count/é Σ α ᵀ … → √ ≤ ⊙ ⌊ ⟨ ‖ — 数 do/'
expect "and one in code" "" README.md 's/code 9.9/code Ⅸ/' docs/page.md 's/page/`９`/'
expect "code that does not end" "README.md:5: code that does not end" README.md '$a```'
expect "a small number of another page is passed over" "" docs/page.md 's/640/641/'
expect "a large one is not" "docs/page.md:1: 1640 has no source" docs/page.md 's/640/1640/'
expect "one with a unit is not, nor one of a range before it, nor a cell of its own" "" docs/page.md 's/640/641/; s/9 cores/8 cores/; s/64 or/65 or/' $list 's/64 or/65 or/'
expect "another number of seconds" "docs/page.md:1: 151 s has no source" docs/page.md 's/451 s/151 s/'
expect "another range, its end" "docs/page.md:1: 208 % has no source" docs/page.md 's/89 to 108 %/189 to 208 %/'
expect "and its beginning" "docs/page.md:1: 189 has no source" docs/page.md 's/89 to 108 %/189 to 208 %/'
expect "a small figure more" "docs/page.md:1: 45 MB has no source" docs/page.md 's/4 threads/45 MB/'
expect "a list before a unit" "docs/page.md:1: 37 has no source" docs/page.md 's/4 threads/37 and 40 s/'
expect "and not the number of a name" "docs/page.md:1: 40 s has no source" docs/page.md 's/4 threads/K3, 40 s/'
expect "a cell of its own" "docs/page.md:5: 3 has no source" docs/page.md 's/^\| 2/| 3/'
expect "another unit" "README.md:3: 1.56 GB has no source" README.md 's/1.56 TB/1.56 GB/'
expect "a unit that is gone" "README.md:3: 1.56 has no source" README.md 's/1.56 TB/1.56/'
expect "a row without the unit" "README.md does not say 1.56, but 1.56 TB" $list 's/1.56 TB/1.56/'
expect "page and row changed together, with the unit" "docs/page.md: 151 s: source.txt says 451" docs/page.md 's/451 s/151 s/' $list 's/451 s/151 s/'
# The row.
expect "a row that is gone" "README.md:2: 0.19 has no source" $list '/0.19/d'
expect "one of a whole number" "README.md:3: 7 has no source" $list '/\| 7 \|/d'
expect "a row that stands there twice" "README.md:2: 0.19 has two rows" $list '/0.19/p'
expect "a row for two places" "says 12.5MB in 2 places" $list '/MB and/d; s/\[12.5MB\] more/12.5MB/'
expect "a row for two numerals" "1,476 needs a row of its own" $list 's/ 3.7e-5 / [3.7e-5], in [1,476] /'
expect "a row of a page that is not read" "docs/more/other.md 1.5: not a page that is read" $list 's/^\| README.md \| 0.19.*/&\n| docs\/more\/other.md | 1.5 | is | source.txt | `x` |/'
expect "a row with a cell less" "has not five cells" $list 's/ is \| source.txt \| .\^\(/ source.txt | `^(/'
expect "a list without rows" "has no rows" $list '/^\| (README|docs.page).md \| [^|]* \| (is|rounded|by)/d'
# The source.
expect "another number in the source" "README.md: 0.19: source.txt says 0.2" source.txt 's/0.1873/0.2001/'
expect "a bound that does not hold" "README.md: 3.7e-5: evidence/0001-a/rows.jsonl says 3.7" evidence/0001-a/rows.jsonl 's/7.3e-5/7.5e-5/'
expect "a bound that is lazy" "README.md: 3.7e-5" evidence/0001-a/rows.jsonl 's/7.3e-5/7.1e-5/'
expect "a value that is no number" "README.md: 3.7e-5" evidence/0001-a/rows.jsonl 's/7.3e-5/null/'
expect "lines that hold one of two texts only" "README.md: 2: evidence/0001-a/rows.jsonl says 3" $list 's/ & not "refused"//'
expect "and have no such value" "README.md: 3.7e-5" $list 's/of "a" & "holds"` \|$/of "a"` |/'
expect "a sum that is another" "README.md: 7: source.txt says 8" source.txt 's/^4 more/5 more/'
expect "a source that says nothing of it" "says nothing of" source.txt 's/compared/counted/'
expect "a pointer that is wrong" "says nothing of" $list 's/worst \(/best (/'
expect "a pointer at something else" "README.md: 0.19: source.txt says 12.5" $list 's/worst (\S+) of/\1 here/'
expect "a recorded source that is gone" "rows.json is not there" $list 's/rows.jsonl/rows.json/'
expect "no source" "0.19: has no source" $list 's/rounded \| source.txt \| .worst/rounded | | `worst/'
expect "a page as its own source" "README.md quotes numbers: no source" $list 's/source.txt \| .worst/README.md | `worst/'
# Figures that lose their source.
expect "a recorded figure made one by command" "README.md has 2 by command, 1 no claim; its row among the pages says 1 by command" $list 's/rounded \| source.txt \| .worst.*/by command | | `make bench` |/'
expect "a claim called none" "README.md has 1 by command, 2 no claim" $list '/ 0.19 /d; $a| README.md | [0.19] of what | setting |'
expect "a command that there is not" "'make benches' is no command here" $list 's/make bench/make benches/'
expect "no command" "README.md: 5 s: 'somebody' is no command here" $list 's/.make bench. says so/somebody/'
expect "what would be no claim anywhere" "without a word beside it, it would stand for every 256" $list 's/SHA-\[256\]/256/'
expect "what is no claim for no reason" "'because' is no reason" $list 's/ name \|/ because |/'
# The pages.
expect "README as a page like others" "README.md is read 'figures': always every numeral" $list 's/every numeral/figures/'
expect "and its small numbers are read all the same" "README.md:2: 9 has no source" $list 's/every numeral/no: why not/' README.md 's/do not count/9/'
expect "README without a row" "README.md:2: 9 has no source" $list '/every numeral/d' README.md 's/do not count/9/'
expect "a page that nobody decided about" "docs/more/other.md: stands not among the pages" $list '/more.other/d'
expect "a page that is gone" "docs/gone.md is not there" $list 's/more.other/gone/'
expect "a page that is not read without a reason" "is read 'no'" $list 's/no: defines/no/'

close_record
