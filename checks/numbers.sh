#!/usr/bin/env bash
# Usage: checks/numbers.sh [ROOT]
# Every figure of the pages that docs/numbers.md names has a row there, every row its figure, and every source
# says the number. A figure is a number with a point, an exponent or a comma between digits, outside of code and
# link targets. What evidence is not recorded yet cannot be read: counted, with its reason.
set -uo pipefail
cd "${1:-$(dirname "$0")/..}" || exit 2
export LC_ALL=C
list=docs/numbers.md
passed=0 failed=0
declare -A unread=()
finding() { echo "numbers: $*"; failed=$((failed + 1)); }

figures() { # PAGE: LINE FIGURE
  awk '/^```/ {code = !code; next} code {next}
    {text = $0; gsub(/`[^`]*`/, " ", text); gsub(/\]\([^)]*\)/, "] ", text); gsub(/https?:[^ ]*/, " ", text)
     while (match(text, /[A-Za-z0-9_.,\/#-]+/)) {
       word = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH); sub(/[.,\/-]+$/, "", word); sub(/^-/, "", word)
       if (word ~ /^[0-9]+(,[0-9][0-9][0-9])*(\.[0-9]+)?(e-?[0-9]+)?$/ && word ~ /[.,e]/) print FNR, word}}' "$1"
}
number() { tr -d "',"; }
# A number of a source: `max EXPRESSION`, the largest of JSON lines (FIELD, FIELD/FIELD or 1-FIELD; ` of TEXT` behind
# it: of those lines that hold TEXT); `count of TEXT`, how many lines hold it; `TEXT & TEXT`, both; else the largest of
# what the group of an extended regular expression matches.
source_number() { # WHERE FILE...
  local where=$1
  shift
  if [[ $where == "count of "* ]]; then
    awk -v text="${where#count of }" 'BEGIN {texts = split(text, part, / & /)}
      {held = 1; for (i = 1; i <= texts; ++i) held = held && index($0, part[i]); n += held} END {print n + 0}' "$@"
  elif [[ $where == "max "* ]]; then
    where=${where#max }
    local text=
    if [[ $where == *" of "* ]]; then text=${where#* of } where=${where%% of *}; fi
    awk -v what="$where" -v text="$text" 'function field(name) {return match($0, "\"" name "\":-?[0-9.e+-]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : (bad = 1)}
      BEGIN {texts = split(text, wanted, / & /)}
      {for (i = 1; i <= texts; ++i) if (!index($0, wanted[i])) next; if (what ~ /^1-/) v = 1 - field(substr(what, 3)); else if (split(what, part, "/") == 2) v = field(part[1]) / field(part[2]); else v = field(what) + 0
       if (bad) exit; if (!n++ || v > most) most = v} END {if (n && !bad) printf "%.17g\n", most}' "$@"
  else
    grep -ohE "$where" "$@" | sed -nE "s#^$where\$#\\1#p" | number | awk '{if (!n++ || $1 + 0 > most) most = $1 + 0} END {if (n) printf "%.17g\n", most}'
  fi
}
agrees() { # HOW FIGURE NUMBER
  awk -v how="${1%, in *}" -v scale="$([[ $1 == *", in "* ]] && echo "${1##*, in }" || echo 1)" -v figure="$2" -v number="$3" 'BEGIN {
    text = figure; gsub(/,/, "", text); shown = text; exponent = 0
    if (match(text, /e-?[0-9]+$/)) {exponent = substr(text, RSTART + 1); text = substr(text, 1, RSTART - 1)}
    decimals = index(text, ".") ? length(text) - index(text, ".") : 0
    unit = 10 ^ (exponent - decimals); shown += 0; number /= scale; off = shown - number
    if (how == "is") exit !(off == 0 || (off < 0 ? -off : off) < 1e-12 * shown)
    if (how == "rounded") exit !((off < 0 ? -off : off) <= unit * 0.500001)
    if (how == "rounded up") exit !(off >= -1e-12 * shown && off <= unit)
    exit 1}'
}

# | page | figure | how | source | where |
declare -A listed=()
pages=() number_of_rows=0
while IFS='|' read -r _ page figure how source where _; do
  page=$(sed 's/[` ]//g' <<<"$page") figure=$(sed 's/ //g' <<<"$figure") how=$(sed 's/^ *//; s/ *$//' <<<"$how")
  source=$(sed 's/[`]//g; s/^ *//; s/ *$//' <<<"$source") where=$(sed 's/^ *`//; s/` *$//' <<<"$where")
  number_of_rows=$((number_of_rows + 1))
  [ -z "${listed[$page $figure]:-}" ] || finding "$list: $page $figure stands there twice"
  listed[$page $figure]=1
  [[ " ${pages[*]} " == *" $page "* ]] || pages+=("$page")
  figures "$page" | cut -d' ' -f2 | grep -qxF -- "$figure" || { finding "$list: $page does not say $figure any more"; continue; }
  if [ "$how" = "by command" ]; then
    [ -n "$where" ] && passed=$((passed + 1)) || finding "$list: $page $figure has no command"
    continue
  fi
  # shellcheck disable=SC2206 # several files, or a pattern of them
  files=($source)
  missing=
  for file in "${files[@]}"; do [ -e "$file" ] || missing=$file; done
  if [ -n "$missing" ]; then
    if [[ $missing == evidence/* ]] && [ ! -e evidence/SHA256SUMS ]; then
      unread[$missing]=1
    else
      finding "$page: $figure: its source $missing is not there"
    fi
    continue
  fi
  found=$(source_number "$where" "${files[@]}")
  if [ -z "$found" ]; then
    finding "$page: $figure: $source says nothing of '$where'"
  elif agrees "$how" "$figure" "$found"; then
    passed=$((passed + 1))
  else
    finding "$page: $figure: $source says $found ($how)"
  fi
done < <(sed -n '/^| page /,/^$/p' "$list" | tail -n +3 | grep '^|')

[ $number_of_rows -gt 0 ] || finding "$list: has no rows"
for page in $(sed -n 's/^Pages: //p' "$list"); do
  [ -e "$page" ] || { finding "$page: is not there"; continue; }
  while read -r line figure; do
    [ -n "${listed[$page $figure]:-}" ] || finding "$page:$line: $figure has no source in $list"
  done < <(figures "$page")
done

[ ${#unread[@]} -eq 0 ] || echo "skipped: not recorded yet: ${!unread[*]}"
echo "$passed passed, $failed failed, ${#unread[@]} skipped"
[ "$failed" -eq 0 ]
