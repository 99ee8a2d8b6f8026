#!/usr/bin/env bash
# Usage: checks/emulated_check.sh BUILD_DIR [--all]
# Case J2: processors that this machine is not, by qemu-x86_64's user mode. Without AVX2, and with AVX2 but without
# FMA, the scalar path is chosen without being asked for, logits have the bits of this machine, and --isa avx2 is
# refused in words. There std::fma is the C library's software. An instruction beyond the processor, wherever in the
# program it was compiled in, is SIGILL: a planted one shows it. --all adds a training step (an instruction of the
# backward) on each, and AVX2 emulated. Seconds; --all: a minute or two. Without qemu-x86_64: one skip.
set -uo pipefail
build=$1
all=${2:-}
lazylora=$build/lazylora
. "$(dirname "$0")/verdicts.sh"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if ! command -v qemu-x86_64 >/dev/null; then
  skip "no qemu-x86_64 (Debian: qemu-user), which \`make check-emulated\` installs: no processor without AVX2"
  close_record
  exit
fi
export OMP_WAIT_POLICY=passive
"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
echo 7,19,240 >"$out/ids.txt"

here() { "$@"; }
on() { qemu-x86_64 -cpu "$1" "${@:2}"; }
logits() { sed -n 's/^logits SHA-256 *//p' "$out/said"; }
forward() { # HOW... -- OPTIONS...
  local how=()
  while [ "$1" != -- ]; do how+=("$1") && shift; done
  shift
  "${how[@]}" "$lazylora" forward --model "$out/model" --ids "$out/ids.txt" "$@" >"$out/said" 2>&1
}
# What training wrote, numbers alone.
train() { # HOW...
  rm -rf "$out/run"
  "$@" "$lazylora" train --model "$out/model" --ids "$out/ids.txt" --out "$out/run" --steps 1 --sequences 1 --warmup 1 \
    --rank 2 --alpha 4 --checkpoint-every 1 --ram 1GB >"$out/said" 2>&1 &&
    (cd "$out/run" && find adapter.safetensors log.jsonl checkpoints -type f -print0 | sort -z | xargs -0 sha256sum) |
    sha256sum | cut -d' ' -f1
}

# The emulator really lacks what it is told to: an AVX2 program dies there, and runs where AVX2 is.
cat >"$out/planted.cc" <<'PLANTED'
#include <immintrin.h>
int main(int argc, char**) {
  const __m256i x = _mm256_add_epi32(_mm256_set1_epi32(argc), _mm256_set1_epi32(1));
  return _mm256_extract_epi32(x, 3) - 2;
}
PLANTED
g++ -O1 -mavx2 "$out/planted.cc" -o "$out/planted" || exit 1
on Nehalem "$out/planted" >"$out/said" 2>&1
killed=$?
on Haswell "$out/planted" >>"$out/said" 2>&1
ran=$?
[ $killed -eq 132 ] && [ $ran -eq 0 ]
verdict "planted: an AVX2 instruction ends by SIGILL without AVX2, and not with it" $? "exit codes $killed and $ran: $(tail -n 1 "$out/said")"

forward here -- || { cat "$out/said"; exit 1; }
want=$(logits)
[ -n "$want" ] || exit 1
trained=
[ "$all" != --all ] || trained=$(train here)

without_avx2() { # CPU WHAT
  forward on "$1" -- && [ "$(logits)" = "$want" ]
  verdict "$2: the logits of this machine, nothing asked for" $? "$(logits), wanted $want: $(tail -n 1 "$out/said")"
  forward on "$1" -- --isa avx2
  [ $? -eq 1 ] && grep -qxF "lazylora: --isa avx2: this processor runs scalar" "$out/said"
  verdict "$2: --isa avx2 is refused, scalar is what there is" $? "$(tail -n 1 "$out/said")"
  [ "$all" = --all ] || return
  local got
  got=$(train on "$1")
  [ -n "$trained" ] && [ "$got" = "$trained" ]
  verdict "$2: a training step has the bits of this machine" $? "$got, wanted $trained: $(tail -n 1 "$out/said")"
}
without_avx2 Nehalem "no AVX2, no FMA (Nehalem)"
if [ "$all" = --all ]; then
  without_avx2 Haswell,-fma "AVX2 but no FMA (Haswell,-fma)"
  without_avx2 Haswell,-avx2 "FMA but no AVX2 (Haswell,-avx2)"
  forward on Haswell -- --isa avx2 && [ "$(logits)" = "$want" ]
  verdict "AVX2 and FMA emulated (Haswell): the same logits" $? "$(logits), wanted $want: $(tail -n 1 "$out/said")"
fi

# Planted: another token is another digest, or nothing above would mean anything.
echo 7,19,241 >"$out/ids.txt"
forward on Nehalem -- && [ "$(logits)" != "$want" ]
verdict "planted: other tokens have other logits" $?

close_record
