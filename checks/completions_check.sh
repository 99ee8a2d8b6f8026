#!/usr/bin/env bash
# Usage: checks/completions_check.sh BUILD_DIR
# What others make of files that are for them. What a shell offers behind what was typed, asked of the shells
# themselves: commands, options, the words that an option takes, files. bash is asked always, zsh (through a
# pseudo-terminal) and fish where they are; and systemd, whether it can read the units.
set -uo pipefail
lazylora=$(cd "$1" && pwd)/lazylora
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. "$(dirname "$0")/verdicts.sh"
units=$(cd "$(dirname "$0")/.." && pwd)/docs/systemd
mkdir "$out/files" "$out/functions"
touch "$out/files/ids.txt"
cd "$out/files" || exit 1

# ask_SHELL SCRIPT LINE: the words offered behind LINE, one a line.
ask_bash() {
  bash --norc -c '. "$1"; read -ra COMP_WORDS <<<"$2"; [[ $2 != *" " ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lazylora; printf "%s\n" "${COMPREPLY[@]}"' _ "$1" "$2"
}
ask_fish() {
  HOME=$out XDG_CONFIG_HOME=$out XDG_DATA_HOME=$out fish -N -c 'source $argv[1]; complete -C $argv[2]' "$1" "$2" |
    cut -f 1
}
# An interactive zsh whose compadd writes down what it is given.
ask_zsh() {
  cp "$1" "$out/functions/_lazylora"
  : >"$out/offered"
  timeout 20 zsh -f -c '
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; cd $2
      compadd() {
        local -a found
        [[ \${@[1,(i)(-|--)]} == *-[OAD]\ * ]] || { builtin compadd -A found \"\$@\"; print -rl -- \$found >>$3; }
        builtin compadd \"\$@\"
      }
      print READY >>$3"
    wait_for() { repeat 200; do grep -q "$1" $2 && return; zpty -r -t shell ignored; sleep 0.05; done }
    wait_for READY $3
    zpty -n -w shell "$4"$'"'\\t'"'
    zpty -n -w shell $'"'\\x15'"'
    zpty -w shell "print END >>$3"
    wait_for END $3' _ "$out/functions" "$out/files" "$out/offered" "$2" >/dev/null 2>&1
  grep -v '^READY$\|^END$' "$out/offered"
}

holds() { # WANTED UNWANTED OFFERED: words between spaces
  local word
  for word in $1; do grep -qxF -- "$word" <<<"$3" || return 1; done
  for word in $2; do ! grep -qxF -- "$word" <<<"$3" || return 1; done
}
for shell in bash zsh fish; do
  if ! command -v $shell >/dev/null; then
    skip "$shell is not here: its completions were not tried"
    continue
  fi
  "$lazylora" reference $shell >"$out/script" && $shell -n "$out/script"
  verdict "$shell reads its completions" $?
  while IFS='|' read -r line wanted unwanted; do
    offered=$(ask_$shell "$out/script" "$line")
    holds "$wanted" "$unwanted" "$offered"
    verdict "$shell offers behind '$line': $wanted" $? "offered: $(tr '\n' ' ' <<<"$offered")"
  done <<'END'
lazylora tr|train trace|status
lazylora data |build held-out corpus show|train ids.txt
lazylora data build --mod|--model|build --mask-first
lazylora train --e|--eval-every --eval-data|--prompt
lazylora train --reads |auto direct buffered|ids.txt
lazylora forward --ids |ids.txt|train
lazylora trace export --|--ram|--dtype
lazylora tokenize |ids.txt|train
END
done
holds "train" "" "$(printf 'trace\ntrains')" || ! holds "" "ids.txt" "ids.txt"
verdict "planted: a word too few and one too many are seen" $?

# The program of the service has to be there.
if command -v systemd-analyze >/dev/null; then
  mkdir "$out/units"
  for unit in "$units"/*; do sed "s|^ExecStart=[^ ]*|ExecStart=$lazylora|" "$unit" >"$out/units/${unit##*/}"; done
  systemd-analyze verify "$out"/units/*.service "$out"/units/*.timer 2>"$out/stderr" && [ ! -s "$out/stderr" ]
  verdict "systemd reads the units" $? "$(cat "$out/stderr")"
  sed -i 's/^Type=exec/Type=exact/' "$out"/units/*.service
  systemd-analyze verify "$out"/units/*.service 2>"$out/stderr"
  [ -s "$out/stderr" ]
  verdict "planted: a type that there is not is seen" $?
else
  skip "systemd-analyze is not here: the units were not read"
fi
close_record
