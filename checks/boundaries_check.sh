#!/usr/bin/env bash
# The boundaries script's own test: a small tree that keeps every rule passes; the empty tree does not;
# and one violation of each rule, planted in that tree, is refused under that rule's name.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0

# A tree that holds, with what could be mistaken for a violation.
fresh() {
  rm -rf "$scratch/tree"
  mkdir -p "$scratch"/tree/{engine/{base,ops,store,model,data,adapter,measure,train,cli},oracle,checks/ops,reports,build}
  cd "$scratch/tree"
  printf '#pragma once\n#include <cmath>\ninline double exp(double x) { return x; }\ninline double half(double x) { return exp(x) / 2; }\n' >engine/base/math.h
  printf '#pragma once\n#include <omp.h>\n#pragma omp parallel\n' >engine/base/parallel.h
  printf '#pragma once\n#include "engine/base/lanes.h"\n#include "engine/ops/weight.h"\n#include <cstdint>\nstatic float f(float x) { return exp(x); }\n' >engine/ops/x_kernel.h
  printf '#pragma once\n' >engine/base/lanes.h
  printf '#include "engine/base/math.h"\n// std::exp( is not called here, nor is printf("")\n/* exit(1) */\nconst char* s = "std::exp(1) exit(0)";\nfloat y = engine::base::exp(1.0);\nvoid g() { table.exp(x, y); table->log(x); int nexp(int); }\n' >engine/ops/x.cc
  printf '#include <hdf5.h>\n#include <nlohmann/json.hpp>\n#include "engine/base/math.h"\n' >engine/store/dump.cc
  printf '#include "engine/ops/x.h"\n#include "engine/store/y.h"\n#include "engine/model/source.h"\n' >engine/model/m.cc
  printf '#pragma once\n#include <nlohmann/json.hpp>\n' >engine/model/source.h
  printf '#include "engine/measure/e.h"\n#include "engine/model/m.h"\n' >engine/train/t.cc
  printf '#include <iostream>\n#include "engine/train/t.h"\nint main() { getenv("A"); printf("x"); exit(0); }\n' >engine/cli/main.cc
  printf '#pragma once\n#include <boost/rational.hpp>\n#include "oracle/scalar.h"\ndouble e = std::exp(1.0);\n' >oracle/kda.h
  printf '#include "checks/compare.h"\n#include "engine/ops/x.h"\n#include "oracle/kda.h"\n' >checks/ops/x_check.cc
  printf '#include "engine/base/math.h"\n' >reports/render.cc
  printf 'add_compile_options(-ffp-contract=off)\n' >CMakeLists.txt
  printf '/%s/somebody/elsewhere\n' home >build/log
}

