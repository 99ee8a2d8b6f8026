#!/usr/bin/env bash
# Usage: checks/evidence/verify.sh [ROOT]
# Every file of evidence/ and preregistration/ has its recorded bytes, none is missing or more; every claim's
# folder has what evidence/README.md promises; every run's log is a chain; the statement has the same digests.
# Each finding names its file.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
cd "${1:-$here/../..}" || exit 1
found=0
finding() { echo "evidence: $*"; found=$((found + 1)); }

if [ ! -e evidence/SHA256SUMS ] && [ -z "$(claims .)" ]; then
  echo "skipped: no evidence is recorded yet"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
[ -e evidence/SHA256SUMS ] || finding "evidence/SHA256SUMS: is missing"
bytes=$(bytes_of_evidence .)
[ "$bytes" -le $most_bytes ] || finding "evidence: $bytes bytes, at most $most_bytes"

# Not `sha256sum --check`: it would pass over files that nobody listed, and take A for a in a digest.
declare -A digest
while IFS= read -r line; do
  if [[ $line =~ ^([0-9a-f]{64})\ \ (.+)$ ]]; then
    [ -z "${digest[${BASH_REMATCH[2]}]:-}" ] || finding "evidence/SHA256SUMS: ${BASH_REMATCH[2]} stands there twice"
    digest[${BASH_REMATCH[2]}]=${BASH_REMATCH[1]}
  else
    finding "evidence/SHA256SUMS: not a line of sums: $line"
  fi
done < <(cat evidence/SHA256SUMS 2>/dev/null)
while IFS= read -r line; do
  file=${line:66}
  if [ -z "${digest[$file]:-}" ]; then
    finding "$file: is not in evidence/SHA256SUMS"
  elif [ "${digest[$file]}" != "${line:0:64}" ]; then
    finding "$file: SHA-256 is ${line:0:64}, recorded is ${digest[$file]}"
  fi
  unset "digest[$file]"
done < <(sums .)
for file in "${!digest[@]}"; do finding "$file: is missing"; done
# The order of the lines is part of the file.
[ "$(sums .)" = "$(cat evidence/SHA256SUMS 2>/dev/null)" ] || finding "evidence/SHA256SUMS: is not what seal.sh would write"

# The statement says the same digests, whoever wrote it last.
while read -r sum file; do
  case $file in evidence/statement.json | evidence/ro-crate-metadata.json) continue ;; esac
  grep -qF "{\"name\": \"$file\", \"digest\": {\"sha256\": \"$sum\"}}" evidence/statement.json 2>/dev/null || finding "evidence/statement.json: has not the digest of $file"
done < <(sums .)

for claim in $(claims .); do
  [[ $claim =~ ^[0-9]{4}-[a-z0-9-]+$ ]] || finding "evidence/$claim: is not NNNN-slug"
  for file in README.md commands.txt may_differ/environment.txt; do
    [ -s "evidence/$claim/$file" ] || finding "evidence/$claim/$file: is promised and missing"
  done
  # shellcheck disable=SC2016 # backquotes of Markdown
  for file in $(sed -n 's/^| \(`[^|]*\) |.*/\1/p' "evidence/$claim/README.md" 2>/dev/null | grep -o '`[^`]*`' | tr -d '`'); do
    [ -s "evidence/$claim/$file" ] || [ -e "evidence/$claim/$file.absent" ] || finding "evidence/$claim/$file: is promised and missing"
  done
  grep -qF "($claim/README.md)" evidence/README.md 2>/dev/null || finding "evidence/README.md: says nothing of $claim"
done
# Pages lead to what is there.
while IFS= read -r page; do
  while IFS= read -r link; do
    [ -e "$(dirname "$page")/$link" ] || finding "$page: leads to $link, which is not there"
  done < <(grep -oE '\]\([^)#:]+' "$page" | cut -c3- | LC_ALL=C sort -u)
done < <(find evidence -name '*.md')
[ "$(claims . | cut -c1-4 | uniq -d)" = "" ] || finding "evidence: one number twice: $(claims . | cut -c1-4 | uniq -d)"

# A log is a chain: every line carries the SHA-256 of the line before.
while IFS= read -r log; do
  prev=$(printf '0%.0s' $(seq 64)) number=0
  while IFS= read -r line; do
    number=$((number + 1))
    [[ $line == *"\"prev\":\"$prev\"}" ]] || { finding "$log: line $number does not follow line $((number - 1))"; break; }
    prev=$(printf '%s' "$line" | sha256sum | cut -d' ' -f1)
  done <"$log"
done < <(find evidence -name log.jsonl)

if [ $found -gt 0 ]; then echo "0 passed, $found failed, 0 skipped"; exit 1; fi
echo "evidence: $(wc -l <evidence/SHA256SUMS) files of $bytes bytes, $(claims . | wc -l) claims"
echo "1 passed, 0 failed, 0 skipped"
