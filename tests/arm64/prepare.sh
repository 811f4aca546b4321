#!/bin/sh
# Fetches cmocka for arm64 into $1, from the archive that this machine installs from, and changes nothing else: its
# other architectures stay as they are.
set -eu
root=$1
[ ! -e "$root/usr/include/cmocka.h" ] || exit 0
command -v apt-get >/dev/null || { echo "prepare.sh: cmocka for arm64 comes by apt-get, which is not here" >&2; exit 1; }
mkdir -p "$root/lists/partial"
root=$(cd "$root" && pwd)
apt() {
  apt-get -qq -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root \
    -o "Dir::State::lists=$root/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
}
apt update
cd "$root"
apt download libcmocka0:arm64 libcmocka-dev:arm64
for package in *.deb; do
  dpkg-deb -x "$package" .
done
rm -rf lists ./*.deb
