#!/bin/bash
# Runs test programs (cmocka, or unittest by $PYTHON) and scripts, TEST_JOBS at a time (3 if not set: many wait more than
# they compute), each under a time limit, and adds up. Says how long each took, and of that the time of processors. A
# program that ends by a signal, or by the limit, counts as one more failure; a script counts as one test. Last line: "N
# passed, N failed". Exit 1 where anything failed.
set -u
export GEMMD_BUILD=${GEMMD_BUILD:-build}
export ASAN_OPTIONS=${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-die_after_fork=0} # tests fork, and their children start threads
logs=$GEMMD_BUILD/tests/log
counts=$(mktemp -d) || exit 1
trap 'rm -rf "$counts"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
mkdir -p "$logs"
sanitizer=$(ldd "$GEMMD_BUILD/libgemmclient.so.0" 2>/dev/null | awk '/lib[at]san/ { print $3 }')
# They slow loops down, the one of threads tenfold.
case $sanitizer in *tsan*) limit=3600 ;; *asan*) limit=900 ;; *) limit=300 ;; esac
limit=${TEST_LIMIT_S:-$limit}

# run TEST LOG: its exit status is that of the test.
run() {
  local command
  case $1 in
    # A library built with a sanitizer wants the sanitizer loaded before it. Python itself leaves memory at its end.
    *.py) command=(env LD_PRELOAD="$sanitizer" ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" "${PYTHON:-/usr/bin/python3}" -B "$1") ;;
    *) command=(${TEST_RUN:-} "$1") ;; # what runs programs of another processor, and its arguments
  esac
  timeout --kill-after=10 "$limit" "${command[@]}" >"$2" 2>&1 </dev/null &
  trap 'kill $! 2>/dev/null' TERM
  wait $!
}

# count TEST LOG STATUS: sets ok, bad and skipped.
count() {
  skipped=0
  case $1 in
    *.py)
      ok=$(sed -n 's/^Ran \([0-9]*\) tests\? in .*/\1/p' "$2" | tail -n 1)
      skipped=$(grep -c ' \.\.\. skipped ' "$2")
      bad=$(grep -cE '^(FAIL|ERROR): ' "$2")
      if [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
      ok=$((${ok:-0} > bad + skipped ? ok - bad - skipped : 0))
      if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$skipped" -eq 0 ]; then bad=1; fi
      ;;
    *.sh)
      ok=0 bad=1
      [ "$3" -eq 0 ] && ok=1 bad=0
      ;;
    *)
      ok=$(grep -c '^\[       OK \]' "$2")
      # cmocka names each failed test twice: when it fails and in its summary. What fails behind a group of tests it
      # names once, and ends with 0.
      bad=$(grep -E '^\[  FAILED  \] ([a-z0-9_]*|GROUP (SETUP|TEARDOWN))$' "$2" | sort -u | wc -l)
      skipped=$(grep '^\[  SKIPPED \] [a-z0-9_]*$' "$2" | sort -u | wc -l)
      if [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
      if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && [ "$skipped" -eq 0 ]; then bad=1; fi
      ;;
  esac
}

report() {
  printf '%-44s %4d passed %3d failed %4d s, %3d s of processors\n' "$1" "$ok" "$bad" "$4" "$5"
  if [ "$skipped" -ne 0 ]; then
    sed -n "s/.* \.\.\. skipped [\"']\(.*\)[\"']\$/\1/p" "$2" | sort | uniq -c | sed 's/^/    skipped /'
    sed -n 's/^\[  SKIPPED \] \([a-z0-9_]*\)$/\1/p' "$2" | sort -u | sed 's/^/    skipped /'
  fi
  if [ "$bad" -ne 0 ]; then
    [ "$3" -eq 124 ] && echo "    ended by the limit of $limit s"
    tail -n 60 "$2" | sed 's/^/    /'
  fi
}

# computed FILE: whole seconds of processors in what `times` has written for a shell's children.
computed() {
  awk -F '[ms ]' 'NR == 2 { printf "%d", $1 * 60 + $2 + $4 * 60 + $5 + 0.5 }' "$1"
}

# one TEST NUMBER
one() {
  local name=${1##*tests/} begin=$SECONDS code log ok bad skipped
  log=$logs/${name//\//-}.log
  run "$1" "$log"
  code=$?
  times >"$counts/times-$2"
  count "$1" "$log" "$code"
  echo "$ok $bad" >"$counts/$2"
  report "$name" "$log" "$code" $((SECONDS - begin)) "$(computed "$counts/times-$2")" >"$counts/report-$2"
  cat "$counts/report-$2" # in one piece
}

number=0
for test in "$@"; do
  while [ "$(jobs -rp | wc -l)" -ge "${TEST_JOBS:-3}" ]; do wait -n; done
  number=$((number + 1))
  one "$test" $number &
done
wait
passed=0 failed=0
for ((i = 1; i <= number; i++)); do
  read -r ok bad <"$counts/$i" || ok=0 bad=1
  passed=$((passed + ok)) failed=$((failed + bad))
  # once more at the end, where who reads only that finds it
  [ "$bad" -eq 0 ] || sed 's/^[^ ]/failed: &/' "$counts/report-$i"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
