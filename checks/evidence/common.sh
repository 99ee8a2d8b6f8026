# Sourced by the scripts here. ROOT: the tree whose evidence/ and preregistration/ are meant.
export LC_ALL=C

# What cannot be recorded: all that is no file of a plain name and no folder that holds one; a line each.
unwanted() {
  (
    cd "$1" || exit
    for folder in evidence preregistration; do [ -d $folder ] || echo "$folder: is missing"; done
    find evidence preregistration -type d -empty -printf 'e%p\0' -o -printf '%y%p\0' 2>/dev/null |
      while IFS= read -r -d '' entry; do
      kind=${entry:0:1} name=${entry:1}
      [[ $name =~ ^[A-Za-z0-9._/-]+$ ]] || printf '%q: is not a plain name\n' "$name"
      case $kind in
        f | d) continue ;;
        e) kind="an empty folder" ;;
        l) kind="a symbolic link" ;;
        p) kind="a FIFO" ;;
        s) kind="a socket" ;;
        *) kind="a device" ;;
      esac
      printf '%q: is %s, and only files are recorded\n' "$name" "$kind"
    done
  )
}

# A number that is given to a claim (new_claim.sh), and nothing is recorded of it yet: this one file with this text.
allotted_text="This number is allotted (make new-claim), and nothing is recorded of it yet."
allotted() { [ -e "$1/allotted.txt" ] && [ "$(ls -A "$1")" = allotted.txt ] && cmp -s "$1/allotted.txt" <(echo "$allotted_text"); } # FOLDER
folders() { (cd "$1/evidence" && find . -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort); }
claims() { folders "$1" | while IFS= read -r name; do allotted "$1/evidence/$name" || echo "$name"; done; }
allotments() { folders "$1" | while IFS= read -r name; do ! allotted "$1/evidence/$name" || echo "$name"; done; }

# Everything that the sums are over, sorted, from ROOT.
recorded() {
  (cd "$1" && find evidence preregistration -type f ! -path evidence/SHA256SUMS | sort | while IFS= read -r file; do
    [[ $file == evidence/*/allotted.txt ]] && allotted "${file%/*}" || echo "$file"
  done)
}
sums() { (cd "$1" && recorded . | xargs -d '\n' -r sha256sum --); }
# A line of sums, and the only one.
sums_form='^[0-9a-f]{64}  (evidence|preregistration)/[A-Za-z0-9._/-]+$'
with_nul_seen() { tr '\0' '?'; } # bash would read over it
# What statement.json says, in the form of the sums; a line of another form as it is. It cannot say its own digest,
# and not that of what is written after it.
subjects() { sed -nE '/^ "subject": \[$/,/^ \],$/ {/^ ("subject": \[|\],)$/d; s/^  \{"name": "([^"]*)", "digest": \{"sha256": "([0-9a-f]{64})"\}\},?$/\2  \1/; p}' "$1"; }
subjects_are_of() { grep -vE '  evidence/(statement|ro-crate-metadata)\.json$' || true; }

# A number has one name: a claim and the registration of its question share it, with all the files that are named after it.
two_names() { # ROOT: a line for every other name
  (cd "$1" && find evidence preregistration -mindepth 1 -maxdepth 1 -name '[0-9][0-9][0-9][0-9]-*' | sort) | awk -F/ '{
      number = substr($2, 1, 4); name = $2; sub(/[.].*/, "", name)
      if (!(number in at)) {at[number] = $0; is[number] = name}
      else if (name != is[number] && !said[name]++)
        print $0 ": one number, two names: " at[number] " has " number "; another question takes another number (make new-claim)"}'
}

# The page of every registration says what its JSON says, in the words of preregistration_page (engine/measure).
untrue_pages() { # ROOT: a line a fault
  local json page
  for json in "$1"/preregistration/[0-9][0-9][0-9][0-9]-*.json; do
    [ -e "$json" ] || continue
    page=${json%.json}.md
    if [ -e "$page" ]; then facts_of "$json" "$page"; else echo "${page#"$1"/}: is missing: the page of ${json##*/}"; fi
  done
  for page in "$1"/preregistration/[0-9][0-9][0-9][0-9]-*.md; do
    [ ! -e "$page" ] || [ -e "${page%.md}.json" ] || echo "${page#"$1"/}: is the page of no registration: $(basename "$page" .md).json is missing"
  done
}
facts_of() { # JSON PAGE
  local -A of=()
  local line value page fact name= facts=() threshold
  while IFS= read -r line; do # a value a line, one blank before what is the registration's own, three before the data's
    [[ $line =~ ^(\ |\ \ \ )\"([a-z0-9_]+)\":\ (.+)$ ]] || continue
    value=${BASH_REMATCH[3]%,} value=${value#\"}
    value=${value%\"}
    printf -v value %b "${value//\\\"/\\x22}" # JSON's escapes are those of %b, but for that of the quote
    if [ "${BASH_REMATCH[1]}" = " " ]; then of[${BASH_REMATCH[2]}]=$value; elif [ "${BASH_REMATCH[2]}" = name ]; then name=$value; else facts+=("* \`$value\` $name"); fi
  done <"$1"
  threshold=${of[threshold]-}
  facts+=("SHA-256 \`$(sha256sum <"$1" | cut -d' ' -f1)\`"
    "${of[metric]-} of ${of[task]-}, adapter minus base, is to lie ${of[direction]-} ${threshold%.0}:"
    "fewer than ${of[units]-} units" "${of[question]-}" "${of[stopping_rule]-}" "${of[refuted_by]-}" "${of[expected]-}")
  [ -z "${of[chunk]-}" ] || facts+=("chunks of ${of[chunk]} predictions, a stride of ${of[stride]-}, begin-of-text id ${of[bos]-}; ${of[resamples]-} resamples of seed ${of[seed]-}")
  # The page escapes what Markdown would take for its own, and has one blank for many.
  page=$(<"$2") page=${page//[\\[:space:]]/}
  for fact in "${facts[@]}"; do
    [[ $page == *"${fact//[\\[:space:]]/}"* ]] || echo "preregistration/${2##*/}: does not say what ${1##*/} says: $fact"
  done
}

# A repository is no place for more than this.
most_bytes=20000000
bytes_of_evidence() { (cd "$1" && find evidence -type f -printf '%s\n' | awk '{sum += $1} END {print sum + 0}'); }
title() { sed -n '1s/^# //p' "$1"; }
