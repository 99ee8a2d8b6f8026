# Sourced by the scripts here. ROOT: the tree whose evidence/ and preregistration/ are meant.

# Everything that the sums are over, sorted, from ROOT.
recorded() { (cd "$1" && find evidence preregistration -type f ! -path evidence/SHA256SUMS | LC_ALL=C sort); }
sums() { (cd "$1" && recorded . | while IFS= read -r file; do sha256sum -- "$file"; done); }
claims() { (cd "$1/evidence" && find . -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | LC_ALL=C sort); }
# A repository is no place for more than this.
most_bytes=20000000
bytes_of_evidence() { (cd "$1" && find evidence -type f -printf '%s\n' | awk '{sum += $1} END {print sum + 0}'); }
title() { sed -n '1s/^# //p' "$1"; }
