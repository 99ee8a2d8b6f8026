# Thin on purpose: every target is a command or two that can be typed by hand as well.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
JOBS := $(shell nproc)

.PHONY: $(shell awk -F: '/^[a-z-]+:.*## /{print $$1}' $(firstword $(MAKEFILE_LIST)))

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

deps: ## install what is missing from packages.txt (root or sudo), or name the line to run
	@checks/deps.sh packages.txt

build: deps build/release/build.ninja ## program and checks under build/release
	@cmake --build --preset release --parallel $(JOBS)

test: build ## everything that must hold: format, boundaries, all check programs
	@checks/run_all.sh build/release

quickstart: build ## tiny model, forward, gradients, ten steps, kill and resume; writes out/ only
	@checks/quickstart.sh build/release out/quickstart

check-forward: build ## engine against oracle, recorded dumps and reference data, layer by layer
	@OMP_WAIT_POLICY=passive build/release/checks/check_forward

check-gradients: build ## engine against exact derivatives, finite differences and reference data
	@OMP_WAIT_POLICY=passive build/release/checks/check_gradients

check-differences: build ## case G12: 1,000 random directions, a tensor of norm 60.85; record in build/ (half an hour)
	@rm -f build/release/differences.jsonl
	@OMP_WAIT_POLICY=passive build/release/checks/check_gradients --directions 1000 --out build/release/differences.jsonl

check-hash: build ## 72 training runs, every combination of threads, memory, instruction set, kill: one SHA-256
	@checks/check_hash.sh build/release

check-emulated: build ## case J2: processors without AVX2 or FMA, by qemu: the same bits (a minute or two)
	@checks/deps.sh <(echo qemu-user)
	@checks/emulated_check.sh build/release --all

check-faults: build ## training under failing reads, writes, fsyncs, renames and kills, up to 64 places of each kind
	@checks/faults_check.sh build/release --all

tokenizer-parity: build ## the tokenizer against npm's tiktoken and js-tiktoken (needs node and npm)
	@mkdir -p build/tokenizer-parity
	@npm install --prefix build/tokenizer-parity --no-save --no-audit --no-fund tiktoken@1.0.22 js-tiktoken@1.0.21
	@checks/tokenizer_parity.sh build/release

# RUN: a run folder. TEXT: plain texts. OUT: where results and pages go. CHUNK: predictions of a chunk, those of a
# registration if the run has one. ARGS: more options of `lazylora eval`.
TEXT ?= docs/examples/slice.txt
OUT ?= $(RUN)/eval
CHUNK ?= 64
eval: ## loss of base and adapter of RUN=... on TEXT=..., as a report with figures under OUT
	@[ -n "$(RUN)" ] || { echo "make eval RUN=out/quickstart/run"; exit 2; }
	@$(MAKE) --no-print-directory build
	@command -v gnuplot >/dev/null || checks/deps.sh <(echo gnuplot-nox) || echo "no gnuplot: no figures"
	@reports/eval.sh build/release $(OUT) --run $(RUN) --text $(TEXT) --training-data --chunk $(CHUNK) --gradient $(ARGS)

# MUTANTS: a record of `checks/mutants.sh BUILD --out MUTANTS`, made of the sources of MUTANTS_COMMIT. LONG=1: those
# claims as well that take from minutes to hours.
export MUTANTS MUTANTS_COMMIT LONG
evidence: build ## record the claims that are not recorded yet, under evidence/
	@checks/evidence/record.sh build/release

new-claim: ## allot the next free number to SLUG=...: evidence/NNNN-SLUG
	@checks/evidence/new_claim.sh "$(SLUG)"

verify-evidence: ## every byte of evidence/ and preregistration/ is the recorded one
	@checks/evidence/verify.sh

reproduce: build ## make the recorded claims again in a scratch folder and compare them byte for byte
	@checks/evidence/reproduce.sh build/release

check-numbers: ## every figure of README and docs is that of its source (docs/numbers.md)
	@checks/numbers.sh

mutants: build ## plant every fault of checks/mutants/table.txt; each must make its check fail (hours)
	@checks/mutants.sh build/release

bench: build ## speed of the ops, from the cases of the checks, as JSON under build/release/bench
	@checks/bench.sh build/release

bench-stream: build ## does reading overlap computing? medium from a device of given speed; ratios last
	@checks/bench_stream.sh build/release

bench-sequences: build ## tokens an hour against sequences a step, and the forecast of `lazylora plan`; ratios last
	@checks/bench_sequences.sh build/release

asan: deps build/asan/build.ninja ## build with address and undefined-behaviour sanitizers, run the check programs
	@cmake --build --preset asan --parallel $(JOBS)
	@checks/run_all.sh build/asan --programs

SECONDS ?= 60
fuzz: deps ## every reader of outside bytes under libFuzzer, SECONDS=60 each, from fixtures/malformed
	@checks/deps.sh <(printf '%s\n' clang-14 libclang-rt-14-dev libomp-14-dev)
	@$(MAKE) --no-print-directory build/fuzz/build.ninja
	@cmake --build --preset fuzz --parallel $(JOBS) --target fuzz
	@checks/fuzz.sh build/fuzz $(SECONDS)

tsan: deps ## build with clang's thread sanitizer, run the check programs
	@checks/deps.sh <(printf '%s\n' clang-14 libomp-14-dev)
	@$(MAKE) --no-print-directory build/tsan/build.ninja
	@cmake --build --preset tsan --parallel $(JOBS)
	@OMP_TOOL_LIBRARIES=/usr/lib/llvm-14/lib/libarcher.so TSAN_OPTIONS=ignore_noninstrumented_modules=1 \
	  checks/run_all.sh build/tsan --programs

format: deps ## rewrite the sources in the project's format
	@checks/format.sh --fix

format-check: deps ## fail if a source is not in the project's format
	@checks/format.sh

clean: ## remove build/ and out/
	rm -rf build out

# Ninja runs CMake again by itself when a CMakeLists.txt changes; the presets it does not watch.
build/%/build.ninja: CMakePresets.json
	@cmake --preset $*
	@touch $@
