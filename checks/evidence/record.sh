#!/usr/bin/env bash
# Usage: checks/evidence/record.sh BUILD_DIR
# Records the claims that are not recorded yet: registers the question of the proof run if it has no
# registration, makes the folders, seals and verifies. MUTANTS and MUTANTS_COMMIT in the environment: see make.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
cd "$here/../.."
git diff --quiet HEAD -- engine oracle checks reports || echo "evidence: the sources have changes that are not committed, and the environment will say so" >&2
if [ ! -e preregistration/0006-proof-run.json ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  "$build/lazylora" make-model "$scratch/model" --shape tiny --seed 1 >/dev/null # as make.sh has it
  "$build/lazylora" shards "$scratch/model" --write-digests "$scratch/digests.json" >/dev/null
  "$build/lazylora" preregister 0006-proof-run --model "$scratch/model" --digests "$scratch/digests.json" \
    --question "Do ten steps on four short patterns of ids make English prose likelier to a random tiny model?" \
    --data docs/examples/slice.txt --task text:slice.txt --metric loss --direction below --threshold 0 --units 20 --chunk 64 \
    --stopping-rule "Ten steps; evaluated once, after the last." \
    --refuted-by "An interval of the paired difference that lies above 0, or around it." \
    --expected "Not decidable: the run learns its four patterns by heart, and prose has nothing of them."
fi
"$here/make.sh" "$build" evidence
"$here/seal.sh"
"$here/verify.sh"
