# Usage: awk -f page.awk PAGE: LINE, numeral and its plain form, of all numerals of PAGE
#        awk -v page=NAME -v list=LIST -v rows=FILE -v every=1|"" -f page.awk PAGE: the rows of LIST put on the page
# FILE: ID, KIND (claim or none) and CELL, apart by 037. A cell is text of the page with the numeral in brackets; without
# brackets it is all numeral, its unit with it. Every cell has its place, a claim's exactly one, and every numeral one row;
# `every`: whole numbers below a thousand, too; else of these only those with a unit, in a range before one, or alone in a
# table's cell. Prints `finding TEXT`, and `placed ID PLAIN NUMERAL` of claims.
# For any awk, in the C locale: what lies beyond ASCII are bytes here.
BEGIN {
  FS = "\037"
  sign = "(-|[+]|\342\210\222)"
  raised = "(\302[\262\263\271]|\342\201[\260\264-\271])"
  exponent = "([eE]" sign "?[0-9]+|( ?(\303\227|\302\267|[x*]) ?10)?(\\^[{(]?" sign "?[0-9]+|(\342\201\273)?" raised raised "*))"
  body = "[0-9]+([.,'_][0-9]+)*"
  # The one grammar of numerals; checks/numbers_check.sh has the list of spellings. Digits in names are numerals too.
  numeral = sign "?(0[xX][0-9A-Fa-f]+|[.]?" body exponent "?(/" body ")?|\302[\274-\276])"
  # Numerals of other spelling, which nothing compares: full-width, circled and Roman ones, fractions, subscripts; and all
  # signs of the scripts that have digits of their own (Arabic, Indic, East Asian, those beyond the first plane).
  foreign = "(\331[\240-\251]|\333[\260-\271]|\337[\200-\211]|(\340|\341[\200-\261]|\352)[\200-\277]+|\342(\202[\200-\211]|\205[\220-\277]|\206[\200-\213]|[\221-\223][\200-\277]|\235[\266-\277]|\236[\200-\223])|\343(\200[\207\241-\272]|[\206\210-\213][\200-\277])|\357\274[\220-\231]|\360([\220-\236][\200-\277]|\237\204|\237\257)[\200-\277])"
  space = "( |\302\240|\342\200[\211\257])"
  time = "(ns|us|(\302\265|\316\274)s|ms|s|min|h|(second|minute|hour|day|week|month|year)s?)"
  size = "([kKMGTP]?i?B|bytes?|bits?|[kMGT]?FLOPs?)"
  unit = "(%|\342\200\260|percent|" size "|" time "|(" size "|tokens?)/" time "|[kMG]?Hz|times|thousand|(m|b|tr)illion)"
  # 9.2x is a factor, 3 x 4 a product.
  with_unit = "^(" space "?" unit "|x|\303\227)[^A-Za-z0-9_]"
  joined = "^(,|[-/;]|\342\200\223|" space "(to|and|or|\302\261|[.][.][.]|\342\200[\223\246]))" space "?$"
  while (rows && (getline < rows) > 0) { ++listed; id[listed] = $1; kind[listed] = $2; cell[listed] = $3 }
}
# A fence: its sign and length; it ends with at least as much and nothing else.
!fence && (/^ ? ? ?```+[^`]*$/ || /^ ? ? ?~~~+/) {
  match($0, /```+|~~~+/)
  mark = substr($0, RSTART, RLENGTH)
  fence = FNR
  text = text "\n"
  next
}
{ text = text (fence ? "" : $0) "\n" }
fence && match($0, /^ ? ? ?(```+|~~~+) *$/) && index($0, mark) { fence = 0 }

