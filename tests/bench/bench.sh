#!/bin/sh
# gemm-bench against a daemon of its own, with one generated weight as INT8 and FP8.
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
  echo "== $format: one row, client and worker awake"
  "$build/gemm-bench" --weight "$format" --seconds 2 --compare inprocess
  echo
  echo "== $format: one row, the worker asleep before each call"
  "$build/gemm-bench" --weight "$format" --seconds 2 --pause 2000
  echo
  echo "== $format: 8 clients with 4 rows each, gathered"
  "$build/gemm-bench" --weight "$format" --seconds 2 --clients 8 --in-flight 4
  echo
done
