# Sourced by make.sh: claims that take from minutes to hours, so they are made only where LONG=1 asks for it. What depends
# on clocks or on the machine's memory lies in may_differ/; outside of it is what has to come out the same.
declare -A takes=(
  [0012-differences]="half an hour"
  [0013-every-combination]="a quarter of an hour"
  [0014-faults]="minutes"
  [0015-memory]="half an hour, and 40 GB under TMPDIR"
  [0016-speed]="half an hour, best on a quiet machine"
  [0017-tokens]="minutes, and what \`make tokenizer-parity\` fetches"
  [0018-speed]="half an hour, best on a quiet machine"
  [0019-speed]="half an hour, best on a quiet machine"
)

# The last lines of FILE, in which a check says what came out.
verdict_of() { tail -n "${2:-1}" "$here/$1"; } # FILE [LINES]

0012-differences() {
  readme <<'END'
# A thousand central differences along random directions cry no wolf

| file | what |
|---|---|
| `directions.jsonl` | a line a direction: three steps, what truncation and rounding allow, resolved or below resolution |
| `directions.txt` | the check's own table |
| `rests_on_c_library.txt` | files whose last digits may come out otherwise with another C library |
END
  run directions.txt "$build/checks/check_gradients" --directions 1000 --out "$scratch/directions.jsonl"
  cp "$scratch/directions.jsonl" "$here/"
  rests_on_c_library directions.txt directions.jsonl
}

0013-every-combination() {
  if ! grep -qw avx512f /proc/cpuinfo; then echo "this processor has no AVX-512" >"$here/verdict.txt.absent"; fi
  readme <<'END'
# One hash of 72 runs: threads, memory, instruction set, interruption

| file | what |
|---|---|
| `verdict.txt` | how many runs, and the SHA-256 of losses, gradients, adapter and log of all of them |
| `may_differ/table.txt`, `may_differ/table.jsonl` | a line a run; memory budgets and bytes read are those of the machine |
END
  run may_differ/table.txt "$root/checks/check_hash.sh" "$build" --out "$scratch/table.jsonl"
  cp "$scratch/table.jsonl" "$here/may_differ/"
  [ -e "$here/verdict.txt.absent" ] || verdict_of may_differ/table.txt 2 >"$here/verdict.txt"
}

0014-faults() {
  readme <<'END'
# Failing reads, writes, fsyncs and renames, and SIGKILL at each: the same bits or a clear error

| file | what |
|---|---|
| `verdict.txt` | how many rows hold |
| `may_differ/table.txt`, `may_differ/table.jsonl` | a line a fault; how often a rule acted depends on how reads fall |
END
  run may_differ/table.txt "$root/checks/faults_check.sh" "$build" --out "$scratch/table.jsonl"
  cp "$scratch/table.jsonl" "$here/may_differ/"
  verdict_of may_differ/table.txt >"$here/verdict.txt"
}

# One step; its clocks and memory to may_differ/. A failure if it took more than RAM, in MB.
trains_within() { # NAME MODEL IDS RAM
  run "may_differ/$1.txt" "$lazylora" train --model "$scratch/$2" --ids "$3" --out "$scratch/$1" --steps 1 --ram "$4MB"
  sed -nE 's/.*"peak_rss_bytes":([0-9]+),"swap_bytes":([0-9]+).*/\1 \2/p' "$scratch/$1/timings.jsonl" |
    awk -v most="$4" '{if ($1 + $2 > most * 1e6) over = 1} END {exit over || !NR}' || { echo "$1: not within $4 MB" >&2; return 1; }
  cp "$scratch/$1/timings.jsonl" "$here/may_differ/$1.jsonl"
  cp "$scratch/$1/log.jsonl" "$here/$1.log.jsonl"
}
0015-memory() {
  readme <<'END'
# Training stays within its memory, up to the size of the release

Peak RSS and swap against `--ram`. The checkpoint of the release's size has values in layers 1 and 3, in router gates,
norms, embeddings and head; in its other layers are holes, which shows reading and memory, not mathematics.

| file | what |
|---|---|
| `small_80MB.log.jsonl`, `small_150MB.log.jsonl`, `medium_400MB.log.jsonl` | a step on 117 ids of `small` and on 1,023 of `medium`; the first two are the same run |
| `sweeps.txt` | loss and norms of the runs on the release's size, as `bench_memory` printed them |
| `may_differ/small_80MB.txt`, `may_differ/small_150MB.txt`, `may_differ/medium_400MB.txt`, `may_differ/small_80MB.jsonl`, `may_differ/small_150MB.jsonl`, `may_differ/medium_400MB.jsonl` | what `train` printed, and its timings with RSS |
| `may_differ/step_3GB.txt`, `may_differ/step_least.txt` | one whole step of the release's size on 16 tokens, within 3 GB and 1.15 GB |
| `may_differ/mla_3GB.txt`, `may_differ/kda_3GB.txt` | layers 3 and 1, up and down, on 1,024 tokens |
| `may_differ/model.txt`, `may_differ/disk_usage.txt` | that checkpoint, and what it takes on disk |
| `may_differ/plan_16.txt`, `may_differ/plan_1024.txt` | what `lazylora plan` says of it |
END
  seq -s ' ' 1 4 467 >"$scratch/ids/117.txt"
  seq -s ' ' 1 7 7155 >"$scratch/ids/1023.txt"
  "$lazylora" make-model "$scratch/small" --shape small --seed 1 >/dev/null
  "$lazylora" make-model "$scratch/medium" --shape medium --seed 1 >/dev/null
  trains_within small_80MB small "$scratch/ids/117.txt" 80
  trains_within small_150MB small "$scratch/ids/117.txt" 150
  trains_within medium_400MB medium "$scratch/ids/1023.txt" 400
  cmp "$here/small_80MB.log.jsonl" "$here/small_150MB.log.jsonl" >&2 || return 1
  rm -r "$scratch/small" "$scratch/medium"
  run may_differ/model.txt "$lazylora" make-model "$scratch/k3" --shape full-sparse --real-layers 1,3 --seed 1
  run may_differ/disk_usage.txt du --block-size=1 -s "$scratch/k3"
  local tokens name settings
  for tokens in 16 1024; do
    run may_differ/plan_$tokens.txt "$lazylora" plan "$scratch/k3" --tokens $tokens --ram 3GB --disk 2000 --gflops 30 --threads 1
  done
  while read -r name settings; do
    # shellcheck disable=SC2086 # words
    run "may_differ/$name.txt" "$build/checks/bench_memory" "$scratch/k3" $settings
    echo "$name: $(grep -ohE '^loss [^,]*|norm of the .*gradient [^ ]*' "$here/may_differ/$name.txt" | paste -sd ';')" >>"$here/sweeps.txt"
  done <<'END'
step_3GB 16 3GB
step_least 16 1.15GB
mla_3GB 1024 3GB 3
kda_3GB 1024 3GB 1
END
  [ "$(sed -n 's/^step_[^:]*: loss //p' "$here/sweeps.txt" | sort -u | wc -l)" -eq 1 ] || { echo "0015-memory: the step's loss depends on memory" >&2; return 1; }
}

