#!/usr/bin/env bash
# Usage: checks/deps.sh LIST
# Installs the Debian packages of LIST (one a line) that are not installed yet, when that is possible
# without asking; otherwise names the line to run and fails. Silent when there is nothing to do.
set -euo pipefail

mapfile -t wanted < <(grep -v '^[[:space:]]*\(#\|$\)' "$1")

if ! command -v dpkg-query >/dev/null; then
  echo "deps: not a Debian system; what $1 names must be there already" >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  echo "deps: missing packages; run this, then make again:" >&2
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "deps: installing ${missing[*]}"
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
# A fresh machine has no package lists yet, an old one has stale ones: fetch them only if needed.
if ! "${install[@]}" "${missing[@]}" </dev/null >/dev/null 2>&1; then
  "${as_root[@]}" apt-get update </dev/null
  "${install[@]}" "${missing[@]}" </dev/null
fi
