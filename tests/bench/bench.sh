#!/bin/bash
# gemm-bench against a daemon of its own, with one generated weight as INT8 and FP8.
set -eu
. "$(dirname "$0")/../support/daemon/daemon.sh"

"$build/gemm-demo" generate "$work/weights.safetensors" >/dev/null
tensor=encoder.layer.0.intermediate.dense.weight
"$build/gemmd" --socket "$GEMMD_SOCKET" --log-level warning &
pids=$!
await $pids
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
