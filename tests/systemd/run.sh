#!/bin/bash
# Boots a minimal Debian with a real systemd in a container, with gemmd's packages of `make deb` installed in it, and runs
# inside.sh there. Needs root, and the packages of `deploy/deps.sh systemd`. GEMMD_KILLS (12): how often it kills gemmd
# under load. The last line: "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${GEMMD_BUILD:-build}")
if [ "$(id -u)" -ne 0 ]; then
  echo "test-systemd: a container with a systemd of its own takes root" >&2
  exit 1
fi
. /etc/os-release
packages=systemd,systemd-sysv,dbus,passwd,procps,util-linux,libmicrohttpd12,python3-minimal,libmsgpack-dev,libjansson-dev
for object in gemmd gemmctl; do
  for library in $(ldd "$build/$object" | awk '$3 ~ /^\// { print $3 }'); do
    package=$(dpkg-query -S "$(realpath "$library")" 2>/dev/null | head -n 1 | cut -d: -f1)
    case ,$packages, in *,"$package",*) ;; *) packages=$packages,$package ;; esac
  done
done
image=$build/systemd-$VERSION_CODENAME-$(echo "$packages" | md5sum | cut -c1-8).tar
[ -s "$image" ] || mmdebstrap --quiet --variant=minbase --include="$packages" "$VERSION_CODENAME" "$image" || exit 1

root=$(mktemp -d /var/tmp/gemmd-systemd-XXXXXX)
mounted=
clean() {
  [ -z "$mounted" ] || umount /run/systemd/nspawn
  rm -rf "$root"
}
trap clean EXIT
tar -C "$root" -xf "$image" --exclude='./dev/*' || exit 1
cp "$build"/deb/gemmd_*.deb "$build"/deb/libgemmclient*_*.deb "$root/var/tmp/" || exit 1
rm -f "$root"/var/tmp/*-dbgsym_*.deb
chroot "$root" sh -c 'dpkg --install /var/tmp/gemmd_*.deb /var/tmp/libgemmclient*.deb' >"$root/var/tmp/install.log" 2>&1 ||
  { cat "$root/var/tmp/install.log"; exit 1; }
echo 'backend = cpu' >>"$root/etc/gemmd/gemmd.conf"
install -Dm755 tests/systemd/inside.sh "$root/usr/local/sbin/inside"
rm -f "$root/etc/machine-id" "$root/etc/resolv.conf"
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id" # else the first boot would enable all units
cat >"$root/etc/systemd/system/inside.service" <<END
[Unit]
Description=What is to be found out
After=dbus.service
[Service]
Environment=GEMMD_KILLS=${GEMMD_KILLS:-12}
ExecStart=/usr/local/sbin/inside
ExecStopPost=/usr/bin/systemctl --no-block --force poweroff
[Install]
WantedBy=multi-user.target
END

mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../inside.service "$root/etc/systemd/system/multi-user.target.wants/inside.service"

# Where the folder cannot hold a socket, as on some file systems of containers, it is a tmpfs for the time.
if ! mountpoint -q /run/systemd/nspawn 2>/dev/null; then
  mkdir -p /run/systemd/nspawn && mount -t tmpfs tmpfs /run/systemd/nspawn && mounted=yes
fi
timeout --kill-after=10 "${TEST_LIMIT_S:-$((300 + 3 * ${GEMMD_KILLS:-12}))}" systemd-nspawn -q -D "$root" --register=no --keep-unit --boot \
  --kill-signal=SIGRTMIN+3 </dev/null >"$root/console" 2>&1
if ! grep -q 'passed, .* failed$' "$root/result" 2>/dev/null; then
  tail -n 40 "$root/console"
  cat "$root/result" 2>/dev/null
  echo "0 passed, 1 failed"
  exit 1
fi
cat "$root/result"
tail -n 1 "$root/result" | grep -q ' 0 failed$'
