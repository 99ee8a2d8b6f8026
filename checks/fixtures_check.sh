#!/usr/bin/env bash
# The test of checks/fixtures.sh: a changed byte, a missing and an unlisted file and a bad line are refused.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0

# expect WHAT LASTLINE: the script on the scratch tree.
expect() {
  local output
  output=$("$here/fixtures.sh" "$scratch" 2>&1)
  if [ "$(tail -n 1 <<<"$output")" = "$2" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '%s: wanted "%s", got\n%s\n' "$1" "$2" "$output"
  fi
}

fresh() {
  rm -rf "$scratch/fixtures"
  mkdir -p "$scratch/fixtures/malformed"
  echo good >"$scratch/fixtures/malformed/a.bin"
  printf '# comment\n%s  malformed/a.bin  make-fixtures\n' \
    "$(sha256sum <"$scratch/fixtures/malformed/a.bin" | cut -d' ' -f1)" >"$scratch/fixtures/MANIFEST"
}

fresh
expect "files and lines agree" "1 passed, 0 failed, 0 skipped"
echo bad >"$scratch/fixtures/malformed/a.bin"
expect "a changed file" "0 passed, 1 failed, 0 skipped"
rm "$scratch/fixtures/malformed/a.bin"
expect "a missing file" "0 passed, 1 failed, 0 skipped"
fresh
echo stray >"$scratch/fixtures/b.bin"
expect "a file nobody vouches for" "1 passed, 1 failed, 0 skipped"
fresh
echo 'malformed/a.bin made by hand' >>"$scratch/fixtures/MANIFEST"
expect "a line without a digest" "1 passed, 1 failed, 0 skipped"
fresh
sed -i 's/  make-fixtures//' "$scratch/fixtures/MANIFEST"
expect "a line without its generator" "0 passed, 2 failed, 0 skipped"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
