#!/usr/bin/env bash
# Usage: checks/evidence/reproduce.sh BUILD_DIR [NAME...]
# Makes the claims again in a scratch folder and compares every file outside may_differ/ with the recorded one.
# What cannot be made here is skipped with its reason.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$1
shift
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
passed=0 failed=0 skipped=0
"$here/make.sh" "$build" "$again" "$@" || { echo "reproduce: a claim could not be made again"; failed=1; }
for folder in "$again"/[0-9]*; do
  name=${folder##*/}
  [ -d "$root/evidence/$name" ] || { echo "skipped: $name is not recorded yet"; skipped=$((skipped + 1)); continue; }
  while IFS= read -r file; do
    if [ -e "$folder/$file.absent" ]; then
      echo "skipped: evidence/$name/$file: $(cat "$folder/$file.absent")"
      skipped=$((skipped + 1))
    elif cmp "$root/evidence/$name/$file" "$folder/$file" >"$again/cmp" 2>&1; then
      passed=$((passed + 1))
    else
      echo "DIFFERS  evidence/$name/$file: $(cat "$again/cmp")"
      failed=$((failed + 1))
    fi
  done < <(cd "$root/evidence/$name" && find . -type f ! -path './may_differ/*' ! -name '*.absent' -printf '%P\n' | LC_ALL=C sort)
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
