#!/bin/bash
# libgemmclient-direct exports gemmd_direct_* alone, asks for no library of CUDA, and has the CUDA runtime to itself.
set -u
build=${GEMMD_BUILD:-build}
library=$build/libgemmclient-direct.so.0
failed=0

complain() {
  echo "$1"
  failed=1
}

others=$(nm -D --defined-only "$library" | awk '{ print $3 }' | grep -v '^gemmd_direct_' | grep -vx 'GEMMD_0')
[ -z "$others" ] || complain "it exports $(echo $others | head -c 500)"
nm -D --defined-only "$library" | grep -q ' gemmd_direct_matmul' || complain "it does not export gemmd_direct_matmul"

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
echo "$needed" | grep -q '^libgemmclient\.so\.0$' || complain "it does not link libgemmclient"
strangers=$(echo "$needed" | grep -vE '^(libgemmclient\.so\.0|lib(c|m|dl|pthread|rt|gcc_s|asan|ubsan|tsan)\.so\.[0-9]+|ld-linux.*)$')
[ -z "$strangers" ] || complain "it needs $strangers"

# what a function of the public header says is there
for name in $(grep -ohE '\bgemmd_direct_[a-z_]+\(' client/gemmclient_direct.h | tr -d '(' | sort -u); do
  nm -D --defined-only "$library" | grep -q " $name@" || complain "the header has $name, the library does not"
done
exit $failed
