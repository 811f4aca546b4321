#!/bin/sh
# Installs the Debian or Ubuntu packages that are missing, for the groups named: build, test, demo, check,
# fuzz, systemd, deb, arm64, wheel, image.
# Prints what it installs. Where it may not install, or is told not to (--say), it prints the command to run and exits 1.
set -eu

packages_build="gcc g++ make pkg-config libc6-dev libuv1-dev libjansson-dev libb2-dev libhwloc-dev \
  libmicrohttpd-dev libncurses-dev"
packages_test="libcmocka-dev libdnnl-dev python3 python3-numpy python3-cffi"
packages_demo="python3 python3-pip"
packages_fuzz="clang libclang-rt-14-dev"
packages_deb="build-essential debhelper dpkg-dev fakeroot lintian"
packages_systemd="mmdebstrap systemd-container procps"
packages_wheel="python3 python3-setuptools python3-wheel python3-pip mmdebstrap"
packages_image="mmdebstrap umoci python3 procps"
packages_check="clang-format cppcheck git python3"
packages_arm64="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"

# msgpack-c's C headers: a package of their own since Ubuntu 24.04 and Debian 13.
if apt-cache show libmsgpack-c-dev >/dev/null 2>&1; then
  packages_build="$packages_build libmsgpack-c-dev"
else
  packages_build="$packages_build libmsgpack-dev"
fi

say=
if [ "${1:-}" = --say ]; then
  say=yes
  shift
fi
[ $# -gt 0 ] || { echo "usage: deps.sh [--say] build|test|demo|check|fuzz|systemd|deb|arm64|wheel|image ..." >&2; exit 2; }
wanted=
for group; do
  case $group in
    build) wanted="$wanted $packages_build" ;;
    test) wanted="$wanted $packages_test" ;;
    demo) wanted="$wanted $packages_demo" ;;
    fuzz) wanted="$wanted $packages_fuzz" ;;
    deb) wanted="$wanted $packages_deb" ;;
    systemd) wanted="$wanted $packages_systemd" ;;
    wheel) wanted="$wanted $packages_wheel" ;;
    image) wanted="$wanted $packages_image" ;;
    check) wanted="$wanted $packages_check" ;;
    arm64) wanted="$wanted $packages_arm64" ;;
    *) echo "deps.sh: no group $group" >&2; exit 2 ;;
  esac
done

# What is there already, by whatever package, is not asked for again.
have() {
  case $1 in
    gcc | g++ | make | pkg-config | clang-format | cppcheck | git) command -v "$1" >/dev/null ;;
    python3) [ -x /usr/bin/python3 ] ;; # the system's, for which the packages below are
    python3-pip) python3 -m pip --version >/dev/null 2>&1 ;;
    *) dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed' ;;
  esac
}

missing=
for package in $wanted; do
  have "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "gemmd needs:$missing (Debian's names); install them by this system's package manager" >&2
  exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ] || [ -n "$say" ]; then
  if [ -z "$say" ] && command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=sudo
  else
    echo "gemmd needs packages that are not installed. Please run:" >&2
    echo "  sudo apt-get install$missing" >&2
    exit 1
  fi
fi
echo "deps: installing$missing"
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
