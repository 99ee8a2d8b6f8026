#!/usr/bin/env bash
# Usage: checks/bench_stream.sh BUILD_DIR [TOKENS [REPETITIONS [processor|wall]]]
# Does reading overlap computing? A sweep over `medium` from a device of given speed, see
# checks/bench_stream.cc; the ratios come last. The model (1.5 GB) is made under $TMPDIR and removed.
set -euo pipefail
build=$1
shift
export OMP_WAIT_POLICY=passive
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$build/lazylora" make-model "$out/model" --shape medium --seed 1 >/dev/null
"$build/checks/bench_stream" "$out/model" "$@"
