#!/usr/bin/env bash
# Usage: checks/reference_check.sh BUILD_DIR
# Completions and manual are made of the tables that parse the command line: every command and option of
# --help is in them, and bash completes what it should.
set -uo pipefail
lazylora=$1/lazylora
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"

for form in bash zsh fish man; do
  "$lazylora" reference $form >"$out/$form" || exit 1
done

# Of all commands, subcommands of two among them.
commands=$("$lazylora" --help | sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 10 ]
verdict "--help lists commands" $?
missing=
for command in $commands "data build" "trace export"; do
  for option in $("$lazylora" $command --help | grep -oE '^  --[a-z0-9-]+' | tr -d ' '); do
    grep -qE -- "'/${command/ //}'\) .*$option[ ']" "$out/bash" || missing+=" bash:$command:$option"
    grep -qF -- " -l ${option#--} " "$out/fish" || missing+=" fish:$command:$option"
    grep -qF -- "\\fB${option//-/\\-}\\fR" "$out/man" || missing+=" man:$command:$option"
  done
done
[ -z "$missing" ] || echo "missing:$missing"
[ -z "$missing" ]
verdict "every option of every command is in all of them" $?

# An option that may be given as the first word as well.
[ "$("$lazylora" generate --help | grep -c 'REQUIRED')" -eq 2 ] && [ "$("$lazylora" generate --help | grep -cE '^  (MODEL|--model) TEXT \(MODEL or --model REQUIRED\)')" -eq 2 ] &&
  grep -qF 'checkpoint folder (or as first word) (required)' "$out/man"
verdict "of MODEL and --model one is required, all say" $?

completes() { # WHAT WANTED WORDS...: the last word is being typed
  local what=$1 wanted=$2
  shift 2
  got=$(bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lazylora; echo "${COMPREPLY[*]}"' _ "$out/bash" lazylora "$@")
  [ "$got" = "$wanted" ]
  verdict "$what" $?
}
cd "$out" && touch a_file
bash -n bash
verdict "bash reads its script" $?
completes "a command" "generate" gen
completes "a command of a command" "build" data bu
completes "an option" "--temperature" generate --temp
completes "the words an option takes" "chat" generate --form c
completes "a file behind an option" "a_file" forward --ids a_f
completes "no option of another command" "" forward --temp
completes "a hidden command is not offered" "" refer
if command -v zsh >/dev/null; then zsh -n zsh; verdict "zsh reads its script" $?; else skip "zsh is not installed"; fi
if command -v fish >/dev/null; then fish -n fish; verdict "fish reads its script" $?; else skip "fish is not installed"; fi
if command -v groff >/dev/null; then
  groff -man -Tascii -P-cbou -ww -W break man >page 2>warnings && [ ! -s warnings ] && grep -q -- '--top-p X' page
  verdict "groff sets the page without a warning" $?
else
  skip "groff is not installed"
fi

close_record
