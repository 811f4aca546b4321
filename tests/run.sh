#!/bin/bash
# Runs test programs (cmocka, or unittest by $PYTHON) and scripts one after the other, each under a time limit, and adds
# up. A program that ends by a signal, or by the limit, counts as one more failure; a script counts as one test.
# Last line: "N passed, N failed". Exit 1 where anything failed.
set -u
export GEMMD_BUILD=${GEMMD_BUILD:-build}
export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-die_after_fork=0} # tests fork, and their children start threads
logs=$GEMMD_BUILD/tests/log
mkdir -p "$logs"
passed=0 failed=0
sanitizer=$(ldd "$GEMMD_BUILD/libgemmclient.so.0" 2>/dev/null | awk '/lib[at]san/ { print $3 }')
case $sanitizer in *tsan*) limit=${TEST_LIMIT_S:-1200} ;; *) limit=${TEST_LIMIT_S:-300} ;; esac # it slows loops down tenfold

for test in "$@"; do
  name=$(basename "$test")
  log=$logs/$name.log
  begin=$SECONDS
  skipped=0
  case $test in
    # A library built with a sanitizer wants the sanitizer loaded before it. Python itself leaves memory at its end.
    *.py) command=(env LD_PRELOAD="$sanitizer" ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" "${PYTHON:-/usr/bin/python3}" -B "$test") ;;
    *) command=(${TEST_RUN:-} "$test") ;; # what runs programs of another processor, and its arguments
  esac
  timeout --kill-after=10 "$limit" "${command[@]}" >"$log" 2>&1 </dev/null
  code=$?
  case $test in
    *.py)
      ok=$(sed -n 's/^Ran \([0-9]*\) tests\? in .*/\1/p' "$log" | tail -n 1)
      skipped=$(grep -c ' \.\.\. skipped ' "$log")
      bad=$(grep -cE '^(FAIL|ERROR): ' "$log")
      if [ $code -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
      ok=$((${ok:-0} > bad + skipped ? ok - bad - skipped : 0))
      if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$skipped" -eq 0 ]; then bad=1; fi
      ;;
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
  if [ "$skipped" -ne 0 ]; then
    sed -n "s/.* \.\.\. skipped [\"']\(.*\)[\"']\$/\1/p" "$log" | sort | uniq -c | sed 's/^/    skipped /'
  fi
  if [ "$bad" -ne 0 ]; then
    [ $code -eq 124 ] && echo "    ended by the limit of $limit s"
    tail -n 60 "$log" | sed 's/^/    /'
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
