# For scripts that check: `verdict WHAT STATUS [WHY NOT]`, `skip REASON`; counts; and, where a FILE was
# given to open_record, the same as JSON lines (docs/formats.md, Records of checks).
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
skip() { skipped=$((skipped + 1)) && echo "skipped: $1" && record "$1" skipped; } # REASON
close_record() { # the last line of the output, and the script's end
  if [ -n "$record_file" ]; then
    printf '{"check":"%s","passed":%d,"failed":%d,"skipped":%d}\n' "$record_check" $passed $failed $skipped >>"$record_file"
  fi
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}
