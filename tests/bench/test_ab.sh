#!/bin/bash
# A build against itself: every case gets its line, a mean above what is allowed is told by the exit status, and so is a
# program that is none.
set -u
. "$(dirname "$0")/../support/daemon/daemon.sh"
failures=0

# expect CODE TEXT ARGUMENTS...: the exit status, and a text that must be in what is said.
expect() {
  local code=$1 text=$2 said got
  shift 2
  said=$("$root/tests/bench/ab.py" "$@" 2>&1)
  got=$?
  if [ "$got" -ne "$code" ] || [[ "$said" != *"$text"* ]]; then
    echo "ab.py $*: exit $got, \"$said\"; expected $code, \"$text\""
    failures=$((failures + 1))
  fi
}

small=(--formats int8,int2 --shapes 64x64,32x256 --m 1,3 --turns 1)
short=(-- --rounds 1 --burst-ms 1 --cold-mib 0 --threads 1)
expect 0 'int2 group 32x256 M 3' kernels "$build" "$build/gemm-bench" "${small[@]}" "${short[@]}"
expect 0 'kernels, all:' kernels "$build" "$build" "${small[@]}" "${short[@]}"
expect 1 '8 cases' kernels "$build" "$build" "${small[@]}" --most 0.000001 "${short[@]}"
expect 2 'int3 is no format' kernels "$build" "$build" --formats int3 "${short[@]}"
expect 0 'calls, overhead:' calls "$build" "$build" --formats int8 --shapes 64x64 --m 2 --turns 1 --seconds 0.1 -- \
  --warmup 0
[ "$failures" -eq 0 ]
