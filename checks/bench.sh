#!/usr/bin/env bash
# Usage: checks/bench.sh BUILD_DIR
# Google Benchmark of the ops, from the cases of their checks, then of the matrix products beside the machine's
# limits, once for every instruction set; tables here, JSON in BUILD_DIR/bench. The last lines say what is reached.
set -euo pipefail
build=$1
mkdir -p "$build/bench"
export OMP_WAIT_POLICY=passive
"$build/checks/check_ops" --bench --benchmark_counters_tabular=true \
  --benchmark_out="$build/bench/ops.json" --benchmark_out_format=json
verdicts=()
# OpenBLAS chooses its kernel once a process, and by a table that newer processors are not in.
for pair in avx2:Haswell avx512:SkylakeX; do
  set=${pair%:*}
  status=0
  OPENBLAS_CORETYPE=${pair#*:} OPENBLAS_NUM_THREADS=1 "$build/checks/bench_products" "$set" \
    --benchmark_counters_tabular=true --benchmark_out="$build/bench/products_$set.json" \
    --benchmark_out_format=json | tee "$build/bench/products_$set.txt" || status=${PIPESTATUS[0]}
  [[ $status == 0 || $status == 77 ]] || exit "$status"
  verdicts+=("$(tail -n 1 "$build/bench/products_$set.txt")")
done
echo "JSON and tables: $build/bench (compare ratios, not seconds: docs/performance.md)"
printf '%s\n' "${verdicts[@]}"
