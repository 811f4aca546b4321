#!/bin/sh
# What is linked from what: gemmd and gemm-bench stand alone, tests share one libgemmkernels.so, and no library shows
# more than its own symbols. Looks at what is built in $GEMMD_BUILD.
cd "$(dirname "$0")/.." || exit 2
build=${GEMMD_BUILD:-build}
found=0

complain() {
  echo "$1"
  found=1
}

# without the versions and their names
exported() { nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }'; }
needs() { readelf -d "$1" | grep -qF "[$2]"; }

# gemmd executes itself, and a library beside it may be that of a newer build by then
for program in gemmd gemm-bench; do
  needs "$build/$program" libc.so.6 || complain "$program cannot be read"
  needs "$build/$program" libgemmkernels.so && complain "$program does not start without libgemmkernels.so"
done
needs "$build/tests/conformance/test_conformance" libgemmkernels.so || complain "libgemmkernels.so is not shared"
for test in $(find "$build/tests" -type f -name 'test_*' -perm -u+x); do
  nm --defined-only "$test" | grep -qw cpu_backend && complain "$test has kernels of its own"
done

exported "$build/libgemmkernels.so" | grep -qx cpu_backend || complain "libgemmkernels.so lacks cpu_backend"
leaks=$(exported "$build/libgemmkernels.so" | grep -E '^(_Z|__cuda|cuda[A-Z]|cu[A-Z]|__fatbin)' | head -n 5 | tr '\n' ' ')
[ -z "$leaks" ] || complain "libgemmkernels.so exports what is not of kernels/: $leaks"

others=$(exported "$build/libgemmclient.so" | grep -v '^gemmd_')
[ -z "$others" ] || complain "libgemmclient.so exports $others"
exported "$build/libgemmclient.so" | grep -qx gemmd_connect || complain "libgemmclient.so lacks gemmd_connect"
others=$(nm -g --defined-only "$build/libgemmclient.a" | awk 'NF == 3 { print $3 }' | grep -v '^gemmd_')
[ -z "$others" ] || complain "libgemmclient.a shows $others"

exit $found
