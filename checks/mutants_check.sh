#!/usr/bin/env bash
# Usage: checks/mutants_check.sh BUILD_DIR
# The table of planted faults fits the sources as they are, and the program that plants them refuses rows that
# would plant nothing. Planting and running them all is `make mutants`.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
mutate=$1/checks/mutate
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

row() { # ID TEXT FAULT
  printf '[%s]\nwhy   because\nfile  a.cc\ncheck check_self\n<<<\n%s\n===\n%s\n>>>\n' "$@"
}
rejects() { # WHAT WORDS, the table on standard input
  cat >"$out/table"
  refuses "$1" 1 "$2" "$mutate" "$out/table" "$out" list
}

"$mutate" "$root/checks/mutants/table.txt" "$root" list >"$out/said" 2>&1 && [ "$(wc -l <"$out/said")" -ge 60 ]
verdict "every row of the table stands in its file once, sixty rows or more" $?
nameless=
while IFS=$'\t' read -r id check; do
  [ -x "$1/checks/${check%% *}" ] || nameless+=" [$id] $check"
done <"$out/said"
[ -z "$nameless" ]
verdict "and names a check program" $? "$nameless"

printf 'one\ntwo\ntwo\n' >"$out/a.cc"
rejects "a text that is not there" 'is not in a.cc' < <(row x three 3)
rejects "a text that is there twice" 'more than once' < <(row x two 2)
rejects "a fault that changes nothing" 'changes nothing' < <(row x one one)
rejects "an id twice" 'stands twice' < <(row x one 1; row x one 1)
rejects "a row without its end" 'no line >>>' < <(row x one 1 | head -n -1)
rejects "a row without a reason" 'wants why' < <(row x one 1 | grep -v '^why')

printf 'one\nthree\ntwo\ntwo\n' >"$out/a.cc"
{ row x three two && printf '[y]\nwhy   because\nfile  a.cc\ncheck check_self\n<<<\none\n===\n>>>\n'; } >"$out/table"
for id in x y; do
  "$mutate" "$out/table" "$out" apply $id >"$out/said" 2>&1 && [ "$(head -n 2 "$out/a.cc" | tr '\n' ' ')" != "one three " ] &&
    "$mutate" "$out/table" "$out" revert $id >"$out/said" 2>&1 && [ "$(cat "$out/a.cc")" = "$(printf 'one\nthree\ntwo\ntwo')" ]
  verdict "a fault that stands there already, or is nothing, is taken out again ($id)" $?
done
printf 'one\ntwo\ntwo\n' >"$out/a.cc"
row x one 1 >"$out/table"
"$mutate" "$out/table" "$out" apply x >"$out/said" 2>&1 && [ "$(head -n 1 "$out/a.cc")" = 1 ] &&
  "$mutate" "$out/table" "$out" revert x >"$out/said" 2>&1 && [ "$(cat "$out/a.cc")" = "$(printf 'one\ntwo\ntwo')" ]
verdict "apply and revert leave the file as it was" $?

close_record
