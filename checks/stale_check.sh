#!/usr/bin/env bash
# Usage: checks/stale_check.sh BUILD_DIR
# Case J4: a changed header leaves no stale object. What Ninja rebuilds is what its records of dependencies say, so
# every object that is up to date must have one that is no older than itself, and in it every header of ours that
# its source includes, directly or through another, worked out here from the sources alone.
# (checks/mutants.sh is the proof by doing: rows that change a header, incremental builds, and a stale object would
# be a survivor.)
set -uo pipefail
shopt -s inherit_errexit
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 1
root=$PWD
. checks/verdicts.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ ! -f "$build/build.ninja" ]; then
  skip "no build.ninja under $build: another generator keeps its own records"
  close_record
  exit
fi
ninja=$(sed -n 's/^CMAKE_MAKE_PROGRAM:FILEPATH=//p' "$build/CMakeCache.txt")

# "FILE HEADER" of every #include "HEADER"; headers that CMake writes are not ours to name.
grep -rHoE '^ *#include "[^"]+"' --include='*.h' --include='*.cc' engine oracle reports checks |
  sed -E 's/^([^:]+):.*"([^"]+)"$/\1 \2/' | while read -r file header; do
  [ -f "$header" ] && echo "$file $header"
done >"$out/includes"
"$ninja" -C "$build" -t targets all | sed -n 's/: CXX_COMPILER__.*//p' >"$out/targets" || exit 1
while read -r object; do [ -f "$build/$object" ] && echo "$object"; done <"$out/targets" >"$out/objects"
"$ninja" -C "$build" -t deps >"$out/deps" || exit 1

# One line for every object that lacks a record, and every header that a record lacks. A source is the first name
# of a record. A precompiled header stands in a record by itself: what it was made of is in its own.
missing() { # DEPS
  missing_or_outdated "$1" | while IFS= read -r line; do
    outdated "${line%%: *}" || printf '%s\n' "$line"
  done
}
# What its record names changed since: it will be built anew, and its record with it.
outdated() { # OBJECT
  local path
  while read -r path; do
    [ "$path" -nt "$1" ] && return
  done < <("$ninja" -t deps "$1" | tail -n +2)
  return 1
}
missing_or_outdated() { # DEPS
  awk -v root="$root/" -v build="$build/" '
    function clean(path,    parts, n, i, kept, m) {  # below the root, without ".."
      if (path !~ /^\//) path = build path
      n = split(path, parts, "/"); m = 0
      for (i = 1; i <= n; ++i) {
        if (parts[i] == "" || parts[i] == ".") continue
        if (parts[i] == "..") { if (m > 0) --m; continue }
        kept[++m] = parts[i]
      }
      path = ""
      for (i = 1; i <= m; ++i) path = path "/" kept[i]
      return index(path, root) == 1 ? substr(path, length(root) + 1) : path
    }
    function wanted(file,    i, list, n) {  # into want[], every header from here on
      n = split(of[file], list, " ")
      for (i = 1; i <= n; ++i) if (!(list[i] in want)) { want[list[i]] = 1; wanted(list[i]) }
    }
    FILENAME ~ /includes$/ { of[$1] = of[$1] " " $2; next }
    FILENAME ~ /objects$/ { objects[++count] = $1; next }
    /^[^ ].*: #deps / {
      object = $1; sub(/:$/, "", object); valid[object] = /\(VALID\)/; source = ""
      next
    }
    NF {
      path = clean($1)
      if (source == "") { source = path; source_of[object] = path }
      has[object, path] = 1
      if (path ~ /\.gch$/) precompiled[object] = $1
    }
    END {
      for (i = 1; i <= count; ++i) {
        object = objects[i]
        if (!(object in source_of)) { print object ": no record of dependencies"; continue }
        if (!valid[object]) { print object ": a record older than the object"; continue }
        split("", want); wanted(source_of[object])
        for (header in want) {
          if ((object, header) in has || (precompiled[object], header) in has) continue
          print object ": " header " is not in its record"
        }
      }
    }' "$out/includes" "$out/objects" "$1"
}

cd "$build" || exit 1 # where the paths of records begin
objects=$(wc -l <"$out/objects")
[ "$objects" -gt 0 ] || { echo "stale_check: nothing was built under $build" >&2; exit 1; }
missing "$out/deps" >"$out/said"
[ ! -s "$out/said" ]
verdict "$objects objects: each has a record that names all of its headers" $? "$(head -n 5 "$out/said"), $(wc -l <"$out/said") in all"

# Planted: a header struck out of one record, and a record struck out.
object=$(head -n 1 "$out/objects")
awk -v o="$object:" '$1 == o {inside = 1} inside && !gone && $1 ~ /engine\/.*\.h$/ {gone = 1; next} /^$/ {inside = 0} {print}' \
  "$out/deps" >"$out/struck.deps"
[ "$(missing "$out/struck.deps" | grep -c "is not in its record")" -eq 1 ]
verdict "planted: a header that a record does not name is seen" $? "$(missing "$out/struck.deps" | head -n 3)"
awk -v o="$object:" '$1 == o {inside = 1} !inside {print} /^$/ {inside = 0}' "$out/deps" >"$out/struck.deps"
[ "$(missing "$out/struck.deps")" = "$object: no record of dependencies" ]
verdict "planted: an object without a record is seen" $? "$(missing "$out/struck.deps" | head -n 3)"
close_record
