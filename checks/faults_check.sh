#!/usr/bin/env bash
# Usage: checks/faults_check.sh BUILD_DIR [--all] [--out FILE]
# Three training steps while reads, writes, fsyncs and renames go wrong (checks/faults/faults.cc): either the
# bits are those of an undisturbed run, or the program stops with a clear error, or it is killed; and after
# both of the latter the newest checkpoint that was announced is there and a resumed run has the same bits.
# --all: at up to 64 calls of every kind (that is every fsync and rename), not at three. FILE: the table as
# JSON lines.
set -uo pipefail
build=$1 most=3 record=
shift
while [ $# -gt 0 ]; do
  case $1 in
    --all) most=64 ;;
    --out) record=${2:?} && shift ;;
    *) echo "usage: $0 BUILD_DIR [--all] [--out FILE]" >&2; exit 2 ;;
  esac
  shift
done
. "$(dirname "$0")/verdicts.sh"
open_record faults_check "$record"
lazylora=$build/lazylora
shim=$(realpath "$build/checks/libfaults.so") || exit 1
export OMP_WAIT_POLICY=passive # or the program would start itself anew, and count anew
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir "$out/scratch" "$out/runs"
run=$out/runs/run

"$lazylora" make-model "$out/model" --shape tiny --seed 1 >/dev/null || exit 1
seq -s, 7 19 120 >"$out/a.txt"
seq -s, 500 -23 300 >"$out/b.txt"
train() { # OPTIONS...
  "$lazylora" train --model "$out/model" --ids "$out/a.txt" "$out/b.txt" --out "$run" --steps 3 --sequences 1 \
    --warmup 1 --rank 2 --alpha 4 --checkpoint-every 1 --threads 2 --scratch "$out/scratch" --ram 1GB "$@" \
    >"$out/said" 2>&1
}
# faulty RULES UNDER OPTIONS...: the program's status; acted: how often the rules did something.
faulty() {
  local rules=$1 under=$2 status
  shift 2
  rm -f "$out/faults.log"
  FAULTS=$rules FAULTS_UNDER=$under FAULTS_LOG=$out/faults.log LD_PRELOAD=$shim train "$@"
  status=$?
  acted=$(awk '{n += $3} END {print n + 0}' "$out/faults.log" 2>/dev/null)
  return $status
}
digest() { cat "$run/adapter.safetensors" "$run/log.jsonl" 2>/dev/null | sha256sum | cut -d' ' -f1; }

train || { cat "$out/said"; exit 1; }
want=$(digest)
echo "SHA-256 of adapter and log: $want"

# same NAME RULES UNDER OPTIONS...
same() {
  local name=$1
  shift
  rm -rf "$run"
  faulty "$@" && [ "$acted" -gt 0 ] && [ "$(digest)" = "$want" ]
  verdict "$name: same bits (acted ${acted:-0} times)" $? "$(tail -n 2 "$out/said")"
}
# resumes NAME: after a fault, without one. What was announced as saved is what the run goes on behind. Where the
# fault struck before there was a run, the same command begins it.
resumes() {
  local newest said again=
  newest=$(sed -n 's/^step \([0-9]*\) saved in .*/\1/p' "$out/said" | tail -n 1)
  said=$(tail -n 2 "$out/said")
  [ ! -e "$run/manifest.json" ] || again=--resume
  train $again && [ "$(digest)" = "$want" ] &&
    { [ -z "$newest" ] || [ "$newest" = 3 ] ||
      grep -qE "going on behind .*/step_0*($newest|$((newest + 1)))\$" "$out/said"; }
  verdict "$1" $? "$said; resumed: $(tail -n 2 "$out/said")"
}
# stops NAME RULES UNDER TEXT: exit code 1 and an error that says TEXT.
stops() {
  local name=$1 text=$4 status
  rm -rf "$run"
  faulty "$2" "$3"
  status=$?
  if [ $status -eq 1 ] && grep -qE -- "$text" "$out/said"; then
    resumes "$name: stops, and resumes to the same bits"
  else
    verdict "$name: stops" 1 "exit code $status, wanted 1 and '$text': $(tail -n 2 "$out/said")"
  fi
}
# dies NAME RULES UNDER
dies() {
  local status
  rm -rf "$run"
  faulty "$2" "$3" 2>/dev/null # bash says "Killed"
  status=$?
  if [ $status -eq 137 ]; then
    resumes "$1: killed, and resumes to the same bits"
  else
    verdict "$1: killed" 1 "exit code $status, wanted 137: $(tail -n 2 "$out/said")"
  fi
}

