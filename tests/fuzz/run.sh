#!/bin/bash
# Runs every fuzz target over its kept corpus (corpus/TARGET.tar, unpacked beside the program), FUZZ_S seconds in all
# (60 if not set), FUZZ_JOBS at a time (a processor each if not set), and says how often each ran. What it finds is left
# beside the program. With FUZZ_KEEP=yes, inputs that reach something new go into the kept corpus: the archive is
# written anew, the same bytes for the same inputs. The last line: "N passed, N failed", a target being one.
set -u
build=${GEMMD_BUILD:-build} passed=0 failed=0
cd "$(dirname "$0")/../.." || exit 2
targets=(tests/fuzz/fuzz_*.c)
seconds=$((${FUZZ_S:-60} / ${#targets[@]}))
[ "$seconds" -gt 0 ] || seconds=1 # 0 is for ever
jobs=${FUZZ_JOBS:-$(nproc)}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

# pack FOLDER ARCHIVE
pack() {
  (cd "$1" && printf '%s\n' * | LC_ALL=C sort) | tar -C "$1" --no-recursion --format=ustar --mtime=@0 \
    --owner=0 --group=0 --numeric-owner --mode=0644 -cf "$2.new" -T - && mv "$2.new" "$2"
}

fuzz() {
  local name=$1 program=$build/fuzz/$1 work=$build/fuzz/corpus-$1
  local archive=tests/fuzz/corpus/$1.tar kept=$build/fuzz/kept-$1
  rm -rf "$kept"
  mkdir -p "$work" "$kept"
  # a target without its corpus fails, but where the first one is made
  if [ -e "$archive" ] || [ "${FUZZ_KEEP:-}" != yes ]; then
    tar -xf "$archive" -C "$kept" >"$build/fuzz/$name.log" 2>&1 || return
  fi
  nice -n 19 "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=1 \
    -artifact_prefix="$build/fuzz/found-$name-" "$work" "$kept" >"$build/fuzz/$name.log" 2>&1 &
  trap 'kill $! 2>/dev/null' TERM
  wait $!
  local code=$?
  echo $code >"$build/fuzz/$name.status"
  if [ "${FUZZ_KEEP:-}" = yes ] && [ $code -eq 0 ]; then
    "$program" -merge=1 "$kept" "$work" >>"$build/fuzz/$name.log" 2>&1 &&
      pack "$kept" "$archive"
  fi
}

for source in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  name=$(basename "$source" .c)
  rm -f "$build/fuzz/$name.status"
  fuzz "$name" &
done
wait
for source in "${targets[@]}"; do
  name=$(basename "$source" .c)
  code=$(cat "$build/fuzz/$name.status" 2>/dev/null || echo 1)
  runs=$(sed -nE 's/^stat::number_of_executed_units: ([0-9]+)/\1/p' "$build/fuzz/$name.log" | tail -n 1)
  covered=$(sed -nE 's/.* cov: ([0-9]+) .*/\1/p' "$build/fuzz/$name.log" | tail -n 1)
  printf '%-20s %12s runs %8s edges %6d s %s\n' "$name" "${runs:-?}" "${covered:-?}" "$seconds" \
    "$([ "$code" -eq 0 ] || echo FAILED)"
  if [ "$code" -eq 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -n 40 "$build/fuzz/$name.log" | sed 's/^/    /'
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
