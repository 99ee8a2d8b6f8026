#!/usr/bin/env bash
# Usage: checks/boundaries.sh [ROOT]
# The walls of the house (docs/architecture.md) as a check: who may include whom, and what may not be
# said in which room. One line a violation, one count a rule. A tree without sources holds nothing.
set -euo pipefail
shopt -s inherit_errexit
root=${1:-$(dirname "$0")/..}
cd "$root"

rules=(sources rooted include libraries json hdf5 kernel pragma lines voice filesystem transcendental parallel flags path)

sources() {
  for part in engine oracle checks reports; do
    [ ! -d "$part" ] || find "$part" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \)
  done | sort
}
# Everything a reader could open; what is built or fetched is not part of the tree.
texts() {
  find . \( -name .git -o -path ./build -o -path ./out \) -prune -o -type f -size -1024k -print | sort
}

# Reads sources, prints "FILE:LINE: RULE: what". Strings and comments are taken out before code is judged.
judge='
function say(rule, what) { printf "%s:%d: %s: %s\n", FILENAME, FNR, rule, what }

# Room of a path: engine/ops/kda.h -> engine/ops, oracle/kda.h -> oracle.
function room(path,  part) {
  split(path, part, "/")
  return part[1] == "engine" ? "engine/" part[2] : part[1]
}

function called(code, name) { return code ~ ("(^|[^A-Za-z0-9_])" name "[ \t]*\\(") }