everywhere="pread:1-:short,pwrite:1-:short,write:1-:short"
same "short reads and writes everywhere" "$everywhere" "$out"
same "a storm of EINTR in reads and writes" "${everywhere//short/eintr}" "$out"
same "reads of the checkpoint fail with EIO, three in a row" "pread:40-42:EIO" "$out/model"
same "the device is gone (ENODEV) for four reads" "pread:200-203:ENODEV" "$out/model"
same "O_DIRECT refused when opened" "open-direct:1-:EINVAL" "$out/model" --reads direct
if grep -q '^reads direct' "$out/said"; then verdict "and the program says so" 1; fi
rm -rf "$run"
faulty "pread-direct:1-:count" "$out/model" --reads direct
if [ "$(awk '{print $2}' "$out/faults.log")" -gt 0 ]; then
  same "O_DIRECT refused when read" "pread-direct:1-:EINVAL" "$out/model" --reads direct
  same "direct reads come up short" "pread-direct:1-:short" "$out/model" --reads direct
else
  skip "no direct reads: $(grep '^reads ' "$out/said")"
fi
stops "the checkpoint cannot be read any more" "pread:400-:EIO" "$out/model" "$out/model/model-.*read of .* failed"
stops "an activation record cannot be read" "pread:30-:EIO" "$out/scratch" "$out/scratch: scratch file"

# How many calls an undisturbed run makes, and then each of them, or a few.
rm -rf "$run"
faulty "write:1-:count,fsync:1-:count,rename:1-:count" "$out/runs"
read -r writes fsyncs renames < <(awk '{print $2}' "$out/faults.log" | tr '\n' ' ')
rm -rf "$run"
faulty "pwrite:1-:count" "$out/scratch"
pwrites=$(awk '{print $2}' "$out/faults.log")
echo "an undisturbed run: $writes writes, $fsyncs fsyncs and $renames renames in its folder, $pwrites of activations"
[ "$writes" -gt 0 ] && [ "$fsyncs" -gt 0 ] && [ "$renames" -gt 0 ] && [ "$pwrites" -gt 0 ]
verdict "every kind of call is made" $?

# at COUNT: the calls to disturb, from the first to the last.
at() { # COUNT
  if [ "$1" -le $most ]; then seq 1 "$1"; else
    for i in $(seq 0 $((most - 1))); do echo $((1 + i * ($1 - 1) / (most - 1))); done
  fi
}
for k in $(at "$writes"); do
  stops "disk full at write $k of $writes" "write:$k-:ENOSPC" "$out/runs" "No space left"
  dies "SIGKILL at write $k of $writes" "write:$k:kill" "$out/runs"
  dies "SIGKILL in the middle of write $k of $writes" "write:$k:torn" "$out/runs"
done
for k in $(at "$pwrites"); do
  stops "disk full at activation record $k of $pwrites" "pwrite:$k-:ENOSPC" "$out/scratch" "No space left"
done
for k in $(at "$fsyncs"); do
  stops "EIO at fsync $k of $fsyncs" "fsync:$k:EIO" "$out/runs" "Input/output error"
  dies "SIGKILL at fsync $k of $fsyncs" "fsync:$k:kill" "$out/runs"
done
for k in $(at "$renames"); do
  stops "EIO at rename $k of $renames" "rename:$k:EIO" "$out/runs" "Input/output error"
  dies "SIGKILL at rename $k of $renames" "rename:$k:kill" "$out/runs"
done

# Planted: reads that lie are other bits, or an error; a rule that is not one ends the program.
rm -rf "$run"
faulty "pread:60-:flip" "$out/model" && [ "$(digest)" = "$want" ]
[ $? -ne 0 ]
verdict "planted: reads that lie are not the same bits" $?
faulty "pread:1-:nonsense" "$out/model"
[ $? -eq 120 ]
verdict "planted: a rule that cannot be read" $?
close_record
