#!/bin/bash
# Runs every fuzz target over its kept corpus, FUZZ_S seconds in all (60 if not set), one after the other, and says how
# often each ran. What it finds is left beside the program. With FUZZ_KEEP=yes, inputs that reach something new go into
# the kept corpus. The last line: "N passed, N failed", a target being one.
set -u
build=${GEMMD_BUILD:-build} passed=0 failed=0
cd "$(dirname "$0")/../.." || exit 2
targets=(tests/fuzz/fuzz_*.c)
seconds=$((${FUZZ_S:-60} / ${#targets[@]}))
[ "$seconds" -gt 0 ] || seconds=1 # 0 is for ever
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
for source in "${targets[@]}"; do
  name=$(basename "$source" .c) program=$build/fuzz/$(basename "$source" .c)
  kept=tests/fuzz/corpus/$name
  work=$build/fuzz/corpus-$name
  mkdir -p "$work" "$kept"
  nice -n 19 "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=1 \
    -artifact_prefix="$build/fuzz/found-$name-" "$work" "$kept" >"$build/fuzz/$name.log" 2>&1
  code=$?
  runs=$(sed -nE 's/^stat::number_of_executed_units: ([0-9]+)/\1/p' "$build/fuzz/$name.log" | tail -n 1)
  covered=$(sed -nE 's/.* cov: ([0-9]+) .*/\1/p' "$build/fuzz/$name.log" | tail -n 1)
  printf '%-20s %12s runs %8s edges %6d s %s\n' "$name" "${runs:-?}" "${covered:-?}" "$seconds" \
    "$([ $code -eq 0 ] || echo FAILED)"
  if [ $code -eq 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -n 40 "$build/fuzz/$name.log" | sed 's/^/    /'
  fi
  if [ "${FUZZ_KEEP:-}" = yes ] && [ $code -eq 0 ]; then
    "$program" -merge=1 "$kept" "$work" >>"$build/fuzz/$name.log" 2>&1
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
