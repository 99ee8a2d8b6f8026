#!/usr/bin/env bash
# Usage: checks/run_all.sh BUILD_DIR [--programs | NAME...]
# Runs the checks in the order below, the comparison's own test first: if that fails nothing else would
# mean anything, and the run stops. --programs, for sanitizers, leaves the scripts out and takes check_gradients'
# quick form: every seventh tensor, without reference data. Names run just those.
# Every check ends its output with "N passed, N failed, N skipped". A check that crashes, prints no such
# line, counts nothing, fails without saying what, or skips without a reason is one failure.
# The last line is the total in the same form; exit 1 if anything failed.
set -uo pipefail

[ $# -ge 1 ] || { echo "usage: $0 BUILD_DIR [--programs | NAME...]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
build=$1
shift

scripts=(run_all_check.sh boundaries_check.sh boundaries.sh symbols.sh format.sh
  fixtures_check.sh fixtures.sh evidence_check.sh numbers_check.sh)
programs=(check_ops check_store check_fuzz check_model check_train check_data check_adapter
  check_measure check_forward check_gradients check_trajectory)
# Scripts that run what was built.
runs=(
  programs_check.sh
  stale_check.sh
  mutants_check.sh
  cli_check.sh
  usage_check.sh
  words_check.sh
  completions_check.sh
  reference_check.sh
  generate_check.sh
  eval_check.sh
  one_hash.sh
  emulated_check.sh
  faults_check.sh
  tokenizer_parity.sh
)
names=("$@")
[ $# -gt 0 ] || names=(check_self "${scripts[@]}" "${programs[@]}" "${runs[@]}")
[ "${1:-}" = --programs ] && names=(check_self "${programs[@]}")

# libgomp's waiting threads spin by default, which on shared cores makes everything many times slower.
export OMP_WAIT_POLICY=passive
# An allocation that cannot be is refused, as without the sanitizer, and not the end of the process.
export ASAN_OPTIONS=allocator_may_return_null=1
# A check never waits for a human.
exec </dev/null

logs=$build/logs
mkdir -p "$logs"
reasons=$logs/skip_reasons
: >"$reasons"
passed=0 failed=0 skipped=0

# What a reader needs of a failing check: of GoogleTest only the failing tests, of others all.
show_failures() {
  if grep -q '^\[ RUN ' "$1"; then
    awk '/^\[ RUN /{text=""; inside=1}
         inside{text=text $0 "\n"} !inside && !/^\[/{print}
         /^\[ +(OK|SKIPPED) +\]/{inside=0; text=""} /^\[ +FAILED +\]/{if (inside) printf "%s", text; inside=0; text=""}
         END{if (inside) printf "%s(stopped here)\n", text}' "$1"
  else
    cat "$1"
  fi
}

# Reasons as GoogleTest prints them (the lines after "FILE:LINE: Skipped") and as scripts do ("skipped: WHY").
skip_reasons() {
  awk '/: Skipped$/{want=1; next} want{if ($0 == "" || /^\[/) want=0; else print}
       sub(/^skipped: /, "")' "$1"
}

for name in "${names[@]}"; do
  log=$logs/$name.log
  command=("$build/checks/$name")
  [[ $name == *.sh ]] && command=("$here/$name")
  [[ " symbols.sh ${runs[*]} " == *" $name "* ]] && command+=("$build")
  [ "${1:-}" = --programs ] && [ "$name" = check_gradients ] && command+=(--quick)

  start=$SECONDS
  "${command[@]}" >"$log" 2>&1
  code=$?
  seconds=$((SECONDS - start))

  counts=$(tail -n 1 "$log")
  if [[ $counts =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
    p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]} s=${BASH_REMATCH[3]}
    trouble=
    if [ "$code" -gt 128 ]; then trouble="ended by signal $((code - 128))"
    elif [ "$f" -eq 0 ] && [ "$code" -ne 0 ] && [ "$code" -ne 77 ]; then trouble="exit code $code without a failure"
    elif [ "$f" -gt 0 ] && [ "$code" -eq 0 ]; then trouble="exit code 0 with failures"
    elif [ $((p + f + s)) -eq 0 ]; then trouble="nothing was checked"
    elif [ "$s" -gt 0 ] && [ -z "$(skip_reasons "$log")" ]; then trouble="skipped without a reason"
    fi
    [ -z "$trouble" ] || f=$((f + 1))
  else
    p=0 f=1 s=0
    trouble="no line of counts, exit code $code"
    [ "$code" -gt 128 ] && trouble="ended by signal $((code - 128))"
  fi

  [ "$s" -eq 0 ] || skip_reasons "$log" >>"$reasons"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  if [ "$f" -gt 0 ]; then
    printf -- '---- %s failed%s; the whole output is in %s\n' "$name" "${trouble:+ ($trouble)}" "$log"
    show_failures "$log"
    printf -- '----\n'
  fi
  printf '%-22s %4d passed, %d failed, %d skipped  %4d s\n' "$name" "$p" "$f" "$s" "$seconds"
  if [ "$name" = check_self ] && [ "$f" -gt 0 ]; then
    echo "the comparison itself is wrong: no other check was run"
    break
  fi
done

if [ "$skipped" -gt 0 ]; then
  echo "skipped because:"
  sort "$reasons" | uniq -c | sed 's/^ *\([0-9]*\) /  \1 x /'
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