# refused RULE WHAT FILE LINE: with LINE appended to FILE, the script fails and names RULE there.
refused() {
  local rule=$1 what=$2 file=$3 line=$4 output code
  fresh
  mkdir -p "$(dirname "$file")"
  printf '%b\n' "$line" >>"$file"
  output=$("$here/boundaries.sh" "$scratch/tree" 2>&1)
  code=$?
  if [ $code -eq 1 ] && grep -qE "^$file(:[0-9]+)?: $rule: " <<<"$output" &&
    [ "$(tail -n 1 <<<"$output")" = "14 passed, 1 failed, 0 skipped" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'not refused as "%s": %s (exit %d)\n%s\n' "$rule" "$what" "$code" "$output"
  fi
}

# tree WHAT EXIT LASTLINE: the script on the tree as it stands.
tree() {
  local output code
  output=$("$here/boundaries.sh" "$scratch/tree" 2>&1)
  code=$?
  if [ $code -eq "$2" ] && [ "$(tail -n 1 <<<"$output")" = "$3" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '%s: exit %d\n%s\n' "$1" "$code" "$output"
  fi
}

fresh
tree "a tree that keeps the rules" 0 "15 passed, 0 failed, 0 skipped"
find . -name '*.h' -delete -o -name '*.cc' -delete
tree "a tree without sources" 1 "14 passed, 1 failed, 0 skipped"
rm -rf "$scratch"/tree/*
tree "an empty tree" 1 "14 passed, 1 failed, 0 skipped"
fresh
rm oracle/*
tree "a tree without an oracle" 1 "14 passed, 1 failed, 0 skipped"

refused rooted "a relative include" engine/model/m.cc '#include "config.h"'
refused rooted "a climbing include" engine/model/m.cc '#include "engine/../ops/x.h"'
refused rooted "our own header in angle brackets" engine/model/m.cc '#include <engine/base/error.h>'
refused rooted "a room that the house does not have" engine/utils/u.cc 'int u;'
refused include "a kernel that reads files" engine/ops/x.cc '#include "engine/store/file.h"'
refused include "a reader that does arithmetic" engine/store/dump.cc '#include "engine/ops/x.h"'
refused include "base that knows a file format" engine/base/math.h '#include "engine/store/file.h"'
refused include "model that knows training" engine/model/m.cc '#include "engine/train/t.h"'
refused include "data that knows the model" engine/data/d.cc '#include "engine/model/m.h"'
refused include "adapter files that know ops" engine/adapter/a.cc '#include "engine/ops/x.h"'
refused include "measure that calls ops" engine/measure/e.cc '#include "engine/ops/x.h"'
refused include "training that knows the command line" engine/train/t.cc '#include "engine/cli/options.h"'
refused include "engine that looks at the oracle" engine/ops/x.cc '#include "oracle/kda.h"'
refused include "engine that includes a check" engine/train/t.cc '#include "checks/compare.h"'
refused include "an oracle that shares a header with the engine" oracle/kda.h '#include "engine/base/dtype.h"'
refused include "an oracle that includes a check" oracle/kda.h '  #  include "checks/compare.h"'
refused include "a report that loads a model" reports/render.cc '#include "engine/model/m.h"'
refused include "a check that includes a report" checks/ops/x_check.cc '#include "reports/render.h"'
refused libraries "a formatting library in an op" engine/ops/x.cc '#include <fmt/format.h>'
refused libraries "a C library's header in an op" engine/ops/x.cc '#include <math.h>'
refused json "JSON in a header of another room" engine/base/math.h '#include <nlohmann/json.hpp>'
refused json "JSON in a header of a header" engine/base/lanes.h '#include <nlohmann/json.hpp>'
refused hdf5 "HDF5 in a reader" engine/model/m.cc '#include <hdf5.h>'
refused kernel "the standard library in a kernel" engine/ops/x_kernel.h '#include <vector>'
refused kernel "an op's header in a kernel" engine/ops/x_kernel.h '#include "engine/ops/matmul.h"'
refused pragma "a header without its guard" engine/model/m.h 'int m;'
refused lines "a file that does not fit in the head" oracle/kda.h "$(yes '//' | head -n 400)"
refused voice "iostream in the library" engine/model/m.cc '#include <iostream>'
refused voice "printing" engine/train/t.cc 'void p() { std::printf("step"); }'
refused voice "printing through fmt" engine/train/t.cc 'void p() { fmt::print("step"); }'
refused voice "printing past what makes it harmless" engine/cli/c.cc 'void p() { fmt::print("{}", name); }'
refused filesystem "a question that throws" engine/train/t.cc 'bool p() { return fs::exists(run / "log.jsonl"); }'
refused filesystem "a folder read by an iterator that throws" engine/store/dump.cc 'for (const auto& e : std::filesystem::directory_iterator(f)) {}'
refused voice "leaving" engine/store/dump.cc 'void p() { exit(1); }'
refused voice "reading the environment" engine/base/parallel.h 'int n = atoi(std::getenv("THREADS"));'
refused transcendental "std::exp" engine/train/t.cc 'double y = std::exp(1.0);'
refused transcendental "std::cos even in cli" engine/cli/main.cc 'double y = std::cos(1.0);'
refused transcendental "::tanh" engine/base/math.h 'double y = ::tanh(1.0);'
refused transcendental "expf" engine/ops/x_kernel.h 'float y = expf(1.0f);'
refused transcendental "exp, which is the one of <cmath> here" engine/ops/x.cc 'float y = 2 * exp(1.0f);'
refused transcendental "a using-declaration" engine/model/m.cc 'using std::log;'
refused parallel "OpenMP without the float mode" engine/ops/x.cc '#pragma omp parallel for'
refused flags "fast-math" CMakeLists.txt 'add_compile_options(-ffast-math)'
refused flags "one machine's instructions" CMakeLists.txt 'add_compile_options(-march=native)'
refused path "a home folder" README.md "see /$(printf home)/somebody/notes"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
