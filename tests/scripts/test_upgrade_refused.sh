#!/bin/bash
# An upgrade to what would not start costs nothing: the gemmd that runs goes on with its weights, and takes the next one.
set -eu
. "$(dirname "$0")/../support/daemon/daemon.sh"
cd "$work"

upgrade() { "$build/gemmd" --upgrade --socket "$GEMMD_SOCKET" 2>>upgrade.log; }
# Replaced as a package manager does it: the program that runs keeps its file.
replace() { chmod +x "$1" && mv "$1" program; }
# refused REASON: so the upgrade ends, and all is as it was.
refused() {
  ! upgrade || { echo "an upgrade was made, and not refused: $1"; exit 1; }
  grep -q "$1" gemmd.log || { echo "the log does not say: $1"; exit 1; }
  ctl weights | grep -q '^kept ' || { echo "the weights are gone after: $1"; exit 1; }
  : >gemmd.log
}

cp "$build/gemmd" fresh
cp fresh new && replace new
echo "backend = cpu" >gemmd.conf
./program --config gemmd.conf --socket "$GEMMD_SOCKET" --slab_bytes 2097152 2>>gemmd.log &
pids=$!
await $pids
"$build/gemm-demo" generate model.safetensors >/dev/null
ctl load model.safetensors --tensor encoder.layer.0.attention.output.dense.weight --format int8 --name kept >/dev/null

echo "bakend = cpu" >gemmd.conf
refused 'gemmd.conf:1: unknown option "bakend"'
echo "use_group = there-is-no-such-group" >gemmd.conf
refused 'there is no group "there-is-no-such-group"'
echo "tune_pins = no kernel" >gemmd.conf
refused 'PATTERN=KERNEL is expected'
printf 'backend = cpu\ncpu_pin = everywhere\n' >gemmd.conf
refused 'cpu_pin '
echo "backend = cuda" >gemmd.conf
[ -e /dev/nvidiactl ] || refused 'libcuda\|not in this build'
echo "backend = cpu" >gemmd.conf
printf '#!%s/nowhere\n' "$work" >new && replace new
refused 'cannot be executed: no such file or directory'
printf '#!/bin/sh\nkill -SEGV $$\n' >new && replace new
refused 'with --check was ended by signal 11'

cp fresh new && replace new
upgrade
grep -q '1 weight under 1 name taken over' gemmd.log
ctl weights | grep -q '^kept '
kill -0 $pids # in place
