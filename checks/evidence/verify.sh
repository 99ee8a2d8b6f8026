#!/usr/bin/env bash
# Usage: checks/evidence/verify.sh [ROOT]
# Every file of evidence/ and preregistration/ has its recorded bytes, none is missing or more, and there is nothing but
# files; the statement has the same digests; a number has one name, and a registration's page says what its JSON says;
# every claim's folder has what evidence/README.md promises; every run's log is a chain. Each finding names its file. A number that is allotted and not recorded is skipped by name.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
cd "${1:-$here/../..}" || exit 1
found=0
finding() { echo "evidence: $*"; found=$((found + 1)); }

finish() { # PASSED
  echo "$1 passed, $found failed, $allotted_numbers skipped"
  [ $found -eq 0 ]
  exit
}
allotted_numbers=0

# What is no file is named and not opened: reading a FIFO would wait for ever.
while IFS= read -r line; do finding "$line"; done < <(unwanted .)
[ -e evidence/SHA256SUMS ] || finding "evidence/SHA256SUMS: is missing"
[ $found -eq 0 ] || finish 0
for name in $(allotments .); do
  echo "skipped: evidence/$name: allotted, not recorded"
  allotted_numbers=$((allotted_numbers + 1))
done
bytes=$(bytes_of_evidence .)
[ "$bytes" -le $most_bytes ] || finding "evidence: $bytes bytes, at most $most_bytes"

# Not `sha256sum --check`: it would pass over files that nobody listed, and take A for a in a digest.
now=$(sums .)
# against WHO HERE: the sums that WHO says, on standard input, against those of what is here, both ways.
against() {
  local -A digest=()
  local line file
  while IFS= read -r line || [ -n "$line" ]; do
    if ! [[ $line =~ $sums_form ]]; then finding "$1: no line of sums: $(cat -v <<<"$line")"; continue; fi
    file=${line:66}
    [ -z "${digest[$file]:-}" ] || finding "$1: $file stands there twice"
    digest[$file]=${line:0:64}
  done < <(with_nul_seen)
  while IFS= read -r line; do
    file=${line:66}
    if [ -z "${digest[$file]:-}" ]; then
      finding "$file: is not in $1"
    elif [ "${digest[$file]}" != "${line:0:64}" ]; then
      finding "$file: SHA-256 is ${line:0:64}, recorded in $1 is ${digest[$file]}"
    fi
    unset "digest[$file]"
  done <<<"$2"
  for file in "${!digest[@]}"; do finding "$file: is missing, and recorded in $1"; done
}
against evidence/SHA256SUMS "$now" <evidence/SHA256SUMS
# The order of the lines is part of the file, and so is every byte between them.
cmp -s evidence/SHA256SUMS <(echo "$now") || finding "evidence/SHA256SUMS: is not what seal.sh would write"
# The statement says the same digests, no more and no fewer, whoever wrote it last.
if [ -e evidence/statement.json ]; then
  against evidence/statement.json "$(subjects_are_of <<<"$now")" < <(subjects evidence/statement.json)
else
  finding "evidence/statement.json: is missing"
fi

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
while IFS= read -r line; do finding "$line"; done < <(two_names . && untrue_pages .)

# A log is a chain: every line carries the SHA-256 of the line before.
while IFS= read -r log; do
  prev=$(printf '0%.0s' $(seq 64)) number=0
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    [[ $line == *"\"prev\":\"$prev\"}" ]] || { finding "$log: line $number does not follow line $((number - 1))"; break; }
    prev=$(printf '%s' "$line" | sha256sum | cut -d' ' -f1)
  done <"$log"
done < <(find evidence -name log.jsonl)

[ $found -eq 0 ] || finish 0
echo "evidence: $(wc -l <evidence/SHA256SUMS) files of $bytes bytes, $(claims . | wc -l) claims"
finish 1
