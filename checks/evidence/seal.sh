#!/usr/bin/env bash
# Usage: checks/evidence/seal.sh [ROOT]
# Writes evidence/README.md, statement.json (in-toto), ro-crate-metadata.json and, over all of evidence/ and
# preregistration/, SHA256SUMS. Only adds: a file that SHA256SUMS, statement.json or the last commit's sums have recorded,
# and that is gone or has other bytes, is refused by name, and so are what is no file, a number with two names, a
# registration's page that is not its JSON's and more than 20 MB in all.
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
root=$(cd "${1:-$here/../..}" && pwd)
cd "$root"
made='^evidence/(README\.md|statement\.json|ro-crate-metadata\.json)$|^preregistration/README\.md$'

refuse() { echo "seal: $*" >&2; exit 1; }
odd=$(unwanted . || true
  if [ -e evidence/SHA256SUMS ]; then with_nul_seen <evidence/SHA256SUMS | grep -avE "$sums_form" | sed 's|^|evidence/SHA256SUMS: no line of sums: |' || true; fi)
[ -z "$odd" ] || refuse "$odd"
odd=$(two_names . && untrue_pages .)
[ -z "$odd" ] || refuse "$odd"
# Recorded is what any of three says: a line that one has lost the others have.
before() {
  cat evidence/SHA256SUMS || true
  subjects evidence/statement.json || true
  git show HEAD:./evidence/SHA256SUMS || true
}
while IFS= read -r line; do
  now=$(sha256sum -- "${line:66}" 2>/dev/null | cut -d' ' -f1) || now=
  [ "$now" = "${line:0:64}" ] || refuse "${line:66}: recorded, and not to be changed: SHA-256 is ${now:-none, it is gone}, recorded is ${line:0:64}"
done < <(before 2>/dev/null | LC_ALL=C sort -u | awk -v made="$made" 'substr($0, 67) !~ made')
bytes=$(bytes_of_evidence .)
[ "$bytes" -le $most_bytes ] || refuse "evidence/ has $bytes bytes, at most $most_bytes may be kept"

{
  cat <<'END'
# Evidence

One folder `NNNN-slug/` a claim, with the raw output of the checks and runs behind it. Every folder has a
`README.md` (the claim, and what each file is), `commands.txt` (the command lines, in order) and
`may_differ/environment.txt` (program, commit, compiler, processor, libraries). What lies in `may_differ/` may differ
from one time to the next: clocks, machine, fonts. All else comes out the same to the byte.

```sh
make verify-evidence   # every byte here is the recorded one, every folder has what this page promises
make reproduce         # makes the claims again in a scratch folder and compares them, byte for byte
make evidence          # records the claims that are not recorded yet
make new-claim SLUG=s  # the next free number
```

Folders are added, never edited: what turned out wrong keeps its number, and a new folder says so. `SHA256SUMS` is over
everything here and in `preregistration/`; `statement.json` is an in-toto statement with the same digests,
`ro-crate-metadata.json` describes the bundle for archives. None of them is signed: they tell damage, not malice; the
history of the repository is what dates them.

| claim | files | says |
|---|---|---|
END
  for claim in $(claims .); do
    printf '| [%s](%s) | %s | %s |\n' "$claim" "$claim/README.md" "$(find "evidence/$claim" -type f | wc -l)" "$(title "evidence/$claim/README.md")"
  done
} >evidence/README.md

digests=$(sums . | subjects_are_of)
{
  printf '{\n "_type": "https://in-toto.io/Statement/v1",\n "subject": [\n'
  awk '{printf "%s  {\"name\": \"%s\", \"digest\": {\"sha256\": \"%s\"}}", (NR > 1 ? ",\n" : ""), $2, $1} END {print ""}' <<<"$digests"
  printf ' ],\n "predicateType": "https://in-toto.io/attestation/test-result/v0.1",\n "predicate": {\n  "result": "PASSED",\n'
  printf '  "configuration": [{"name": "CMakeLists.txt", "digest": {"sha256": "%s"}}],\n  "passedTests": [\n' "$(sha256sum <CMakeLists.txt | cut -d' ' -f1)"
  for claim in $(claims .); do printf '   "%s: %s"\n' "$claim" "$(title "evidence/$claim/README.md" | sed 's/["\\]/\\&/g')"; done | sed '$!s/$/,/'
  printf '  ]\n }\n}\n'
} >evidence/statement.json

{
  cat <<'END'
{
 "@context": "https://w3id.org/ro/crate/1.1/context",
 "@graph": [
  {"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"},
   "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"}},
END
  printf '  {"@id": "./", "@type": "Dataset", "name": "Evidence of LazyLoRA", "license": {"@id": "https://spdx.org/licenses/Apache-2.0"},\n'
  # A crate has to be dated: by the commit that it is sealed on, so that sealing again says the same.
  printf '   "datePublished": "%s",\n' "$(git log -1 --format=%cs 2>/dev/null || date -u +%F)"
  printf '   "description": "Raw output of the checks and runs behind the claims of the README", "hasPart": ['
  { printf '%s\n' README.md SHA256SUMS statement.json; claims . | sed 's|$|/|'; } | sed 's|.*|{"@id": "&"}|' | paste -sd, | tr -d '\n'
  printf ']},\n'
  printf '  {"@id": "https://spdx.org/licenses/Apache-2.0", "@type": "CreativeWork", "name": "Apache License 2.0"},\n'
  printf '  {"@id": "README.md", "@type": "File", "name": "What every claim says"},\n'
  printf '  {"@id": "SHA256SUMS", "@type": "File", "name": "Digests of all files here and of preregistration/"},\n'
  printf '  {"@id": "statement.json", "@type": "File", "name": "The same digests as an in-toto statement"}'
  for claim in $(claims .); do
    printf ',\n  {"@id": "%s/", "@type": "Dataset", "name": "%s", "hasPart": [' "$claim" "$(title "evidence/$claim/README.md" | sed 's/["\\]/\\&/g')"
    (cd evidence && find "$claim" -type f | LC_ALL=C sort | sed 's|.*|{"@id": "&"}|' | paste -sd, | tr -d '\n')
    printf ']}'
    (cd evidence && find "$claim" -type f | LC_ALL=C sort | while IFS= read -r file; do
      printf ',\n  {"@id": "%s", "@type": "File", "contentSize": "%s"}' "$file" "$(stat -c %s "$file")"
    done)
  done
  printf '\n ]\n}\n'
} >evidence/ro-crate-metadata.json
all=$(sums .)
printf '%s\n' "$all" >evidence/SHA256SUMS
echo "sealed: $(wc -l <evidence/SHA256SUMS) files"
