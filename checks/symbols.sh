#!/usr/bin/env bash
# Usage: checks/symbols.sh BUILD_DIR
# The last word on transcendental functions: whatever the sources look like, no engine library may ask
# the C library for one, because its bits differ between machines (docs/numerics.md). The program's own
# folder, cli, computes nothing and is left out. First an object that calls expf must be refused.
set -euo pipefail
shopt -s inherit_errexit
build=$1
forbidden='(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|sincos|tan|sinh|cosh|tanh|asin|acos|atan|atan2|asinh|acosh|atanh|cbrt|hypot|erf|erfc|tgamma|lgamma)[fl]?'

# Undefined symbols of the objects in a file, glibc's version tags and aliases taken off.
asked_for() {
  nm --undefined-only --format=posix "$1" | awk '$2 == "U" {print $1}' |
    sed 's/@.*//; s/^__\(.*\)_finite$/\1/' | grep -xE "$forbidden" | sort -u || true
}

passed=0 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo 'extern "C" float expf(float); float f(float x) { return expf(x); }' >"$scratch/planted.cc"
g++ -O2 -c "$scratch/planted.cc" -o "$scratch/planted.o"
if [ "$(asked_for "$scratch/planted.o")" = expf ]; then
  passed=$((passed + 1))
else
  echo "symbols: a planted call of expf was not seen"
  failed=$((failed + 1))
fi

libraries=0
for library in "$build"/engine/libengine_*.a; do
  [ -f "$library" ] || continue
  [ "$(basename "$library")" != libengine_cli.a ] || continue
  libraries=$((libraries + 1))
  names=$(asked_for "$library")
  if [ -z "$names" ]; then
    passed=$((passed + 1))
  else
    echo "symbols: $(basename "$library") calls" $names
    failed=$((failed + 1))
  fi
done
if [ "$libraries" -eq 0 ]; then
  echo "symbols: no engine library under $build"
  failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
