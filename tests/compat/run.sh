#!/bin/bash
# Version 0.1.0 as its commit has it, rebuilt without the cuda backend, beside this tree: its client library and tools
# against today's daemon, today's against its daemon, its programs with today's shared library, and an upgrade in place
# that keeps weights and tunings. Last line: "compat: N passed, N failed"; without that history it says so and exits 0.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here" || exit 2
old_commit=8b55bbf9dee9b962afe984360a7c2ebee832f227
new=$(cd "${GEMMD_BUILD:-build}" && pwd) || exit 1
old=$new/compat/$old_commit
if ! git rev-parse -q --verify "$old_commit^{commit}" >/dev/null 2>&1; then
  echo "compat: this checkout has no commit ${old_commit:0:7} (a shallow one, or no checkout): nothing is compared"
  exit 0
fi

work=$(mktemp -d) || exit 1
daemon= passed=0 failed=0
stop() {
  [ -n "$daemon" ] && kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
  daemon=
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export GEMMD_SOCKET=$work/gemmd.sock

# ok WHAT COMMAND...: one test; its output is shown where it fails.
ok() {
  local what=$1
  shift
  if "$@" >"$work/output" 2>&1; then
    passed=$((passed + 1))
    echo "  ok      $what"
  else
    failed=$((failed + 1))
    echo "  FAILED  $what: $*"
    tail -n 12 "$work/output" | sed 's/^/          /'
  fi
}

build_old() {
  [ -x "$old/build/gemm-demo" ] && return
  echo "compat: building ${old_commit:0:7} in $old"
  mkdir -p "$old" && git archive "$old_commit" | tar x -C "$old" &&
    make -C "$old" -j"$(nproc)" NVCC= BUILD=build build/gemmd build/gemmctl build/libgemmclient.so build/libgemmclient.a \
      build/gemm-bench build/gemm-demo >"$old.log" 2>&1 ||
    { tail -n 20 "$old.log"; echo "compat: version 0.1.0 cannot be built here"; exit 1; }
}

# start PROGRAM: a daemon of that version, with the state directory of all of this.
start() {
  cat >"$work/gemmd.conf" <<CONF
backend = cpu
socket = $GEMMD_SOCKET
state_dir = $work/state
CONF
  mkdir -p "$work/state"
  "$1" --config "$work/gemmd.conf" >>"$work/gemmd.log" 2>&1 &
  daemon=$!
  for _ in $(seq 300); do
    "$new/gemmctl" ping >/dev/null 2>&1 && return
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  echo "compat: $1 does not answer"
  tail -n 20 "$work/gemmd.log"
  exit 1
}

# load CTL DEMO: every tensor in three formats, which is what `gemm-demo check` multiplies with.
load() {
  local tensor format
  for tensor in $("$2" list "$work/model.safetensors"); do
    for format in int8 fp8 int2; do
      "$1" load "$work/model.safetensors" --tensor "$tensor" --format "$format" --name "$tensor.$format" || return 1
    done
  done
}

# hashes CTL: name and content of every weight.
hashes() { "$1" --json weights | grep -oE '"(name|hash)": *"[^"]*"' | sort; }

# beside WHAT CTL DEMO BENCH: a client of one version at the daemon that runs.
beside() {
  ok "$1: status" "$2" status
  ok "$1: loads" load "$2" "$3"
  ok "$1: products" "$3" check "$work/model.safetensors"
  ok "$1: lists" "$2" weights
  ok "$1: metrics" "$2" metrics
  ok "$1: tunings" "$2" tune list
  ok "$1: unloads" "$2" unload "$("$3" list "$work/model.safetensors" | head -n 1).int8"
}

build_old
"$new/gemm-demo" generate "$work/model.safetensors" >/dev/null || exit 1

start "$new/gemmd"
beside "0.1.0's client, today's daemon" "$old/build/gemmctl" "$old/build/gemm-demo"
stop
rm -rf "$work/state"
start "$old/build/gemmd"
beside "today's client, 0.1.0's daemon" "$new/gemmctl" "$new/gemm-demo"
stop
rm -rf "$work/state"

# the program is another one by the time that gemmd executes it again
cp "$old/build/gemmd" "$work/gemmd"
start "$work/gemmd"
ok "upgrade: loads" load "$old/build/gemmctl" "$old/build/gemm-demo"
ok "upgrade: products before" "$old/build/gemm-demo" check "$work/model.safetensors"
hashes "$new/gemmctl" >"$work/before"
cp "$new/gemmd" "$work/gemmd.next" && mv "$work/gemmd.next" "$work/gemmd"
ok "upgrade: in place" "$work/gemmd" --upgrade --socket "$GEMMD_SOCKET"
for _ in $(seq 300); do
  "$new/gemmctl" ping >/dev/null 2>&1 && break
  sleep 0.1
done
hashes "$new/gemmctl" >"$work/after"
ok "upgrade: the process is the same" kill -0 "$daemon"
ok "upgrade: the program is today's" cmp "/proc/$daemon/exe" "$new/gemmd"
ok "upgrade: there are weights" grep -q hash "$work/before"
ok "upgrade: weights and their contents stay" cmp "$work/before" "$work/after"
ok "upgrade: products behind it" "$new/gemm-demo" check "$work/model.safetensors"
ok "upgrade: 0.1.0's client goes on" "$old/build/gemm-demo" check "$work/model.safetensors"
stop

# what 0.1.0's libraries export is there, and its programs run with today's
exported() { nm -D --defined-only "$1" | awk '$2 ~ /[TDBR]/ { print $3 }' | sort; }
# Fails where there is one.
missing() { comm -23 <(exported "$old/build/libgemmclient.so") <(exported "$new/libgemmclient.so.0") | { ! grep .; }; }
ok "library: nothing is gone from libgemmclient.so.0" missing
shared() {
  gcc -o "$work/demo" "$old"/build/obj/tests/demo/*.o "$old"/build/obj/client/tool/*.o -L"$old/build" -lgemmclient \
    -ljansson -lm -lpthread && LD_LIBRARY_PATH=$new "$work/demo" check "$work/model.safetensors"
}
start "$new/gemmd"
ok "library: loads" load "$new/gemmctl" "$new/gemm-demo"
ok "library: 0.1.0's program with today's" shared
stop
echo "compat: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
