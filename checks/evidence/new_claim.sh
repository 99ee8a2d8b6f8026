#!/usr/bin/env bash
# Usage: checks/evidence/new_claim.sh SLUG [ROOT]
# Allots NNNN-SLUG, prints it: the first number above all that evidence/, preregistration/ and reports/ bear. A folder
# in evidence/ holds it from then on, so that no number is given twice, not even that of a claim that was given up.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
slug=${1:-}
[[ $slug =~ ^[a-z0-9][a-z0-9-]*$ ]] || { echo "make new-claim SLUG=...: small letters, digits and '-'" >&2; exit 2; }
cd "${2:-$here/../..}"
mkdir -p evidence
exec 9<evidence
flock 9 # two who ask at once
last=$( { find evidence preregistration reports -maxdepth 1 -name '[0-9][0-9][0-9][0-9]-*' -printf '%f\n'
  sed -n 's/^\([0-9]\{4\}-[a-z0-9-]*\)() {$/\1/p' checks/evidence/make.sh 2>/dev/null || true; } | cut -c1-4 | sort | tail -n 1)
name=$(printf '%04d-%s' $((10#${last:-0} + 1)) "$slug")
mkdir "evidence/$name"
echo "$allotted_text" >"evidence/$name/allotted.txt"
echo "$name"
