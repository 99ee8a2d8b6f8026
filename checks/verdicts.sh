# For scripts that check: `verdict WHAT STATUS [WHY NOT]`, `refuses` and `exits`, `skip REASON`;
# counts; and, where a FILE was given to open_record, the same as JSON lines (docs/formats.md, Records of
# checks). The script's folder for its files is $out, from before its first verdict.
# A name that is no command is a failure, whatever is made of its status: the check behind it did not happen. bash asks
# about it in a subshell, so it is noted in a file, which close_record reads.
command_not_found_handle() {
  echo "$0: line ${BASH_LINENO[0]}: $1: there is no such command" | tee -a "$out/not_found" >&2
  return 127
}
passed=0 failed=0 skipped=0 record_file= record_check=

open_record() { # CHECK [FILE]
  record_check=$1 record_file=${2:-}
  [ -n "$record_file" ] || return 0
  if [ -e "$record_file" ]; then echo "$record_check: $record_file: exists already" >&2; exit 1; fi
  : >"$record_file" || exit 1
}
record() { # NAME OUTCOME
  [ -n "$record_file" ] || return 0
  local name=${1//\\/\\\\}
  printf '{"check":"%s","name":"%s","outcome":"%s"}\n' "$record_check" "${name//\"/\\\"}" "$2" >>"$record_file"
}
verdict() { # WHAT STATUS [WHY NOT]
  if [ "$2" -eq 0 ]; then
    passed=$((passed + 1)) && echo "holds          $1" && record "$1" holds
  else
    failed=$((failed + 1)) && echo "DOES NOT HOLD  $1" && echo "  ${3:-}" && record "$1" fails
  fi
}
# Exit code CODE, TEXT on standard error, and no library speaking for the program. What was printed is in
# $out/stdout and $out/stderr.
words_of_libraries='json\.exception|HDF5-DIAG|map::at|filesystem error|Aborted'
refuses() { # WHAT CODE TEXT COMMAND...
  local what=$1 code=$2 text=$3 status
  shift 3
  "$@" >"$out/stdout" 2>"$out/stderr" </dev/null
  status=$?
  [ $status -eq "$code" ] && grep -qF -- "$text" "$out/stderr" && ! grep -qE "$words_of_libraries" "$out/stderr"
  verdict "$what" $? "exit code $status, wanted $code, and '$text' in: $(tail -n 3 "$out/stderr")"
}
# The same of all that is printed, through a pipe: on a full disk a file would be full, too.
exits() { # WHAT CODE TEXT COMMAND...
  local what=$1 code=$2 text=$3 status printed
  shift 3
  printed=$("$@" 2>&1 </dev/null)
  status=$?
  [ $status -eq "$code" ] && [[ $printed == *"$text"* ]] && ! [[ $printed =~ $words_of_libraries ]]
  verdict "$what" $? "exit code $status, wanted $code, and '$text' in: $printed"
}
skip() { skipped=$((skipped + 1)) && echo "skipped: $1" && record "$1" skipped; } # REASON
close_record() { # the last line of the output, and the script's end
  [ ! -s "$out/not_found" ] || verdict "every command is there" 1 "$(cat "$out/not_found")"
  if [ -n "$record_file" ]; then
    printf '{"check":"%s","passed":%d,"failed":%d,"skipped":%d}\n' "$record_check" $passed $failed $skipped >>"$record_file"
  fi
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}
