#!/usr/bin/env bash
# Usage: checks/fixtures.sh [ROOT]
# Every file under fixtures/ stands in fixtures/MANIFEST with the digest it has and the command that made
# it, and every line of the MANIFEST is met by a file. A line: SHA-256, two spaces, path, two spaces, generator.
set -euo pipefail
shopt -s inherit_errexit
cd "${1:-$(dirname "$0")/..}/fixtures"

passed=0 failed=0 listed=()
complain() {
  echo "fixtures: $*"
  failed=$((failed + 1))
}

while IFS= read -r line; do
  case $line in '' | '#'*) continue ;; esac
  if ! [[ $line =~ ^([0-9a-f]{64})\ \ ([^ ]+)\ \ (.+)$ ]]; then
    complain "not a line of the MANIFEST: $line"
    continue
  fi
  digest=${BASH_REMATCH[1]} path=${BASH_REMATCH[2]}
  listed+=("$path")
  if [ ! -f "$path" ]; then
    complain "$path is listed and not there"
  elif [ "$(sha256sum <"$path")" != "$digest  -" ]; then
    complain "$path has other bytes than the MANIFEST says"
  else
    passed=$((passed + 1))
  fi
done <MANIFEST

while IFS= read -r path; do
  case " ${listed[*]:-} " in *" $path "*) ;; *) complain "$path is not in the MANIFEST" ;; esac
done < <(find . -type f ! -name README.md ! -path ./MANIFEST | sed 's/^\.\///' | sort)

if [ $((passed + failed)) -eq 0 ]; then
  echo "skipped: no fixtures yet"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
