#!/usr/bin/env bash
# Usage: checks/evidence/new_claim.sh SLUG [ROOT]
# Prints NNNN-SLUG with the first number above all that evidence/, preregistration/ and reports/ bear: a number is
# never given twice, not even that of a claim that was given up.
set -euo pipefail
slug=${1:-}
[[ $slug =~ ^[a-z0-9][a-z0-9-]*$ ]] || { echo "make new-claim SLUG=...: small letters, digits and '-'" >&2; exit 2; }
cd "${2:-$(dirname "$0")/../..}"
last=$( { find evidence preregistration reports -maxdepth 1 -name '[0-9][0-9][0-9][0-9]-*' -printf '%f\n'
  sed -n 's/^\([0-9]\{4\}-[a-z0-9-]*\)() {$/\1/p' checks/evidence/make.sh 2>/dev/null || true; } | cut -c1-4 | sort | tail -n 1)
printf '%04d-%s\n' $((10#${last:-0} + 1)) "$slug"
