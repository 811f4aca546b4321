#!/bin/sh
# A make that misses packages names them and the command that installs them before it compiles anything, and what needs
# no package works without.
cd "$(dirname "$0")/.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=0

complain() {
  echo "$1"
  found=1
}

# make_without GOAL: make, where pkg-config knows of nothing but what is in $work/known
make_without() {
  env MAKEFLAGS= PKG_CONFIG_PATH= PKG_CONFIG_LIBDIR="$work/known" make --no-print-directory "$1" >"$work/said" 2>&1
}

# expect TEXT: all is refused with it, and nothing is compiled.
expect() {
  make_without all && complain "make all succeeds without packages"
  grep -qF "$1" "$work/said" || complain "make all lacks '$1': $(cat "$work/said")"
  grep -qF 'deploy/deps.sh build' "$work/said" || complain "make all names no command: $(cat "$work/said")"
  grep -qE '^  (CC|NVCC|LINK|AR) ' "$work/said" && complain "make all compiles: $(cat "$work/said")"
}

mkdir "$work/known"
expect ': libuv msgpack jansson libb2 hwloc libmicrohttpd ncursesw'
for package in libuv msgpack jansson hwloc libmicrohttpd ncursesw; do
  printf 'Name: %s\nDescription: there\nVersion: 9\n' "$package" >"$work/known/$package.pc"
done
expect ': libb2'
make_without help || complain "make help needs packages"

exit $found
