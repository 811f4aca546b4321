#!/bin/bash
# What is seen of gemmd from outside: metrics by command line, by HTTP on a port and on a Unix socket, ping --deep, top,
# and the log's lines about refusals. Numbers are compared with what was asked for.
set -eu
. "$(dirname "$0")/../support/daemon/daemon.sh"
cd "$work"

start() {
  "$build/gemmd" --socket "$GEMMD_SOCKET" --backend cpu --slab_bytes 2097152 "$@" 2>>gemmd.log &
  daemon=$!
  pids="$pids $daemon"
  await $daemon
}
get() { python3 "$root/tests/support/system/http_get.py" "$@"; }
worker() { ctl status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["devices"][0]["pid"])'; }
# number NAME-WITH-LABELS: its value
number() { awk -v name="$1" 'index($0, name " ") == 1 { print $NF }' text; }
equal() { [ "$2" = "$3" ] || { echo "$1: $2 where $3 is expected"; exit 1; }; }
# refused COMMAND...: it must fail, and not by a signal
refused() {
  local code=0
  "$@" 2>why || code=$?
  [ $code -ne 0 ] && [ $code -lt 128 ] || { echo "$*: exit status $code"; exit 1; }
}

start
"$build/gemm-demo" generate model.safetensors >/dev/null
ctl load model.safetensors --tensor encoder.layer.0.intermediate.dense.weight --format int8 --name w >/dev/null
head -c $((5 * 384 * 4)) /dev/zero >x
for i in 1 2 3; do ctl matmul w --x x --y y >/dev/null; done
refused ctl unload nothing
ctl metrics >text
equal requests "$(number 'gemmd_request_seconds_count{device="0",format="int8"}')" 3
equal buckets "$(number 'gemmd_request_seconds_bucket{device="0",format="int8",le="+Inf"}')" 3
equal rows "$(number 'gemmd_product_rows_bucket{device="0",le="4"}')" 0
equal rows "$(number 'gemmd_product_rows_bucket{device="0",le="8"}')" 3
equal sum "$(number 'gemmd_product_rows_sum{device="0"}')" 15
equal refusals "$(number 'gemmd_refusals_total{at="control",reason="NOT_FOUND"}')" 1
equal loads "$(number 'gemmd_command_seconds_count{command="weight_load"}')" 1
equal unloads "$(number 'gemmd_command_seconds_count{command="weight_unload"}')" 1
equal sessions "$(number gemmd_sessions)" 1
grep -q '^gemmd_tune_shapes{device="0",state="[a-z]*"} 1$' text
# the format: every sample stands below a TYPE of its family
awk '/^# TYPE/ { type[$3] = 1; next } /^#/ { next } { name = $1; sub(/[{].*/, "", name); base = name
  sub(/_(bucket|sum|count)$/, "", base); if (!type["gemmd_" base] && !type[name] && !type[base]) { print "no type: " $0; exit 1 } }' text

# what a worker had counted when it was last asked outlives it
kill -9 "$(worker)"
ctl matmul w --x x --y y >/dev/null
ctl metrics >text
equal restarts "$(awk '/^gemmd_device_restarts_total/ { print $NF }' text)" 1
equal requests "$(number 'gemmd_request_seconds_count{device="0",format="int8"}')" 4

# health
ctl ping --deep | grep -q '^device 0 computes'
ctl ping --deep --json | grep -q '"ns"'
equal weights "$(ctl weights --json | grep -c '"name":')" 1

# each device by itself, also where several look at once
GEMMD_SOCKET=$work/two
"$build/gemmd" --socket "$GEMMD_SOCKET" --backend cpu --devices 2 2>two.log &
pids="$pids $!"
await $!
pings=
for i in 1 2 3 4; do
  (for j in 1 2 3 4 5; do ctl ping --deep >/dev/null || exit 1; done) &
  pings="$pings $!"
