#!/usr/bin/env bash
# Usage: checks/evidence/mutation_record.sh ROOT RECORD COMMIT FOLDER
# Takes into FOLDER what `checks/mutants.sh BUILD --out RECORD` wrote of the sources of COMMIT, which takes about an hour and
# so is not made anew: record.jsonl, belongs_to.txt, commands.txt, README.md. Refused by name unless COMMIT is in this
# history, the record is whole, and its rows are exactly those of checks/mutants/table.txt: ids and checks of the
# table of COMMIT, ids of the table that lies here.
set -euo pipefail
shopt -s inherit_errexit
[ $# -eq 4 ] || { echo "usage: $0 ROOT RECORD COMMIT FOLDER" >&2; exit 2; }
export LC_ALL=C
root=$1 record=$2 here=$4
refuse() { echo "mutation record: $*" >&2; exit 1; }
[ -f "$record" ] && [ -r "$record" ] || refuse "$record: cannot be read"
commit=$(git -C "$root" rev-parse --verify -q "$3^{commit}") || refuse "$3: no commit of this repository"
git -C "$root" merge-base --is-ancestor "$commit" HEAD || refuse "$commit: is not in the history of HEAD"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ID TAB CHECK, a line a row; blocks of a row's text and fault are no lines of the table.
rows_of_table() {
  awk '/^<<<$/ {inside = 1} /^>>>$/ {inside = 0; next} inside {next}
    /^\[[^]]*\]/ {id = substr($0, 2, index($0, "]") - 2)} /^check / {sub(/^check +/, ""); print id "\t" $0}' | sort
}
table=checks/mutants/table.txt
git -C "$root" show "$commit:$table" >"$work/table" 2>/dev/null || refuse "$commit: has no $table"
rows_of_table <"$work/table" >"$work/then"
[ -s "$work/then" ] || refuse "$commit: $table has no rows"
rows_of_table <"$root/$table" >"$work/now"
same_rows() { # A B NAME_OF_A NAME_OF_B
  local only
  only=$(comm -3 "$1" "$2" | head -n 1)
  [ -z "$only" ] && return
  if [[ $only == $'\t'* ]]; then refuse "$4 has the row ${only#$'\t'}, $3 has not"; fi
  refuse "$3 has the row $only, $4 has not"
}

# Rows, and behind them what a run counted: one run, or several of which each has its own counts.
form='^\{"check":"mutants","name":"([^"\\]+)","outcome":"(killed|survived|invalid)","by":"([^"\\]+)"\}$'
counts='^\{"check":"mutants","passed":([0-9]+),"failed":([0-9]+),"skipped":0\}$'
killed=0 others=0 all_killed=0 missed=() number=0 ended=
while IFS= read -r line || [ -n "$line" ]; do
  number=$((number + 1)) ended=
  if [[ $line =~ $form ]]; then
    printf '%s\t%s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[3]}" >>"$work/rows"
    if [ "${BASH_REMATCH[2]}" = killed ]; then
      killed=$((killed + 1)) all_killed=$((all_killed + 1))
    else
      others=$((others + 1)) missed+=("${BASH_REMATCH[1]} (${BASH_REMATCH[2]})")
    fi
  elif [[ $line =~ $counts ]]; then
    [ "${BASH_REMATCH[1]} ${BASH_REMATCH[2]}" = "$killed $others" ] ||
      refuse "$record: line $number counts ${BASH_REMATCH[1]} and ${BASH_REMATCH[2]}, its rows are $killed and $others"
    killed=0 others=0 ended=1
  else
    refuse "$record: line $number is no row of checks/mutants.sh: $line"
  fi
done <"$record"
[ -n "$ended" ] || refuse "$record: its last line is not the counts: the run did not end"
[ -s "$work/rows" ] || refuse "$record: has no rows"
sort -o "$work/rows" "$work/rows"
twice=$(cut -f1 "$work/rows" | uniq -d | head -n 1)
[ -z "$twice" ] || refuse "$record: $twice stands there twice"
same_rows "$work/rows" "$work/then" "$record" "$table of $commit"
cut -f1 "$work/rows" >"$work/ids"
cut -f1 "$work/now" | sort >"$work/ids_now"
same_rows "$work/ids" "$work/ids_now" "$record" "$table as it lies here"

all=$(wc -l <"$work/rows")
if [ ${#missed[@]} -eq 0 ]; then
  title="Each of $all planted faults makes its check fail"
else
  title="$all_killed of $all planted faults make their check fail"
fi
cp "$record" "$here/record.jsonl"
cat >"$here/README.md" <<END
# $title

| file | what |
|---|---|
| \`record.jsonl\` | a line a fault: killed (its check fails), survived or invalid, and by which check |
| \`belongs_to.txt\` | the commit whose table, engine and checks these are, with their digests |
| \`may_differ/since.txt\` | what of them was another when this was recorded |

Not killed: $(if [ ${#missed[@]} -eq 0 ]; then echo none; else printf '%s, ' "${missed[@]}" | sed 's/, $//'; fi). Planting takes about an hour: the record was made at that commit and taken from there, and
\`make reproduce\` does not make it again. A record does not hold its commit: that is the word of who recorded it. What is
checked is that the rows are those of that commit's table, no more and no fewer, and still those of the table here.
END
{
  echo "commit                     $commit"
  echo "checks/mutants/table.txt   SHA-256 $(sha256sum <"$work/table" | cut -d' ' -f1), $all rows"
  for folder in engine oracle checks; do
    printf '%-26s git tree %s\n' "$folder/" "$(git -C "$root" rev-parse "$commit:$folder")"
  done
} >"$here/belongs_to.txt"
echo "checks/mutants.sh BUILD --out record.jsonl" >"$here/commands.txt"
since=$(git -C "$root" diff --stat "$commit" -- engine oracle checks)
echo "${since:-nothing}" >"$here/may_differ/since.txt"
