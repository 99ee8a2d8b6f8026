#!/usr/bin/env bash
# Usage: checks/bench_sequences.sh BUILD_DIR [TOKENS [MB/S]]
# Tokens an hour against sequences a step for `medium` on a device of given speed, and how far off the
# forecast of `lazylora plan` is; see checks/bench_sequences.cc, the ratio comes last. The model
# (1.5 GB) is made under $TMPDIR and removed.
set -euo pipefail
build=$1
shift
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$build/lazylora" make-model "$out/model" --shape medium --seed 1 >/dev/null
"$build/checks/bench_sequences" "$out/model" "$@"
