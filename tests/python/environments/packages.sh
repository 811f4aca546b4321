#!/bin/sh
# usage: packages.sh NAME PACKAGE...: .cache/NAME is a virtual environment with the packages from PyPI. Prints why not; exit 1.
set -eu
cd "$(dirname "$0")/../../.."
environment=.cache/$1
shift
[ -f "$environment/complete" ] && exit
echo "installing $* from PyPI into $environment"
/usr/bin/python3 -m venv --clear "$environment" || { echo "this needs Debian's python3-venv" >&2; exit 1; }
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@" ||
  { echo "PyPI cannot be reached" >&2; exit 1; }
touch "$environment/complete"
