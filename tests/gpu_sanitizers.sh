#!/bin/bash
# compute-sanitizer over the conformance programs on an NVIDIA GPU, the tests of test_conformance and test_variants each
# by itself: memcheck, synccheck and racecheck, or the tools named.
# Usage: tests/gpu_sanitizers.sh [TOOL...]; JOBS at a time (2: the tools want much of the GPU's memory), each ended after
# LIMIT_S (300); logs go to $LOGS. From the source tree or from an unpacked bundle. Last line: "N passed, N failed".
#
# A job passes where the program passed, the tool wrote its summary, and that has no error. It passes "in part" where
# the limit ended it and nothing was found until then, or where all that the tool reports is that it had no memory for
# some launches.
set -u
here=$(cd "$(dirname "$0")" && pwd)
programs=${GEMMD_BUILD:+$GEMMD_BUILD/tests}
programs=${programs:-$here}/conformance
LOGS=${LOGS:-$(mktemp -d)} LIMIT_S=${LIMIT_S:-300}
export LOGS LIMIT_S
mkdir -p "$LOGS"

# job NAME COMMAND...: runs it and prints one line.
job() {
  local name=$1 log=$LOGS/$1.log begin=$SECONDS verdict=failed code found unseen said ok
  shift
  timeout --kill-after=10 "$LIMIT_S" "$@" >"$log" 2>&1 </dev/null
  code=$?
  said=$(sed -n 's/^========= \(ERROR\|RACECHECK\) SUMMARY: //p' "$log" | tail -n 1)
  unseen=$(grep -c "^========= Internal Sanitizer Error: .* didn't track the launch" "$log")
  found=$(grep -cE '^========= (Error|Warning|Invalid|Internal|Program hit|Barrier|Divergent|Potential)' "$log")
  ok=$(grep -c '^\[       OK \]' "$log")
  if [ "$found" -eq "$unseen" ]; then
    # cmocka ends with 0 where what fails stands behind a group of tests.
    [ "$code" -eq 0 ] && [ "$ok" -gt 0 ] && [ -n "$said" ] && ! grep -q '^\[  FAILED  \]' "$log" && verdict=passed
    [ "$code" -eq 124 ] && grep -q '^\[ RUN ' "$log" && verdict='in part' said="ended by the limit of $LIMIT_S s"
    [ "$verdict" = passed ] && [ "$unseen" -gt 0 ] && verdict='in part' said="$unseen launches not seen"
  fi
  printf '%-52s %-8s %4d s  %3d tests  %s\n' "$name" "$verdict" $((SECONDS - begin)) "$ok" \
    "${said:-no summary, exit status $code}"
}
export -f job

# The suite in pieces, the longest first: "PROGRAM PATTERN".
pieces() {
  local program
  cat <<END
test_conformance test_long_k
test_conformance test_ragged_n_k
test_variants test_many_rows
test_variants test_variants
test_conformance test_types
test_conformance test_ragged_m
test_variants test_many_rows_fp8
test_conformance test_codes
test_conformance test_chains
test_conformance test_non_finite
test_conformance test_int8_extremes
test_conformance test_scales_at_the_ends
test_conformance test_usual_rows
test_conformance test_short_y
test_conformance test_non_finite_among_usual
END
  for program in "$programs"/test_*; do
    program=${program##*/}
    case $program in *.o | *.d | test_conformance | test_variants) ;; *) echo "$program *" ;; esac
  done
}

plan() {
  local tool program pattern options
  for tool in "$@"; do
    # test_memory asks for what the driver refuses. racecheck has no filter for kernels: with one it fails launches.
    [ "$tool" = memcheck ] && options='--report-api-errors no' || options=''
    while read -r program pattern; do
      echo "$tool-$program-${pattern//\*/all} compute-sanitizer --tool $tool $options $programs/$program cuda $pattern"
    done < <(pieces)
  done
}

[ $# -gt 0 ] || set -- memcheck synccheck racecheck
plan "$@" | xargs -P "${JOBS:-2}" -I{} bash -f -c 'job {}' | tee "$LOGS/table"
passed=$(grep -cE ' (passed|in part) ' "$LOGS/table") failed=$(grep -c ' failed ' "$LOGS/table")
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