function finding(what) { print "finding " what }
# Where the run of n backquotes is that ends a span of code; 0: nowhere in its paragraph, so it began none.
function closing(s, n,   at) {
  while (match(s, /`+|\n[ \t]*\n/)) {
    if (substr(s, RSTART, 1) == "\n") return 0
    if (RLENGTH == n) return at + RSTART
    at += RSTART + RLENGTH - 1
    s = substr(s, RSTART + RLENGTH)
  }
  return 0
}
function without_code(s,   done, n, end, code) {
  while (match(s, /`+/)) {
    n = RLENGTH
    done = done substr(s, 1, RSTART - 1) " "
    s = substr(s, RSTART + n)
    end = closing(s, n)
    if (!end) continue
    code = substr(s, 1, end - 1)
    gsub(/[^\n]/, "", code) # lines stay lines
    done = done code
    s = substr(s, end + n)
  }
  return done s
}
# One line of text, words apart by one space; line_at[n]: where line n of the page begins in it.
function flatten(s,   flat, n, i, line) {
  n = split(s, line, "\n")
  for (i = 1; i <= n; ++i) {
    gsub(/\]\([^ )]*\)/, "] ", line[i])
    gsub(/https?:\/\/[^ )>|]*/, " ", line[i])
    gsub(/[|]/, ";", line[i]) # a cell of the list holds no bar
    gsub(/[ \t]+/, " ", line[i])
    sub(/^ /, "", line[i]); sub(/ $/, "", line[i])
    line_at[++lines] = length(flat) + 1
    flat = flat line[i] " "
  }
  return flat
}
function line_of(place,   i) {
  for (i = lines; i > 1 && line_at[i] > place; --i) {}
  return i
}
function two_before(s, at) { return at > 2 ? substr(s, at - 2, 2) : substr(s, 1, at - 1) }
# The numerals of `flat`, each with its unit: token[], number[] without it, begin[], one_at[place]; measured[]: has a unit.
function find_numerals(flat,   at, one, before, begins, i, end) {
  at = 1
  while (match(substr(flat, at), numeral)) {
    begins = at + RSTART - 1
    one = substr(flat, begins, RLENGTH)
    before = begins > 1 ? substr(flat, begins - 1, 1) : " "
    # x86-64 is no negative number, and a.5 no decimal.
    if (before ~ /[A-Za-z0-9_.+)\]]/ && match(one, "^" sign)) { one = substr(one, RLENGTH + 1); begins += RLENGTH }
    if (before ~ /[A-Za-z0-9_.)\]]/ && one ~ /^[.]/) { one = substr(one, 2); ++begins }
    if (one ~ "^" sign "?[0-9][0-9]?[0-9]?$")
      while (match(substr(flat, begins + length(one)), "^" space "[0-9][0-9][0-9]([.][0-9]+)?[^0-9]")) {
        one = one substr(flat, begins + length(one), RLENGTH - 1)
      }
    number[++tokens] = one
    # The digits of a name (K3, AVX-512) have no unit.
    name[tokens] = two_before(flat, begins) ~ /[A-Za-z_]-$|[A-Za-z_]$/
    if (!name[tokens] && (measured[tokens] = match(substr(flat, begins + length(one)), with_unit)))
      one = one substr(flat, begins + length(one), RLENGTH - 1)
    token[tokens] = one
    begin[tokens] = begins
    one_at[begins] = tokens
    at = begins + length(one)
  }
  # "89 to 108 %": the unit of the last is that of all. A numeral that is a cell of its own has its unit in the heading.
  for (i = tokens; i; --i) {
    end = begin[i] + length(token[i])
    if (i < tokens && measured[i + 1] && !name[i] && substr(flat, end, begin[i + 1] - end) ~ joined) measured[i] = 1
    if (two_before(flat, begin[i]) == "; " && substr(flat, end, 2) ~ /^ ?;/) measured[i] = 1
  }
}
function find_foreign(flat,   at) {
  for (at = 1; match(substr(flat, at), foreign); at += RSTART + RLENGTH - 1)
    finding(page ":" line_of(at + RSTART - 1) ": " substr(flat, at + RSTART - 1, RLENGTH) " is no ASCII numeral: nothing compares it with a source")
}
# As a program reads it. What is none to this grammar (1,3; a fraction) stays as it is, and agrees with no source.
function plain(s) {
  gsub("[_']|" space, "", s)
  gsub(/\342\210\222/, "-", s)
  sub(/^[+]/, "", s)
  while (match(s, /[0-9],[0-9][0-9][0-9]([^0-9]|$)/)) s = substr(s, 1, RSTART) substr(s, RSTART + 2)
  sub(/(\303\227|\302\267|[x*])10\^[{(]?/, "e", s)
  return s
}
# The row's places in `flat`, and the numerals there are its own.
function place(r, flat,   what, mark, marks, at, n, i, k, here, rest, other, row_at, place_of, numeral_of, words) {
  rest = cell[r] ~ /\[/ ? cell[r] : "[" cell[r] "]"
  while (match(rest, /\[[^\]]*\]/)) {
    words = words substr(rest, 1, RSTART - 1)
    place_of[++marks] = length(what) + RSTART
    numeral_of[marks] = substr(rest, RSTART + 1, RLENGTH - 2)
    what = what substr(rest, 1, RSTART - 1) numeral_of[marks]
    rest = substr(rest, RSTART + RLENGTH)
  }
  what = what rest
  words = words rest
  for (i = 2; i <= marks; ++i)
    if (kind[r] == "claim" && numeral_of[i] != numeral_of[1]) finding(list ": " page " " cell[r] ": " numeral_of[i] " needs a row of its own")
  if (kind[r] == "none" && words !~ /[A-Za-z]/) { finding(list ": " page " " cell[r] ": without a word beside it, it would stand for every " what); return }
  for (at = 1; at <= length(flat) && (k = index(substr(flat, at), what)); at = here + 1) {
    here = at + k - 1
    for (i = 1; i <= marks && token[one_at[here + place_of[i] - 1]] == numeral_of[i]; ++i) {}
    if (i <= marks) {
      k = one_at[here + place_of[i] - 1]
      if (k) other = ", but " token[k]
      continue
    }
    ++n
    for (i = 1; i <= marks; ++i) {
      k = one_at[here + place_of[i] - 1]
      if (row_of[k]) finding(page ":" line_of(begin[k]) ": " token[k] " has two rows in " list ": " cell[row_of[k]] " and " cell[r])
      row_of[k] = r
      row_at = k
    }
  }
  if (!n) finding(list ": " page " does not say " cell[r] other)
  else if (kind[r] == "claim" && n > 1) finding(list ": " page " says " cell[r] " in " n " places: a row each, with words beside it")
  else if (kind[r] == "claim") print "placed " id[r] " " plain(number[row_at]) " " numeral_of[1]
}
END {
  if (fence) finding(page ":" fence ": code that does not end")
  flat = flatten(without_code(text))
  find_numerals(flat)
  if (!rows) {
    for (i = 1; i <= tokens; ++i) print line_of(begin[i]) "\t" token[i] "\t" plain(number[i])
    exit
  }
  find_foreign(flat)
  for (i = 1; i <= listed; ++i) place(i, flat)
  for (i = 1; i <= tokens; ++i)
    if (!row_of[i] && (every || measured[i] || token[i] !~ "^" sign "?[0-9][0-9]?[0-9]?$")) finding(page ":" line_of(begin[i]) ": " token[i] " has no source in " list)
}
