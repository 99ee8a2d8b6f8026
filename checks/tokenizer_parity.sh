#!/usr/bin/env bash
# Usage: checks/tokenizer_parity.sh BUILD_DIR
# The tokenizer's parts against the npm packages `tiktoken` and `js-tiktoken`, on their vocabularies and
# on Kimi K3's pattern. Runs where node and the packages are; `make tokenizer-parity` fetches them into
# build/tokenizer-parity. Nothing else needs either.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
packages=$here/../build/tokenizer-parity

skip() {
  echo "skipped: $*"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
}
command -v node >/dev/null || skip "no node for the comparison with tiktoken (make tokenizer-parity)"
[ -d "$packages/node_modules/tiktoken" ] && [ -d "$packages/node_modules/js-tiktoken" ] ||
  skip "the npm packages tiktoken and js-tiktoken are not in build/tokenizer-parity (make tokenizer-parity)"

out=$packages/cases
mkdir -p "$out"
"$build/checks/check_parity" --pattern "$out"
node "$here/tokenizer_parity.mjs" "$packages" "$out" 4000
exec "$build/checks/check_parity" "$out"