function bare(line) {
  gsub(/\\["\\]/, "", line)
  gsub(/'"'"'"'"'"'/, "", line)
  gsub(/"[^"]*"/, "\"\"", line)
  if (comment) { if (!sub(/^.*\*\//, "", line)) return ""; comment = 0 }
  gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
  sub(/\/\/.*/, "", line)
  if (sub(/\/\*.*/, "", line)) comment = 1
  return line
}

BEGIN {
  may["engine/base"] = " "
  may["engine/ops"] = may["engine/store"] = " engine/base "
  may["engine/model"] = " engine/base engine/ops engine/store "
  may["engine/data"] = may["engine/adapter"] = " engine/base engine/store "
  may["engine/measure"] = " engine/base engine/store engine/model engine/data engine/adapter "
  may["engine/train"] = " engine/base engine/ops engine/store engine/model engine/data engine/adapter engine/measure "
  may["engine/cli"] = may["engine/train"] "engine/train "
  may["oracle"] = " "
  may["checks"] = may["engine/cli"] "engine/cli oracle "
  may["reports"] = " engine/base "
  n = split("exp exp2 expm1 log log2 log10 log1p pow sin cos tan sinh cosh tanh asin acos atan atan2 cbrt hypot erf erfc tgamma lgamma", functions, " ")
  for (i = 1; i <= n; ++i) library = library (i > 1 ? "|" : "") functions[i]
}

FNR == 1 {
  if (file != "" && header && !pragma) printf "%s:1: pragma: no #pragma once\n", file
  file = FILENAME; header = file ~ /\.h$/; pragma = 0; comment = 0
  here = room(file); kernel = file ~ /^engine\/ops\/[a-z0-9_]*_kernel\.h$/
  if (!(here in may)) say("rooted", "no such room: " here)
}
FNR == 401 { say("lines", "more than 400 lines") }
/^#pragma once/ { pragma = 1 }

/^[ \t]*#[ \t]*include[ \t]*"/ {
  target = $0; sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
  there = room(target)
  if (!(there in may) || target ~ /\.\./) say("rooted", "\"" target "\" is not a path from the root")
  else if (there != here && index(may[here], " " there " ") == 0) say("include", here " may not include " there)
  if (header || there != here) shown[target] = file
  if (kernel && target !~ /^engine\/base\/lane/ && target != "engine/ops/weight.h" &&
      target !~ /^engine\/ops\/[a-z0-9_]*_kernel(_table)?\.h$/)
    say("kernel", "a kernel may not include \"" target "\"")
  next
}
/^[ \t]*#[ \t]*include[ \t]*</ {
  target = $0; sub(/^[^<]*</, "", target); sub(/>.*/, "", target)
  if (target ~ /^(engine|oracle|checks|reports)\//) say("rooted", "<" target "> is ours: write it in quotes")
  if (here == "engine/ops" && target ~ /[\/.]/ && target !~ /^(immintrin|omp)\.h$/)
    say("libraries", "ops may not use <" target ">")
  if (target ~ /^nlohmann\// && here ~ /^engine\// && header) json[file] = FNR
  if (target ~ /^(hdf5|H5)/ && here ~ /^engine\// && file !~ /^engine\/store\/[a-z0-9_]*dump[a-z0-9_]*\.cc$/)
    say("hdf5", "<" target "> outside engine/store/*dump*.cc")
  if (kernel && target !~ /^(c[a-z]+|immintrin\.h)$/) say("kernel", "a kernel may not include <" target ">")
  if (target == "iostream" && here ~ /^engine\// && here != "engine/cli") say("voice", "<iostream>")
  next
}
{ code = bare($0) }
here ~ /^engine\// && here != "engine/cli" {
  if (code ~ /std::(cout|cerr|clog)/ || called(code, "(printf|fprintf|vprintf|puts|putchar|perror)") ||
      code ~ /fmt::print/) say("voice", "the library does not print")
  if (called(code, "(exit|_exit|quick_exit|_Exit|abort|terminate)")) say("voice", "the library does not exit")
  if (called(code, "(getenv|secure_getenv|setenv|putenv)")) say("voice", "the library does not read the environment")
}
# What is printed for people is made harmless; these print as it is: an answer into a file, a line that is redrawn.
here == "engine/cli" && code ~ /fmt::print[ \t]*\(/ && file !~ /\/(say\.(h|cc)|generate\.cc|pass_progress\.cc)$/ {
  say("voice", "fmt::print past engine/cli/say.h")
}
# A refusal is an Error with path and reason, or an error code that is looked at.
here ~ /^engine\// && file !~ /^engine\/store\/at_path\./ &&
code ~ /(^|[^A-Za-z0-9_])(fs|filesystem)::((exists|is_[a-z_]+|file_size|absolute|[a-z_]*canonical|create_[a-z_]+|remove|remove_all|rename|resize_file|space|current_path|permissions|last_write_time|copy|copy_file|status|symlink_status|read_symlink|equivalent)[ \t]*\(|(recursive_)?directory_iterator)/ &&
code !~ /[( ](failed|ignored|missing|gone|error|unknown)\)|!(failed|gone|error) |\(status\)/ {
  say("filesystem", "std::filesystem throws here in its own words: engine/store/at_path.h, or an error code")
}
here ~ /^engine\// {
  # std::exp, ::exp, expf; and, in the rooms that compute, a plain exp( where that could only be the one of
  # <cmath>. checks/symbols.sh has the last word on what was built.
  if (code ~ ("(^|[^A-Za-z0-9_])std::(" library ")[fl]?([^A-Za-z0-9_]|$)") ||
      code ~ ("(^|[^A-Za-z0-9_:>])::(" library ")[fl]?[ \t]*\\(") || called(code, "(" library ")[fl]") ||
      called(code, "__builtin_(" library ")[fl]?") ||
      (here ~ /\/(ops|model)$/ && !kernel && code ~ ("(^|[^A-Za-z0-9_:.>*])(" library ")[ \t]*\\(")))
    say("transcendental", "a library function whose bits differ between machines; use engine/base/math.h")
  if (code ~ /#[ \t]*pragma[ \t]+omp/ && file != "engine/base/parallel.h")
    say("parallel", "OpenMP outside engine/base/parallel.h")
}
END {
  if (file != "" && header && !pragma) printf "%s:1: pragma: no #pragma once\n", file
  # A header is public if another room or another header includes it.
  for (path in json) if (path in shown) printf "%s:%d: json: in a public header: %s includes it\n", path, json[path], shown[path]
}
'

found=$(
  for part in engine oracle checks; do
    sources | grep "^$part/" >/dev/null || echo "$part: sources: no sources found here"
  done
  sources | xargs -r awk "$judge"
  # Flags that would change the bits or tie them to one machine.
  texts | grep -E '(CMakeLists\.txt|CMakePresets\.json|\.cmake|Makefile)$' |
    xargs -r grep -HnE -e '-ffast-math|-Ofast|-march=native|-funsafe-math|-ffp-contract=(fast|on)' |
    sed 's/^\(\.\/\)\?\([^:]*:[0-9]*\):.*/\2: flags: a flag that changes results/' || true
  texts | xargs -r grep -HnIE '(^|[^A-Za-z0-9_.])/(home|root|work|farm|Users|mnt|media)/[A-Za-z]' |
    sed 's/^\(\.\/\)\?\([^:]*:[0-9]*\):.*/\2: path: a path of one machine/' || true
)

[ -z "$found" ] || printf '%s\n' "$found"
passed=0 failed=0
for rule in "${rules[@]}"; do
  if grep -q ": $rule: " <<<"$found"; then failed=$((failed + 1)); else passed=$((passed + 1)); fi
done
if grep -vqE ": ($(IFS='|'; echo "${rules[*]}")): " <<<"${found:-: path: }"; then
  echo "boundaries: a finding that belongs to no rule"
  failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
