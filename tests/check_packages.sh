#!/bin/bash
# What `make install` puts somewhere goes into one Debian package each, the packages ask for nothing else, and
# `make uninstall` leaves nothing but a configuration that was changed.
set -u
cd "$(dirname "$0")/.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=0

complain() {
  echo "$1"
  found=1
}

# As a packager calls it, and not as a part of the make that may run this.
install_to() { make --no-print-directory "$1" PREFIX=/usr LIBDIR=/usr/lib/triplet DESTDIR="$work/root" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }
left() { (cd "$work/root" && find . ! -type d | cut -c3- | sort); }

install_to install
left >"$work/files"
[ -s "$work/files" ] || complain "make install installs nothing"

# PATTERN PACKAGE of every line; a pattern is a file, a folder or a glob
for list in deploy/debian/*.install; do
  package=$(basename "$list" .install)
  grep -q "^Package: $package\$" deploy/debian/control || complain "$list: deploy/debian/control has no such package"
  while read -r pattern _; do echo "$pattern $package"; done <"$list"
done >"$work/patterns"

: >"$work/used"
while read -r file; do
  packages=
  while read -r pattern package; do
    # shellcheck disable=SC2254 # it is a pattern
    case $file in $pattern | $pattern/*)
      packages="$packages $package"
      echo "$pattern" >>"$work/used" ;;
    esac
  done <"$work/patterns"
  set -- $packages
  [ $# -eq 1 ] || complain "$file: is in $# packages:$packages"
done <"$work/files"
while read -r pattern package; do
  grep -qFx "$pattern" "$work/used" || complain "$package: $pattern matches nothing that is installed"
done <"$work/patterns"

install_to uninstall
[ -z "$(left)" ] || complain "make uninstall leaves $(left | tr '\n' ' ')"
install_to install
echo "in_flight = 1" >>"$work/root/etc/gemmd/gemmd.conf"
install_to uninstall
[ "$(left)" = etc/gemmd/gemmd.conf ] || complain "make uninstall leaves '$(left)', not gemmd.conf that was changed"

exit $found
