#!/usr/bin/env bash
# Usage: checks/format.sh [--fix]
# Every source is as clang-format-14 writes it. Without --fix nothing is changed and the files that
# differ are named.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

mapfile -t sources < <(find engine oracle checks reports -name '*.h' -o -name '*.cc' | sort)
if [ ${#sources[@]} -eq 0 ]; then
  echo "format: no sources found"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
if [ "${1:-}" = --fix ]; then
  exec clang-format-14 -i "${sources[@]}"
fi

differing=$(printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 32 clang-format-14 --dry-run 2>&1 |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
if [ -n "$differing" ]; then
  printf '%s: not in the project'"'"'s format (make format)\n' $differing
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
echo "format: ${#sources[@]} files"
echo "1 passed, 0 failed, 0 skipped"
