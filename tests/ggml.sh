#!/bin/bash
# ggml's own test-backend-ops over the ggml backend and a gemmd of its own, then a model of two layers, twice: the second
# process must find its weights there. Usage: ggml.sh GGML-TREE [arguments of test-backend-ops]; without arguments
# MUL_MAT, which is what the backend computes. Last line: "N passed, N failed".
set -eu
ggml=$(cd "$1" && pwd)
shift
. "$(dirname "$0")/support/daemon.sh"
export GGML_BACKEND_PATH="$build/libggml-gemmd.so" LD_LIBRARY_PATH="$ggml/build/src"
: >"$work/gemmd.conf"
"$build/gemmd" --config "$work/gemmd.conf" --socket "$GEMMD_SOCKET" --backend "${GEMMD_TEST_BACKEND:-cpu}" 2>"$work/gemmd.log" &
pids=$!
await $pids
[ $# -gt 0 ] || set -- -o MUL_MAT
"$ggml/build/bin/test-backend-ops" test -b GEMMD "$@" >"$work/log" 2>&1 || code=$?
sed 's/\x1b\[[0-9;]*m//g' "$work/log" >"$work/plain"
passed=$(grep -c ': OK$' "$work/plain" || true)
failed=$(grep -c ': FAIL' "$work/plain" || true)
grep -E ': FAIL|^gemmd:|NMSE' "$work/plain" | head -n 40 || true
echo "types computed: $(grep ': OK$' "$work/plain" | grep -o 'type_a=[a-z0-9_]*' | sort | uniq -c | tr '\n' ' ')"
echo "left to the CPU: $(grep -c 'not supported' "$work/plain" || true)"
loads() { grep -c 'loaded "ggml/\(up\|down\)' "$work/gemmd.log" || true; }
for expected in 3 0; do # up, down, and up again after it was written to
  before=$(loads)
  (cd "$ggml/build/bin" && "$build/ggml-test-model") >"$work/model" 2>&1 || cat "$work/model"
  echo "a model: $(tail -n +1 "$work/model" | grep -E ': (OK|FAIL)$' | tr '\n' ' ')weights loaded: $(($(loads) - before))"
  passed=$((passed + $(grep -c ': OK$' "$work/model" || true)))
  failed=$((failed + $(grep -c ': FAIL$' "$work/model" || true)))
  if [ $(($(loads) - before)) -eq "$expected" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
[ "${code:-0}" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
[ "$passed" -gt 0 ] || failed=$((failed + 1))
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
