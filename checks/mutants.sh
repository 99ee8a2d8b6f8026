#!/usr/bin/env bash
# Usage: checks/mutants.sh BUILD_DIR [--out FILE] [ID...]
# Plants every fault of checks/mutants/table.txt (or those named), one at a time, in a copy of the sources
# under BUILD_DIR/mutants, builds, and runs the row's check, which must fail. First the same checks run without
# a fault and must pass. Reference data is left out: what kills a fault stands in this repository.
# One line a fault, then "N killed, N survived, N invalid" and the plain line of counts. Killed: the check counts a
# failure, or crashes. Invalid: the fault does not compile, or its check did not run, end in time or count a
# failure. --out writes one JSON line a fault. Exit 0 only if all were killed.
set -uo pipefail

[ $# -ge 1 ] || { echo "usage: $0 BUILD_DIR [--out FILE] [ID...]" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
shift
out=/dev/null
if [ "${1:-}" = --out ]; then
  [ -n "${2:-}" ] && [ ! -e "$2" ] || { echo "$0: --out wants a file that is not there yet" >&2; exit 2; }
  out=$2
  shift 2
fi
wanted=" $* "

export OMP_WAIT_POLICY=passive LAZYLORA_REFERENCE=/nonexistent LAZYLORA_REF_FIXTURES=/nonexistent
work=$build/mutants
source=$work/source
table=$source/checks/mutants/table.txt
mutate="$build/checks/mutate"
mkdir -p "$work"
: >"$work/build.log"

# The sources as they are; what did not change keeps its time, so that a second run compiles little.
while IFS= read -r -d '' file; do
  cmp -s "$root/$file" "$source/$file" && continue
  mkdir -p "$(dirname "$source/$file")"
  cp "$root/$file" "$source/$file"
done < <(cd "$root" && git ls-files -z --cached --others --exclude-standard)

built() { (cd "$source" && cmake --build --preset release --parallel "$(nproc)" --target "${1%% *}") >>"$work/build.log" 2>&1; }
checked() { (cd "$source" && timeout 600 bash -c "exec build/release/checks/$1") >"$work/check.log" 2>&1 </dev/null; }

rows=$("$mutate" "$table" "$source" list) || exit 1
(cd "$source" && cmake --preset release) >>"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }

chosen=()
while IFS=$'\t' read -r id check; do
  [ $# -eq 0 ] || [[ $wanted == *" $id "* ]] || continue
  chosen+=("$id"$'\t'"$check")
done <<<"$rows"
[ $# -eq 0 ] || [ ${#chosen[@]} -eq $# ] || { echo "$0: not every id named is in the table" >&2; exit 2; }

while read -r check; do
  if ! built "$check"; then
    tail -n 40 "$work/build.log"
    echo "without a fault ${check%% *} does not build"
    exit 1
  fi
  if ! checked "$check" || ! grep -qE '^[1-9][0-9]* passed, 0 failed' "$work/check.log"; then
    tail -n 40 "$work/check.log"
    echo "without a fault $check does not pass: its failure would say nothing"
    exit 1
  fi
done < <(printf '%s\n' "${chosen[@]}" | cut -f2 | sort -u)

killed=0 survived=0 invalid=0
for row in "${chosen[@]}"; do
  id=${row%%$'\t'*} check=${row#*$'\t'}
  start=$SECONDS
  "$mutate" "$table" "$source" apply "$id" || exit 1
  verdict=killed
  if ! built "$check"; then
    verdict='invalid (does not compile)'
  else
    checked "$check"
    case $? in
      0) verdict=survived ;;
      124) verdict='invalid (its check did not end)' ;;
      1) grep -qE '^[0-9]+ passed, [1-9][0-9]* failed' "$work/check.log" || verdict='invalid (its check counts no failure)' ;;
      12[5-7]) verdict='invalid (its check did not run)' ;;
    esac
  fi
  "$mutate" "$table" "$source" revert "$id" || exit 1
  case $verdict in
    killed) killed=$((killed + 1)) ;;
    survived) survived=$((survived + 1)) ;;
    *) invalid=$((invalid + 1)) ;;
  esac
  printf '%-48s %-10s %3d s  %s\n' "$id" "$verdict" $((SECONDS - start)) "$check"
  printf '{"check":"mutants","name":"%s","outcome":"%s","by":"%s"}\n' "$id" "${verdict%% *}" "$check" >>"$out"
done
printf '{"check":"mutants","passed":%d,"failed":%d,"skipped":0}\n' $killed $((survived + invalid)) >>"$out"

echo "$killed killed, $survived survived, $invalid invalid"
echo "$killed passed, $((survived + invalid)) failed, 0 skipped"
[ $((survived + invalid)) -eq 0 ] && [ "$killed" -gt 0 ]
