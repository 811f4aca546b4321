#!/bin/bash
# The ggml backend under llama.cpp and a gemmd of its own: models of each type by libllama, greedy tokens with and
# without gemmd, how many weights gemmd has; the same in a second process, which must load nothing; a KV cache on the
# device; then ggml's own test-backend-ops where the tree has it.
# Usage: ggml.sh TREE [arguments of test-backend-ops]; without arguments MUL_MAT. Last line: "N passed, N failed".
set -eu
ggml=$(cd "$1" && pwd)
shift
. "$(dirname "$0")/support/daemon/daemon.sh"
bin=$ggml/build/bin
export LD_LIBRARY_PATH="$bin"
backend="$build/libggml-gemmd.so"
passed=0 failed=0
: >"$work/gemmd.conf"
"$build/gemmd" --config "$work/gemmd.conf" --socket "$GEMMD_SOCKET" --backend "${GEMMD_TEST_BACKEND:-cpu}" 2>"$work/gemmd.log" &
pids=$!
await $pids

# check WHAT COMMAND...: counts, and says how it went.
check() {
  what=$1
  shift
  if "$@"; then passed=$((passed + 1)) && echo "$what: OK"; else failed=$((failed + 1)) && echo "$what: FAIL"; fi
}
same() { [ "$1" = "$2" ] || { echo "  expected: $2" && echo "  got:      $1" && false; }; }
loads() { grep -c 'loaded "ggml/' "$work/gemmd.log" || true; }
held() { ctl weights "ggml/*.$1.*" | grep -c '^ggml/' || true; }
# near A B: the logits differ by 2 % at most.
near() { awk -v a="$(tail -n 1 <<<"$1")" -v b="$(tail -n 1 <<<"$2")" 'BEGIN { d = a - b; exit !(b > 0 && d * d < (0.02 * b) ^ 2) }'; }
words() { head -n 1 <<<"$1"; }
# tokens TYPE [DEVICE]: what the model says, greedily, and the mean of the logits.
tokens() { "$build/ggml-generate" "$work/$1.gguf" ${2:+"$2"} 2>"$work/said"; }
line() { grep '^gemmd: has' "$work/said" || true; }

for type in f16 bf16 q8_0 q4_0 tq2_0 q4_1 q4_K; do
  "$build/ggml-make-model" "$work/$type.gguf" $type
  plain=$(tokens $type)
  before=$(loads)
  served=$(GGML_BACKEND_PATH=$backend tokens $type)
  echo "$type: $(line)"
  expected=29 # 7 of each of 4 layers, and the output
  case $type in q4_1 | q4_K) expected=0 ;; esac
  check "$type: says what gemmd has" grep -q "^gemmd: has $expected weights" "$work/said"
  check "$type: weights loaded" same $(($(loads) - before)) $expected
  check "$type: names in gemmd" same "$(held $type)" $expected
  check "$type: same tokens" same "$(words "$served")" "$(words "$plain")"
  check "$type: logits" near "$served" "$plain"
  [ $expected -eq 0 ] || [ "${GEMMD_TEST_BACKEND:-cpu}" != cpu ] ||
    check "$type: products in the process" grep -q "products of $expected in this process" "$work/said"
  before=$(loads)
  again=$(GGML_BACKEND_PATH=$backend tokens $type)
  check "$type: a second process loads nothing" same $(($(loads) - before)) 0
  check "$type: and says the same" same "$again" "$served"
done
check "what stays is named" grep -q '29 q4_K' "$work/said"

# gemmd keeps equal content once, and what `gemmctl load` makes of the file has ggml's values.
ctl load "$work/q4_0.gguf" --tensor model.layers.0.mlp.up_proj.weight --format int4a8 --name of-the-file >"$work/loaded"
check "q4_0: the file's codes and scales" grep -q shared "$work/loaded"

# Layers on the device put the KV cache there.
plain=$(tokens f16)
served=$(GGML_BACKEND_PATH=$backend tokens f16 GEMMD)
check "all layers on the device: same tokens" same "$(words "$served")" "$(words "$plain")"
check "all layers on the device: weights" grep -q '^gemmd: has 29 weights' "$work/said"

if [ -x "$bin/llama-bench" ]; then
  GGML_BACKEND_PATH=$backend "$bin/llama-bench" -m "$work/f16.gguf" -p 16 -n 4 -r 1 -t 2 -dev GEMMD -ngl 99 \
    >"$work/bench" 2>"$work/said" || cat "$work/said"
  check "--device GEMMD -ngl 99" grep -q 'tg4' "$work/bench"
fi

GGML_BACKEND_PATH=$backend "$build/ggml-test-model" >"$work/model" 2>&1 || true
grep -E ': (OK|FAIL)$' "$work/model" || cat "$work/model"
check "weights that are written to" [ "$(grep -c ': OK$' "$work/model")" -eq 4 ]

if [ -x "$bin/test-backend-ops" ]; then
  [ $# -gt 0 ] || set -- -o MUL_MAT
  code=0
  GGML_BACKEND_PATH=$backend "$bin/test-backend-ops" test -b GEMMD "$@" >"$work/ops" 2>&1 || code=$?
  sed 's/\x1b\[[0-9;]*m//g' "$work/ops" >"$work/plain"
  grep -E ': FAIL|^gemmd:|NMSE' "$work/plain" | head -n 40 || true
  echo "types computed: $(grep ': OK$' "$work/plain" | grep -o 'type_a=[a-z0-9_]*' | sort | uniq -c | tr '\n' ' ')"
  check "test-backend-ops" [ $code -eq 0 ]
  check "it computes some" grep -q ': OK$' "$work/plain"
fi
# Servers, which are killed under: llama.cpp's where the tree has it, else llama-cpp-python's where $PYTHON has that.
if [ -x "$bin/llama-server" ] || "${PYTHON:-/usr/bin/python3}" -c 'import llama_cpp' >/dev/null 2>&1; then
  GGML=$ggml GGML_MAKE_MODEL=$build/ggml-make-model GEMMD_BUILD=$build \
    "${PYTHON:-/usr/bin/python3}" -B "$(dirname "$0")/python/test_llama_server.py" 2>&1 | tee "$work/servers"
  check "servers" grep -q '^OK' "$work/servers"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
