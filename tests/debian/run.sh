#!/bin/bash
# The sources in other releases of Debian than this machine's: run.sh SUITE... For each a Debian of its own with what
# `deploy/deps.sh build test` names there, in which gemmd is built and the tests that TESTS names are run (by default a
# few that take part in everything). Needs root, mmdebstrap and a mirror; in there is no network. The last line: "N
# passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${GEMMD_BUILD:-build}")
if [ "$(id -u)" -ne 0 ]; then
  echo "test-debian: a Debian in a folder of its own takes root" >&2
  exit 1
fi
programs="unit/proto/wire/test_message unit/proto/shm/test_ring unit/kernels/cpu/test_micro end_to_end/test_serve
  end_to_end/test_gemmctl"
tests="${TESTS:-$(printf 'build/tests/%s ' $programs) tests/python/test_client.py}"
passed=0 failed=0
root=
trap '[ -z "$root" ] || rm -rf "$root"' EXIT
mkdir -p "$build/debian"

# make_image SUITE FILE: the packages by the list of that release itself.
make_image() {
  # shellcheck disable=SC2016
  mmdebstrap --quiet --format=tar --variant=apt --customize-hook='copy-in deploy/deps.sh /var/tmp' \
    --customize-hook='chroot "$1" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq make' \
    --customize-hook='chroot "$1" env DEBIAN_FRONTEND=noninteractive /var/tmp/deps.sh build test' \
    "$1" "$2.new" && mv "$2.new" "$2"
}

# inside SUITE: builds and tests what lies in $root/source.
inside() {
  # shellcheck disable=SC2016
  timeout --kill-after=10 "${TEST_LIMIT_S:-3600}" unshare --mount --pid --net --fork --kill-child sh -c '
    mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev" && mkdir "$0/dev/shm" "$0/dev/pts" &&
      mount -t tmpfs tmpfs "$0/dev/shm" || exit 1
    for node in null zero full random urandom; do touch "$0/dev/$node" && mount --bind "/dev/$node" "$0/dev/$node"; done
    ln -s /proc/self/fd "$0/dev/fd"
    exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TESTS="$1" sh -c "
      cd /source && make all \$(echo \$TESTS | tr \" \" \"\n\" | grep ^build/) && tests/run.sh \$TESTS"' \
    "$root" "$tests" </dev/null
}

for suite in "${@:-trixie}"; do
  image=$build/debian/$suite-$(md5sum <deploy/deps.sh | cut -c1-8).tar
  log=$build/debian/$suite.log
  [ -s "$image" ] || make_image "$suite" "$image" || exit 1
  root=$(mktemp -d /var/tmp/gemmd-debian-XXXXXX)
  tar -C "$root" -xf "$image" --exclude='./dev/*' || exit 1
  mkdir "$root/source"
  git ls-files -z | tar -c --null -T - | tar -x -C "$root/source" || exit 1
  echo "== $suite: Debian $(cat "$root/etc/debian_version")"
  inside "$suite" >"$log" 2>&1
  line=$(grep -oE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
  if [ -n "$line" ]; then
    grep -E ' passed +[0-9]+ failed' "$log"
    passed=$((passed + ${line%% *}))
    line=${line#*, }
    failed=$((failed + ${line%% *}))
  else
    failed=$((failed + 1))
    tail -n 40 "$log" | sed 's/^/    /'
  fi
  rm -rf "$root"
  root=
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
