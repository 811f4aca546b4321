#!/bin/bash
# The wheel of `make wheel` as its user has it: a Debian with Python and no compiler, no gemmd, no library of gemmd's;
# `pip install`, then the first example of client/python's README with a gemmd of its own, and gemmd and gemmctl as
# commands. Needs root, and the packages of `deploy/deps.sh wheel`. The last line: "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${GEMMD_BUILD:-build}")
if [ "$(id -u)" -ne 0 ]; then
  echo "test-wheel: a Debian in a folder of its own takes root" >&2
  exit 1
fi
. /etc/os-release
image=$build/wheel/$VERSION_CODENAME.tar
[ -s "$image" ] || mmdebstrap --quiet --variant=minbase --include=python3,python3-pip "$VERSION_CODENAME" "$image" || exit 1
# what the wheel depends on, fetched here: there is no network in there
needed=$build/wheel/needed
[ -d "$needed" ] || /usr/bin/python3 -m pip download --quiet --only-binary=:all: --dest "$needed" cffi numpy ||
  { rm -rf "$needed"; exit 1; }

root=$(mktemp -d /var/tmp/gemmd-wheel-XXXXXX)
trap 'rm -rf "$root"' EXIT
tar -C "$root" -xf "$image" --exclude='./dev/*' || exit 1
mkdir -p "$root/stage/wheels"
cp "$build"/wheel/*.whl "$needed"/*.whl "$root/stage/wheels/"
cp tests/wheel/inside.sh tests/wheel/make_models.py "$root/stage/"
/usr/bin/python3 tests/wheel/example.py client/python/README.md >"$root/stage/example.py" || exit 1

# namespaces of its own: mounts, processes and network end with it
# shellcheck disable=SC2016
timeout --kill-after=10 "${TEST_LIMIT_S:-300}" unshare --mount --pid --net --fork --kill-child sh -c '
  mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev" && mkdir "$0/dev/shm" "$0/dev/pts" &&
    mount -t tmpfs tmpfs "$0/dev/shm" || exit 1
  for node in null zero random urandom; do touch "$0/dev/$node" && mount --bind "/dev/$node" "$0/dev/$node"; done
  ln -s /proc/self/fd "$0/dev/fd"
  exec chroot "$0" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/stage LANG=C.UTF-8 bash /stage/inside.sh' "$root" </dev/null
