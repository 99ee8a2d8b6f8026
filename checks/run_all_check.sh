#!/usr/bin/env bash
# The runner's own test: programs that lie about themselves are planted, and each must be counted as a
# failure by checks/run_all.sh.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/checks"
passed=0 failed=0

# plant NAME BODY: a check program of the scratch build.
plant() {
  printf '#!/bin/sh\n%s\n' "$2" >"$scratch/checks/$1"
  chmod +x "$scratch/checks/$1"
}

# expect WHAT TOTAL EXIT NAME...: the runner's last line and exit code for those programs.
expect() {
  local what=$1 total=$2 code=$3
  shift 3
  local output got
  output=$("$here/run_all.sh" "$scratch" "$@" 2>&1)
  got=$?
  if [ "$(tail -n 1 <<<"$output")" = "$total" ] && [ $got -eq "$code" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '%s: wanted "%s" and exit %d, got exit %d and\n%s\n' "$what" "$total" "$code" "$got" "$output"
  fi
}

plant good 'echo "3 passed, 0 failed, 0 skipped"'
plant reasoned 'echo "skipped: no data here"; echo "1 passed, 0 failed, 1 skipped"'
plant bad 'echo "2 passed, 1 failed, 0 skipped"; exit 1'
plant crashing 'echo "5 passed, 0 failed, 0 skipped"; kill -SEGV $$'
plant silent 'exit 0'
plant talkative 'echo "9 passed, 0 failed, 0 skipped"; echo "and more"'
plant dishonest 'echo "2 passed, 0 failed, 0 skipped"; exit 1'
plant lenient 'echo "2 passed, 1 failed, 0 skipped"; exit 0'
plant empty 'echo "0 passed, 0 failed, 0 skipped"'
plant unreasoned 'echo "1 passed, 0 failed, 1 skipped"'
plant reading 'cat; echo "1 passed, 0 failed, 0 skipped"'

expect "two good programs" "4 passed, 0 failed, 1 skipped" 0 good reasoned
expect "a failure is added" "5 passed, 1 failed, 0 skipped" 1 good bad
expect "a crash after a good line" "5 passed, 1 failed, 0 skipped" 1 crashing
expect "no line of counts" "0 passed, 1 failed, 0 skipped" 1 silent
expect "counts that are not the last line" "0 passed, 1 failed, 0 skipped" 1 talkative
expect "a bad exit without a failure" "2 passed, 1 failed, 0 skipped" 1 dishonest
expect "failures with a good exit" "2 passed, 2 failed, 0 skipped" 1 lenient
expect "nothing checked" "0 passed, 1 failed, 0 skipped" 1 empty
expect "a skip without a reason" "1 passed, 1 failed, 1 skipped" 1 unreasoned
expect "a program that is not there" "3 passed, 1 failed, 0 skipped" 1 good absent
expect "a program that reads its input" "1 passed, 0 failed, 0 skipped" 0 reading

# Scripts with verdicts.sh: a check that calls what is not there did not happen, whatever became of the status.
# planted BODY: one whose only other verdict holds.
planted() {
  plant verdicts "exec bash -c '
    out=\$(mktemp -d) && trap \"rm -rf \$out\" EXIT
    . \"$here/verdicts.sh\"
    there() { true; }
    $1
    verdict one \$?
    close_record'"
}
planted 'there'
expect "a command that is there" "1 passed, 0 failed, 0 skipped" 0 verdicts
for body in '! nowhere' 'nowhere || true' '(cd / && nowhere); true' 'x=$(nowhere); true' 'nowhere | cat' 'if nowhere; then false; fi'; do
  planted "$body"
  expect "no such command: $body" "1 passed, 1 failed, 0 skipped" 1 verdicts
done

plant check_self 'echo "0 passed, 1 failed, 0 skipped"; exit 1'
expect "nothing runs after a broken comparison" "0 passed, 1 failed, 0 skipped" 1 check_self good

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
