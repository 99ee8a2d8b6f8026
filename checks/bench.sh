#!/usr/bin/env bash
# Usage: checks/bench.sh BUILD_DIR
# Google Benchmark of the ops, from the cases of their checks; a table here, JSON in BUILD_DIR/bench.
set -euo pipefail
build=$1
mkdir -p "$build/bench"
export OMP_WAIT_POLICY=passive
"$build/checks/check_ops" --bench --benchmark_counters_tabular=true \
  --benchmark_out="$build/bench/ops.json" --benchmark_out_format=json
echo "JSON: $build/bench/ops.json (seconds here are one run on a shared machine: compare ratios, not days)"
