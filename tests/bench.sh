#!/bin/sh
# gemm-bench against a daemon of its own: one generated weight as INT8 and FP8, one client and two.
set -eu
build=${GEMMD_BUILD:-build}
work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
export GEMMD_SOCKET="$work/gemmd.sock"

"$build/gemm-demo" generate "$work/weights.safetensors" >/dev/null
tensor=encoder.layer.0.intermediate.dense.weight
"$build/gemmd" --socket "$GEMMD_SOCKET" --log-level warning &
daemon=$!
tries=0
until "$build/gemmctl" ping >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 1000 ] || { echo "bench: gemmd does not answer" >&2; exit 1; }
  kill -0 "$daemon"
done
for format in int8 fp8; do
  "$build/gemmctl" load "$work/weights.safetensors" --tensor "$tensor" --format "$format" --name "$format" >/dev/null
  for clients in 1 2; do
    "$build/gemm-bench" --weight "$format" --m 1 --clients "$clients" --seconds 2
  done
done
