#!/bin/bash
# The C program of the README and the commands below it, as they stand there: compiled, run against a daemon of their
# own, and what is printed compared with what the README says. Then the same program with the daemon embedded, and
# compiled by pkg-config against an installation.
set -eu
. "$(dirname "$0")/../support/daemon/daemon.sh"

# Stands for the clone in which the README's reader types.
ln -s "$root/client" "$work/client"
ln -s "$build" "$work/build"
cd "$work"

awk '/^## /{ inside = $0 == "## Call it from C" } inside' "$root/README.md" >section
awk '/^```$/ { code = 0 } code; /^```c$/ { code = 1 }' section >example.c
awk '/^```/ { code = !code; next } !code && sub(/^    /, "")' section >typed
grep -v '^y is' typed | grep -v pkg-config >commands
grep '^y is' typed >promised
grep pkg-config typed >packaged
[ -s example.c ] && [ "$(wc -l <commands)" -eq 4 ] && [ "$(wc -l <promised)" -eq 1 ] && [ "$(wc -l <packaged)" -eq 1 ]

# A program that uses a sanitized library must be sanitized itself. CC may be several words.
cc() { command ${CC:-cc} ${SANITIZE:+-fsanitize="$SANITIZE"} "$@"; }

expect_promised() {
  cat printed
  diff promised printed
}

while IFS= read -r command; do
  echo "\$ $command"
  if [ "${command%&}" != "$command" ]; then
    eval "$command"
    pids=$!
    # the reader types more slowly
    await $pids
  else
    eval "$command" >printed
  fi
done <commands
expect_promised
[ "$(build/gemmctl --socket "$work/gemmd.sock" --json weights | grep -c '"name": *"example"')" -eq 1 ]

GEMMD_SOCKET=embedded: ./example model.safetensors encoder.layer.0.intermediate.dense.weight >printed
expect_promised

# What is built is taken as it is.
MAKEFLAGS='' make -C "$root" --no-print-directory -s -o all install DESTDIR="$work/root" PREFIX=/opt/gemmd >/dev/null
rm example client build
export PKG_CONFIG_LIBDIR=$work/root/opt/gemmd/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root
eval "$(cat packaged)"
export LD_LIBRARY_PATH=$work/root/opt/gemmd/lib
GEMMD_SOCKET=$work/gemmd.sock ./example model.safetensors encoder.layer.0.intermediate.dense.weight >printed
expect_promised
