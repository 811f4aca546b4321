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
number() { # of the key $1 in the JSON object on stdin, where it comes first
  sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" | head -n 1
}
scaled() { # $1 times $2
  awk -v a="$1" -v b="$2" 'BEGIN { printf "%.0f", a * b }'
}
keeps_up() { # whether products at rate $1 end as fast as they are asked for; the rest are options
  rate=$1
  shift
  had=$("$build/gemm-bench" "$@" --seconds 0.5 --rate "$rate" --json | number rows_per_s)
  awk -v had="$had" -v rate="$rate" 'BEGIN { exit had < 0.98 * rate }'
}
highest() { # the highest rate that keeps up, below $1 products/s, to a sixty-fourth of that
  most=$1 low=0
  shift
  step=$(scaled "$most" 0.5)
  for _ in 1 2 3 4 5 6; do
    keeps_up $((low + step)) "$@" && low=$((low + step))
    step=$((step / 2))
  done
  echo "$low"
}
tail_at_70_percent() { # of what the options' clients can have
  closed=$("$build/gemm-bench" "$@" --seconds 1 --json | number rows_per_s)
  most=$(highest "$(scaled "$closed" 1)" "$@")
  [ "$most" -gt 0 ] || { echo "no rate keeps up, of $closed rows/s where each product waits for another"; return 0; }
  "$build/gemm-bench" "$@" --seconds 3 --rate "$(scaled "$most" 0.7)" | tee "$work/tail"
  awk -v most="$most" -v closed="$closed" '$1 == "latency" {
    printf "asked for at random times; the highest rate that keeps up is %d of %d rows/s; p99.9 is %.1f times p50\n", most, closed, $4 / $2 }' "$work/tail"
}
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
  echo "== $format: one client at 70 % of the highest rate that it can have"
  tail_at_70_percent --weight "$format" --in-flight 16
  echo
done
