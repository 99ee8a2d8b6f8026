# Sourced by the scripts here. ROOT: the tree whose evidence/ and preregistration/ are meant.

# Everything that the sums are over, sorted, from ROOT.
recorded() { (cd "$1" && find evidence preregistration -type f ! -path evidence/SHA256SUMS | LC_ALL=C sort); }
sums() { (cd "$1" && recorded . | while IFS= read -r file; do sha256sum -- "$file"; done); }
claims() { (cd "$1/evidence" && find . -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | LC_ALL=C sort); }
title() { sed -n '1s/^# //p' "$1"; }