done
for ping in $pings; do wait "$ping"; done
ctl metrics >text
for i in 0 1; do equal "rows of device $i" "$(number "gemmd_product_rows_sum{device=\"$i\"}")" 60; done
if unshare -fp true 2>/dev/null; then # as from containers, in which process ids are alike
  pings=
  for i in 1 2 3; do
    (
      for j in 1 2 3 4 5 6 7 8; do unshare -fp "$build/gemmctl" ping --deep >/dev/null || exit 1; done
      unshare -fp "$build/gemmctl" tune --microbench --bench-m 64 --bench-n 256 --bench-k 256 >/dev/null
    ) &
    pings="$pings $!"
  done
  for ping in $pings; do wait "$ping"; done
fi
GEMMD_SOCKET=$work/gemmd.sock

# by HTTP
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$build/gemmctl" metrics --listen "$work/http" 2>http.log &
pids="$pids $!"
"$build/gemmctl" metrics --listen "$port" 2>port.log &
pids="$pids $!"
for where in "$work/http" "$port"; do
  until get "$where" /metrics >got 2>/dev/null; do for pid in $pids; do kill -0 "$pid"; done; done
  head -n 1 got | grep -q '^200 text/plain; version=0.0.4'
  grep -q '^gemmd_device_ready{device="0",.*} 1$' got
done
get "$work/http" /other | grep -q '^404'
get "$work/http" /metrics POST | grep -q '^405'
for where in "$work/http" "$port"; do
  python3 "$root/tests/support/system/http_noise.py" "$where"
  get "$where" /metrics >got
  head -n 1 got | grep -q '^200'
done
for wrong in 0 70000 0.0.0.0:9400 '[::]:9400' example.org:1 ''; do refused ctl metrics --listen "$wrong"; done
for served in "$work/http" "$GEMMD_SOCKET"; do
  refused timeout 60 "$build/gemmctl" metrics --listen "$served"
  grep -q 'Address already in use' why
done
get "$work/http" /metrics | grep -q '^200'
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$work/left"
"$build/gemmctl" metrics --listen "$work/left" 2>left.log &
left=$!
pids="$pids $left"
until get "$work/left" /metrics >got 2>/dev/null; do kill -0 $left; done
kill $left
wait $left
[ ! -e "$work/left" ]
echo kept >file
refused ctl metrics --listen "$work/file"
equal file "$(cat file)" kept

# top draws, on a terminal of its own
if command -v script >/dev/null; then
  TERM=xterm script -qec "stty cols 140 rows 30; $build/gemmctl top --count 2 --interval-ms 100" screen </dev/null >/dev/null
  grep -aq 'PRODUCT/S' screen && grep -aq 'int8' screen
fi
refused ctl top
grep -q 'takes a terminal' why

# the log: fields
grep -q 'nothing.*\[session=[0-9]* uid=[0-9]* client=gemmctl.* request=weight_unload reason=NOT_FOUND\]' gemmd.log
refused ctl unload $'esc\x1b[31m, C1 \xc2\x9b31m, a letter \xc3\xa4' # no sequences for terminals
grep -q $'named "esc?\\[31m, C1 ??31m, a letter \xc3\xa4"' gemmd.log

# a gemmd that is gone: the exporter says so, and finds the next one
kill "$daemon"
wait "$daemon" || true
get "$work/http" /metrics | grep -q '^503'
refused ctl ping --deep
start --worker_restarts_max 0 --worker_pause_s 86400
get "$work/http" /metrics | grep -q '^200'
kill -9 "$(worker)"
until ctl status --json | grep -q '"state": *"failed"'; do kill -0 "$daemon"; done
refused ctl ping --deep
ctl ping >/dev/null
ctl metrics | grep -q '^gemmd_device_ready{device="0",.*} 0$'
ctl metrics | grep -q '^gemmd_device_down_seconds{device="0",.*} [0-9.]*[1-9]'
ctl status | grep -q '^device 0 has not served for .* process [0-9]* was ended by signal 9 (Killed); it is tried again in'
grep -q 'worker 0: its device has failed (process [0-9]* was ended by signal 9 (Killed)); restart 1 follows in' gemmd.log
refused ctl device mend
refused ctl device retry x
ctl device retry 0 | grep -q '^1 device is started again'
until ctl status --json | grep -q '"state": *"ready"'; do kill -0 "$daemon"; done
ctl ping --deep
