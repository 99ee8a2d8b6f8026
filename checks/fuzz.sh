#!/usr/bin/env bash
# Usage: checks/fuzz.sh BUILD_DIR SECONDS
# Every fuzz target for so long, from fixtures/malformed/TARGET and what earlier runs found (BUILD_DIR/corpus).
# A crash, a sanitizer's report or a broken promise is a failure; its input stays in BUILD_DIR/crashes.
set -uo pipefail

[ $# -eq 2 ] || { echo "usage: $0 BUILD_DIR SECONDS" >&2; exit 2; }
[[ $2 =~ ^[1-9][0-9]*$ ]] || { echo "$0: SECONDS is \"$2\", not a positive number" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
seconds=$2
mkdir -p "$build/logs" "$build/crashes"

passed=0 failed=0
for folder in "$root"/fixtures/malformed/*/; do
  target=$(basename "$folder")
  log=$build/logs/fuzz_$target.log
  mkdir -p "$build/corpus/$target"
  LAZYLORA_FUZZ_TARGET=$target "$build/checks/fuzz" -max_total_time="$seconds" -max_len=65536 -timeout=25 \
    -rss_limit_mb=4096 -artifact_prefix="$build/crashes/$target-" "$build/corpus/$target" "$folder" \
    >"$log" 2>&1 </dev/null
  code=$?
  runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
  if [ $code -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then
    printf '%-14s %10d inputs, none of them a fault\n' "$target" "$runs"
    passed=$((passed + 1))
  else
    tail -n 30 "$log"
    printf '%-14s exit code %d after %s inputs; the whole output is in %s\n' "$target" $code "${runs:-?}" "$log"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
