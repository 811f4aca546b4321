#!/bin/sh
# usage: wheel.sh PROGRAMS LIBRARIES OUT: makes OUT/gemmclient-*.whl of client/python with what is in the two folders
# (gemmd and gemmctl; libgemmclient*.so.0 and what they need). The wheel's tag names the oldest glibc that has all that
# these ask for, so that pip refuses it where they could not start.
set -eu
cd "$(dirname "$0")/.."
programs=$1 libraries=$2 out=$3
staged=$out/staged native=$out/staged/gemmclient/native

rm -rf "$staged" "$out"/*.whl
mkdir -p "$native" "$staged/gemmclient/_torch"
cp client/python/pyproject.toml client/python/README.md "$staged/"
cp client/python/gemmclient/*.py client/python/gemmclient/py.typed "$staged/gemmclient/"
cp client/python/gemmclient/_torch/*.py "$staged/gemmclient/_torch/"
cp client/gemmclient.h client/gemmclient_cuda.h client/gemmclient_direct.h "$staged/gemmclient/"
cp LICENSE "$staged/"
# gemmd beside the library is where an embedded one is looked for
cp -L "$programs/gemmd" "$programs/gemmctl" "$libraries"/libgemmclient*.so.0 "$libraries"/libjansson.so.4 "$native/"
strip --strip-unneeded "$native"/*
cat >>"$staged/pyproject.toml" <<END

[project.scripts]
gemmd = "gemmclient._native:gemmd"
gemmctl = "gemmclient._native:gemmctl"
END
sed -i 's|"py.typed"\]|"py.typed", "native/*"]|' "$staged/pyproject.toml"

glibc=$(objdump -T "$native"/* | grep -oE 'GLIBC_2\.[0-9]+' | sort -u -t. -k2n | tail -n 1 | cut -d_ -f2 | tr . _)
printf '[bdist_wheel]\nplat_name = manylinux_%s_%s\n' "$glibc" "$(uname -m)" >"$staged/setup.cfg"
(cd "$staged" && /usr/bin/python3 -c 'import setuptools; setuptools.setup()' -q bdist_wheel --dist-dir ..) \
  >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
rm -rf "$staged"
