#!/usr/bin/env bash
# Usage: checks/mutants_check.sh BUILD_DIR
# The table of planted faults fits the sources as they are, and the program that plants them refuses rows that
# would plant nothing. Planting and running them all is `make mutants`.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
mutate=$1/checks/mutate
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0

verdict() { # WHAT STATUS
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "DOES NOT HOLD  $1"; cat "$out/said"; fi
}
row() { # ID TEXT FAULT
  printf '[%s]\nwhy   because\nfile  a.cc\ncheck check_self\n<<<\n%s\n===\n%s\n>>>\n' "$@"
}
refuses() { # WHAT WORDS, the table on standard input
  cat >"$out/table"
  ! "$mutate" "$out/table" "$out" list >"$out/said" 2>&1 && grep -q "$2" "$out/said"
  verdict "$1" $?
}

"$mutate" "$root/checks/mutants/table.txt" "$root" list >"$out/said" 2>&1 && [ "$(wc -l <"$out/said")" -ge 60 ]
verdict "every row of the table stands in its file once, sixty rows or more" $?
while IFS=$'\t' read -r id check; do
  [ -x "$1/checks/${check%% *}" ]
  verdict "[$id] names a check program: $check" $?
done <"$out/said"

printf 'one\ntwo\ntwo\n' >"$out/a.cc"
refuses "a text that is not there" 'is not in a.cc' < <(row x three 3)
refuses "a text that is there twice" 'more than once' < <(row x two 2)
refuses "a fault that changes nothing" 'changes nothing' < <(row x one one)
refuses "an id twice" 'stands twice' < <(row x one 1; row x one 1)
refuses "a row without its end" 'no line >>>' < <(row x one 1 | head -n -1)
refuses "a row without a reason" 'wants why' < <(row x one 1 | grep -v '^why')

row x one 1 >"$out/table"
"$mutate" "$out/table" "$out" apply x >"$out/said" 2>&1 && [ "$(head -n 1 "$out/a.cc")" = 1 ] &&
  "$mutate" "$out/table" "$out" revert x >"$out/said" 2>&1 && [ "$(cat "$out/a.cc")" = "$(printf 'one\ntwo\ntwo')" ]
verdict "apply and revert leave the file as it was" $?

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
