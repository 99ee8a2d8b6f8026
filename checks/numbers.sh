#!/usr/bin/env bash
# Usage: checks/numbers.sh [ROOT]
# docs/numbers.md against README, the pages of docs/ and the sources, both ways: every page has a row and is read as it
# says, README always and every numeral of it; every numeral that is read has one row, every row its one place
# (checks/numbers/page.awk); every source says the number; every page has as many rows that nothing is read for as its
# own row says, so that no figure loses its source unseen.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}" || exit 2
export LC_ALL=C
list=docs/numbers.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
finding() { echo "numbers: $*"; failed=$((failed + 1)); }

table() { # HEAD COLUMNS: the rows of the list's table that begins with HEAD, cells apart by 037
  awk -F'|' -v OFS='\037' -v head="$1" -v columns="$2" '!/^\|/ {inside = 0} inside && !/^\|-/ {
      if (NF != columns + 2) {print "?", $0; next}
      for (i = 2; i <= NF; ++i) {gsub(/^ +| +$/, "", $i); line = i == 2 ? $i : line OFS $i}
      print line}
    index($0, head) == 1 {inside = 1}' "$list"
}
# A number of a source: `max EXPRESSION`, the largest of JSON lines (FIELD, FIELD/FIELD or 1-FIELD; ` of TEXT` behind
# it: of those lines that hold TEXT); `count of TEXT`, how many lines hold it; `TEXT & TEXT`, both; `not TEXT`; else of what the
# group of an extended regular expression matches the largest, or, behind `min of ` and `sum of `, the least and the sum.
source_number() { # WHERE FILE...
  local where=$1 text= of=max
  shift
  if [[ $where == "count of "* ]]; then
    awk -v text="${where#count of }" 'BEGIN {texts = split(text, part, / & /)}
      {held = 1; for (i = 1; i <= texts; ++i) held = held && (part[i] ~ /^not / ? !index($0, substr(part[i], 5)) : index($0, part[i])); n += held} END {print n + 0}' "$@"
  elif [[ $where == "max "* ]]; then
    where=${where#max }
    if [[ $where == *" of "* ]]; then text=${where#* of } where=${where%% of *}; fi
    awk -v what="$where" -v text="$text" 'function field(name) {return match($0, "\"" name "\":-?[0-9.e+-]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : (bad = 1)}
      BEGIN {texts = split(text, wanted, / & /)}
      {for (i = 1; i <= texts; ++i) if (!index($0, wanted[i])) next; if (what ~ /^1-/) v = 1 - field(substr(what, 3)); else if (split(what, part, "/") == 2) v = field(part[1]) / field(part[2]); else v = field(what) + 0
       if (bad) exit; if (!n++ || v > most) most = v} END {if (n && !bad) printf "%.17g\n", most}' "$@"
  else
    if [[ $where == "sum of "* || $where == "min of "* ]]; then of=${where%% *} where=${where#* of }; fi
    grep -ohE -- "$where" "$@" | sed -nE "s#^$where\$#\\1#p" | tr -d "'," |
      awk -v of="$of" '{value["sum"] += $1; if (!n++ || $1 + 0 > value["max"]) value["max"] = $1 + 0; if (n == 1 || $1 + 0 < value["min"]) value["min"] = $1 + 0}
        END {if (n) printf "%.17g\n", value[of]}'
  fi
}
agrees() { # HOW NUMERAL NUMBER; the numeral in its plain form
  awk -v how="${1%, in *}" -v scale="$([[ $1 == *", in "* ]] && echo "${1##*, in }" || echo 1)" -v numeral="$2" -v number="$3" 'BEGIN {
    if (numeral !~ /^-?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$/) exit 1
    text = numeral; exponent = 0
    if (match(text, /[eE][-+]?[0-9]+$/)) {exponent = substr(text, RSTART + 1) + 0; text = substr(text, 1, RSTART - 1)}
    decimals = index(text, ".") ? length(text) - index(text, ".") : 0
    unit = 10 ^ (exponent - decimals); shown = numeral + 0; number /= scale; off = shown - number
    size = shown < 0 ? -shown : shown; distance = off < 0 ? -off : off
    if (how == "is") exit !(distance <= 1e-12 * size)
    if (how == "rounded") exit !(distance <= unit * 0.500001)
    if (how == "rounded up") exit !(off >= -1e-12 * size && off <= unit)
    exit 1}'
}
# What prints a figure has to be there: a target, a command, a program or script of the checks.
no_such_command() { # COMMAND
  local name
  case $1 in
    "make "*) name=${1#make } && ! grep -q "^${name%% *}:" Makefile 2>/dev/null ;;
    "lazylora "*) name=${1#lazylora } name=${name%% *} && [ ! -e "engine/cli/${name//-/_}.cc" ] ;;
    checks/* | build/release/checks/*)
      name=${1#build/release/} name=${name%% *}
      [ ! -e "$name" ] && [ ! -e "$name.cc" ] && [ ! -d "checks/${name#checks/check_}" ] ;;
    *) true ;;
  esac
}

# The pages: | page | read | by command | no claim |
declare -A read_as=() promised=() by_command=() no_claim=()
while IFS=$'\037' read -r page how commands none; do
  [ "$page" != "?" ] || { finding "$list: a page's row has not four cells: $how"; continue; }
  [ -z "${read_as[$page]:-}" ] || finding "$list: $page stands among the pages twice"
  [[ $how =~ ^(every numeral|figures|no: .+)$ ]] || finding "$list: $page is read '$how': wanted 'every numeral', 'figures' or 'no: WHY'"
  [ -e "$page" ] || finding "$list: $page is not there"
  read_as[$page]=$how promised[$page]="$commands by command, $none no claim"
done < <(table '| page | read |' 4)
[ "${read_as[README.md]:-}" = "every numeral" ] || finding "$list: README.md is read '${read_as[README.md]:-}': always every numeral"
read_as[README.md]="every numeral"
while IFS= read -r page; do
  [ -n "${read_as[$page]:-}" ] || finding "$page: stands not among the pages of $list: read, or not and why?"
done < <(find docs -name '*.md' | sort)

# The rows: | page | numeral | how | source | where |, and | page | no claim | why |
rows=0 none=0
declare -a row_page=() row_how=() row_source=() row_where=()
lay() { # ID KIND PAGE CELL
  if [ ! -e "$3" ] || [[ ${read_as[$3]:-no} == no* ]]; then
    finding "$list: $3 $4: not a page that is read"
  else
    printf '%s\037%s\037%s\n' "$1" "$2" "$4" >>"$work/${3//\//,}"
  fi
}
while IFS=$'\037' read -r page cell how source where; do
  [ "$page" != "?" ] || { finding "$list: a row has not five cells: $cell"; continue; }
  row_page[rows]=$page row_how[rows]=$how row_source[rows]=${source//\`/} row_where[rows]=$where
  lay $rows claim "$page" "$cell"
  rows=$((rows + 1))
done < <(table '| page | numeral |' 5)
while IFS=$'\037' read -r page cell why; do
  [ "$page" != "?" ] || { finding "$list: a row of what is no claim has not three cells: $cell"; continue; }
  [[ $why =~ ^(name|version|shape|setting|count|formula)(: .+)?$ ]] || finding "$list: $page $cell: '$why' is no reason: name, version, shape, setting, count or formula"
  lay - none "$page" "$cell"
  no_claim[$page]=$((${no_claim[$page]:-0} + 1)) none=$((none + 1))
done < <(table '| page | no claim |' 3)
[ $rows -gt 0 ] || finding "$list: has no rows"

# Rows and numerals of each page, one to one.
declare -a plain=() numeral=()
for page in "${!read_as[@]}"; do
  [[ ${read_as[$page]} != no* ]] && [ -e "$page" ] || continue
  touch "$work/${page//\//,}"
  [ "${read_as[$page]}" = figures ] && every= || every=1
  awk -v page="$page" -v list="$list" -v rows="$work/${page//\//,}" -v every="$every" -f "$here/numbers/page.awk" "$page" >"$work/placed" ||
    finding "$page: could not be read"
  while read -r what rest; do
    if [ "$what" = placed ]; then read -r row as_number as_said <<<"$rest"; plain[row]=$as_number numeral[row]=$as_said; else finding "$rest"; fi
  done <"$work/placed"
done

reread=0
for row in "${!numeral[@]}"; do
  page=${row_page[row]} how=${row_how[row]} where=${row_where[row]}
  if [ "$how" = "by command" ]; then
    by_command[$page]=$((${by_command[$page]:-0} + 1))
    [[ $where =~ ^\`([^\`]+)\` ]] && command=${BASH_REMATCH[1]} || command=
    [ -z "${row_source[row]}" ] || finding "$page: ${numeral[row]}: by command, and a source"
    if no_such_command "$command"; then finding "$page: ${numeral[row]}: '${command:-$where}' is no command here"; else passed=$((passed + 1)); fi
    continue
  fi
  # shellcheck disable=SC2206 # several files, or a pattern of them
  files=(${row_source[row]}) bad=
  for file in "${files[@]}"; do
    if [ ! -f "$file" ]; then bad="its source $file is not there"; elif [[ ${read_as[$file]:-no} != no* || $file == "$list" ]]; then bad="$file quotes numbers: no source"; fi
  done
  [ ${#files[@]} -gt 0 ] || bad="has no source"
  if [ -n "$bad" ]; then finding "$page: ${numeral[row]}: $bad"; continue; fi
  where=${where#\`} where=${where%\`}
  found=$(source_number "$where" "${files[@]}")
  if [ -z "$found" ]; then
    finding "$page: ${numeral[row]}: ${row_source[row]} says nothing of '$where'"
  elif agrees "$how" "${plain[row]}" "$found"; then
    passed=$((passed + 1)) reread=$((reread + 1))
  else
    finding "$page: ${numeral[row]}: ${row_source[row]} says $found ($how)"
  fi
done
for page in "${!read_as[@]}"; do
  counted="${by_command[$page]:-0} by command, ${no_claim[$page]:-0} no claim"
  [ "${promised[$page]:-}" = "$counted" ] || finding "$list: $page has $counted; its row among the pages says ${promised[$page]:-nothing}"
done

echo "numbers: $reread read again, $((passed - reread)) by command, $none that are no claims"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
