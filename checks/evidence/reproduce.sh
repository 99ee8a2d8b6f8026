#!/usr/bin/env bash
# Usage: checks/evidence/reproduce.sh BUILD_DIR [NAME...]
# Makes the recorded claims (or those named) again, one by one in a scratch folder, and compares every file outside
# may_differ/ with the recorded one. What cannot be made here, and what the C library decides where it is another, is
# skipped with its reason; a claim that nothing makes, a file more and a file less are failures.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
root=$(cd "$here/../.." && pwd)
[ $# -ge 1 ] || { echo "usage: $0 BUILD_DIR [NAME...]" >&2; exit 2; }
build=$1
shift
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
passed=0 failed=0 skipped=0
fails() { echo "$*"; failed=$((failed + 1)); }
skips() { echo "skipped: $*"; skipped=$((skipped + 1)); }
files_of() { (cd "$1" && find . -type f ! -path './may_differ/*' -printf '%P\n' | sed 's/\.absent$//' | LC_ALL=C sort -u); }
# What the oracle's exp and log are of: the library, and the form of it that processors with FMA get.
c_library() { sed -n 's/^c library *//p; s/^its flags.*\bfma\b.*/with FMA/p' "$1/may_differ/environment.txt" 2>/dev/null | tr '\n' ' '; }

# compare NAME FILE
compare() {
  local was=$root/evidence/$1 now=$again/$1 file=$2
  if [ -e "$now/$file.absent" ]; then
    skips "evidence/$1/$file: $(cat "$now/$file.absent")"
  elif [ -e "$was/$file.absent" ]; then
    skips "evidence/$1/$file: not recorded: where it was, $(cat "$was/$file.absent")"
  elif [ ! -e "$was/$file" ]; then
    fails "MORE     evidence/$1/$file: is made, and not recorded"
  elif cmp "$was/$file" "$now/$file" >"$again/cmp" 2>&1; then
    passed=$((passed + 1))
  elif grep -qxF -- "$file" "$was/rests_on_c_library.txt" 2>/dev/null && [ -e "$now/$file" ] && [ "$(c_library "$was")" != "$(c_library "$now")" ]; then
    skips "evidence/$1/$file: differs; it rests on the C library, recorded $(c_library "$was"), here $(c_library "$now")"
  else
    fails "DIFFERS  evidence/$1/$file: $(sed "s|$again/||" "$again/cmp")"
  fi
}

names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(claims "$root")
[ ${#names[@]} -gt 0 ] || fails "MISSING  evidence: no claim is recorded"
for name in "${names[@]}"; do
  [ -d "$root/evidence/$name" ] || { skips "$name is not recorded yet"; continue; }
  echo "evidence/$name: is made again ..." # some take minutes
  said=$("$here/make.sh" "$build" "$again" "$name" 2>&1)
  code=$?
  if [ -d "$again/$name" ]; then
    while IFS= read -r file; do compare "$name" "$file"; done < <({ files_of "$root/evidence/$name"; files_of "$again/$name"; } | LC_ALL=C sort -u)
  elif [ $code -eq 0 ] && [[ $said == "skipped: "* ]]; then
    skips "${said#skipped: }"
  else
    printf '%s\n' "$said"
    fails "NOT MADE evidence/$name: could not be made again"
  fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -gt 0 ] || [ "$passed" -gt 0 ] || exit 77 # nothing was compared
[ "$failed" -eq 0 ]
