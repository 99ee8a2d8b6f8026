#!/usr/bin/env bash
# Usage: reports/eval.sh BUILD_DIR OUT OPTIONS...
# `lazylora eval OPTIONS --out OUT`, then its pages; also where the evaluation refuses a preregistration, which
# the pages then say. Exit code: the evaluation's.
set -uo pipefail
[ $# -ge 3 ] || { echo "usage: $0 BUILD_DIR OUT OPTIONS..." >&2; exit 2; }
build=$1 out=$2
shift 2
if [ -e "$out/results.json" ]; then
  echo "$out: holds an evaluation already, and nothing was evaluated: name another folder (make eval OUT=...)" >&2
  exit 1
fi
"$build/lazylora" eval "$@" --out "$out"
code=$?
[ ! -e "$out/results.json" ] || [ $code -gt 1 ] || "$(dirname "$0")/render.sh" "$build" "$out" || exit 1
exit $code
