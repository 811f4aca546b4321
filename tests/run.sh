#!/bin/bash
# Runs test programs (cmocka) and scripts one after the other, each under a time limit, and adds up.
# A program that ends by a signal, or by the limit, counts as one more failure; a script counts as one test.
# Last line: "N passed, N failed". Exit 1 where anything failed.
set -u
limit=${TEST_LIMIT_S:-300}
export GEMMD_BUILD=${GEMMD_BUILD:-build}
export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
logs=$GEMMD_BUILD/tests/log
mkdir -p "$logs"
passed=0 failed=0

for test in "$@"; do
  name=$(basename "$test")
  log=$logs/$name.log
  begin=$SECONDS
  timeout --kill-after=10 "$limit" "$test" >"$log" 2>&1 </dev/null
  code=$?
  case $test in
    *.sh)
      ok=0 bad=1
      [ $code -eq 0 ] && ok=1 bad=0
      ;;
    *)
      ok=$(grep -c '^\[       OK \]' "$log")
      # cmocka names each failed test twice: when it fails and in its summary.
      bad=$(grep '^\[  FAILED  \] [a-z0-9_]*$' "$log" | sort -u | wc -l)
      if [ $code -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
      if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
      ;;
  esac
  passed=$((passed + ok)) failed=$((failed + bad))
  printf '%-40s %4d passed %3d failed %4d s\n' "$name" "$ok" "$bad" $((SECONDS - begin))
  if [ "$bad" -ne 0 ]; then
    [ $code -eq 124 ] && echo "    ended by the limit of $limit s"
    tail -n 60 "$log" | sed 's/^/    /'
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
