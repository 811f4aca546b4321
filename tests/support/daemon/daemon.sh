# For bash scripts that run what was built: where that is, a folder, and a gemmd of their own. Sourced, as
#
#   set -eu
#   . "$(dirname "$0")/../support/daemon/daemon.sh"
#
# $root and $build: this tree and what is built of it. $work: goes when the script ends, and with it the processes whose
# ids were added to $pids; where the script failed, the last lines of *.log in it are shown before.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
build=$(cd "${GEMMD_BUILD:-$root/build}" && pwd)
work=$(mktemp -d)
export GEMMD_SOCKET=$work/gemmd.sock
pids=

finish() {
  code=$?
  for pid in $pids; do kill "$pid" 2>/dev/null && wait "$pid" || true; done
  [ $code -eq 0 ] || tail -n 20 "$work"/*.log 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

ctl() { "$build/gemmctl" "$@"; }

# await PID: until that gemmd answers; a socket is there before it does. False where it has ended.
await() {
  until ctl ping >/dev/null 2>&1; do
    kill -0 "$1" || return 1
  done
}
