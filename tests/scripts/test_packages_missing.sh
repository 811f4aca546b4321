#!/bin/bash
# What somebody sees whose machine lacks the packages of a build: which they are, and one command that installs them,
# before anything is compiled; and nothing is installed for that.
set -eu
cd "$(dirname "$0")/../.."
[ -f Makefile ] || exit 0 # an unpacked bundle builds nothing
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
printf '#!/bin/sh\nexit 1\n' >"$bare/dpkg-query" # nothing is installed
printf '#!/bin/sh\necho "apt-get must not be run" >&2\nexit 9\n' >"$bare/apt-get"
chmod +x "$bare"/*
said=$(PATH=$bare:$PATH PKG_CONFIG_LIBDIR=$bare make BUILD="$bare/build" all 2>&1) && exit 1
for words in 'pkg-config does not find: libuv' 'apt-get install' libuv1-dev libjansson-dev libb2-dev 'deps.sh build'; do
  case $said in *"$words"*) ;; *) echo "make does not say '$words': $said"; exit 1 ;; esac
done
case $said in *'must not be run'* | *'  CC '*) echo "make went on: $said"; exit 1 ;; esac
said=$(PATH=$bare:$PATH deploy/deps.sh --say test 2>&1) && exit 1
case $said in *'apt-get install'*libcmocka-dev*) ;; *) echo "deps.sh --say: $said"; exit 1 ;; esac
