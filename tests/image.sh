#!/bin/bash
# The image of `make image` in namespaces of its own: the image's command as the image's user, a product, the metrics, its
# end. Takes root, and the packages of `deploy/deps.sh image`. usage: image.sh LAYOUT VERSION. The last line: "N passed, N
# failed".
set -u
layout=$(realpath "$1") version=$2
work=$(mktemp -d /var/tmp/gemmd-image-XXXXXX)
root=$work/bundle/rootfs
trap 'kill "$container" 2>/dev/null; wait; rm -rf "$work"' EXIT
container=
passed=0 failed=0

check() {
  local what=$1
  shift
  if "$@" >"$work/check.log" 2>&1; then
    echo "ok - $what"
    passed=$((passed + 1))
  else
    echo "not ok - $what"
    tail -n 20 "$work/check.log" | sed 's/^/    /'
    failed=$((failed + 1))
  fi
}
of_image() { # a value of the image's configuration, as a runtime reads it
  python3 -c 'import json, sys; print(eval("json.load(open(sys.argv[1]))" + sys.argv[2]))' "$work/bundle/config.json" "$1"
}
inside() { nsenter --target "$gemmd" --all --root="$root" --setuid "$user" --setgid "$group" "$@"; }
serves() {
  for _ in $(seq 300); do
    gemmd=$(pgrep -P "$container" | head -n 1) && [ -n "$gemmd" ] && inside /usr/bin/gemmctl ping && return
    sleep 0.1
  done
  cat "$work/log"
  return 1
}
ends() {
  kill -TERM "$gemmd"
  for _ in $(seq 200); do
    kill -0 "$container" 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}

check "the image unpacks" umoci unpack --image "$layout:$version" "$work/bundle"
user=$(of_image '["process"]["user"]["uid"]') group=$(of_image '["process"]["user"]["gid"]')
command=$(of_image '["process"]["args"]' | tr -d "[]',")
check "it names a user and a group that are not root's" [ "$user:$group" = 64100:64100 ]
# shellcheck disable=SC2016,SC2086
unshare --mount --pid --net --ipc --fork --kill-child sh -c '
  mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev" && mkdir -m 1777 "$0/dev/shm" || exit 1
  for node in null zero random urandom; do touch "$0/dev/$node" && mount --bind "/dev/$node" "$0/dev/$node"; done
  user=$1 group=$2
  shift 2
  exec chroot --userspec="$user:$group" --groups= "$0" "$@"' "$root" "$user" "$group" $command >"$work/log" 2>&1 </dev/null &
container=$!
check "its command serves" serves
gemmd=$(pgrep -P "$container" | head -n 1)
check "a product on every device is right" inside /usr/bin/gemmctl ping --deep
inside /usr/bin/gemmctl metrics >"$work/metrics" 2>&1
check "metrics are there" grep -q '^gemmd_' "$work/metrics"
check "it ends when it is asked to" ends
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