speed() { # [WITH_WHAT]
  readme <<END
# How fast the kernels, the streaming and several sequences are, on one machine${1:+, $1}

Ratios, each within one process; docs/performance.md says how they are taken. They are of this machine and hour, so that
all of them lie in may_differ/. What is compared when this is made again is that reading beside computing and the
forecast hold what \`make bench-stream\` and \`make bench-sequences\` hold them to, and that the forward's digests are equal.

| file | what |
|---|---|
| \`forward.txt\` | digest of the logits of a forward of 128 tokens on \`medium\`, with AVX2 and with AVX-512 |
| \`may_differ/products_avx2.txt\`, \`may_differ/products_avx512.txt\` | matrix products beside the fma peak, OpenBLAS and the read rate: median, quartiles, rounds kept |
| \`may_differ/stream_64.txt\`, \`may_differ/stream_128.txt\` | step over the longer of device and processor, 64 and 128 tokens |
| \`may_differ/sequences.txt\` | tokens an hour against sequences a step, and the forecast |
| \`may_differ/forward_avx2.txt\`, \`may_differ/forward_avx512.txt\` | that forward with one thread, and what it took |
END
  run may_differ/bench.txt "$root/checks/bench.sh" "$build"
  mv "$build"/bench/products_{avx2,avx512}.txt "$here/may_differ/"
  rm "$here/may_differ/bench.txt"
  local tokens isa
  for tokens in 64 128; do run may_differ/stream_$tokens.txt "$root/checks/bench_stream.sh" "$build" $tokens; done
  run may_differ/sequences.txt "$root/checks/bench_sequences.sh" "$build" 16
  "$lazylora" make-model "$scratch/medium" --shape medium --seed 1 >/dev/null
  seq -s ' ' 1 7 890 >"$scratch/ids/128.txt"
  for isa in avx2 avx512; do
    # The second of two: the first brings the model into the page cache.
    run may_differ/forward_$isa.txt bash -c '"$@" >/dev/null && TIMEFORMAT="took %R s, of processor %U s and %S s" && { time "$@"; } 2>&1' forward \
      "$lazylora" forward --model "$scratch/medium" --ids "$scratch/ids/128.txt" --threads 1 --isa $isa
    echo "$isa $(grep '^logits' "$here/may_differ/forward_$isa.txt")" >>"$here/forward.txt"
  done
  [ "$(cut -d' ' -f2- "$here/forward.txt" | sort -u | wc -l)" -eq 1 ] || { echo "not one digest" >&2; return 1; }
}
0016-speed() { speed; }
0018-speed() { speed; } # again, with the kernels for few tokens
0019-speed() { speed "with rows that ask for their own bytes"; }

0017-tokens() {
  readme <<'END'
# Tokens are those of tiktoken

| file | what |
|---|---|
| `parity.txt` | what was compared with the npm packages `tiktoken` 1.0.22 and `js-tiktoken` 1.0.21: vocabularies, patterns, 4,000 texts each |
END
  run parity.txt "$root/checks/tokenizer_parity.sh" "$build"
  without_times "$here/parity.txt"
}
