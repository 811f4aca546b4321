#!/bin/bash
# gemm-bench kernels on the CPU: every format passes its gate, files of cases are read, mistakes are told.
set -u
. "$(dirname "$0")/../support/daemon/daemon.sh"
failures=0
short=(kernels --backend cpu --peer none --rounds 1 --burst-ms 1 --cold-mib 0 --threads 1)

# expect CODE TEXT ARGUMENTS...: the exit status, and a text that must be in what is said.
expect() {
  local code=$1 text=$2 said got
  shift 2
  said=$("$build/gemm-bench" "${short[@]}" "$@" 2>&1)
  got=$?
  if [ "$got" -ne "$code" ] || [[ "$said" != *"$text"* ]]; then
    echo "gemm-bench kernels $*: exit $got, \"$said\"; expected $code, \"$text\""
    failures=$((failures + 1))
  fi
}

# Odd sizes; a y that is off would be refused.
for format in int8 fp8 int2 int2a8 f16 bf16 int4 int4a8 mxfp4; do
  expect 0 "$format" --formats "$format" --shapes 37x141 --m 1,5 --y-type bf16
done
for format in int8 fp8 int2; do
  expect 0 "$format" --formats "$format" --shapes 37x141 --m 3 --y-type f16 --bias
done
expect 0 '"scale": "block"' --formats fp8 --scale block --shapes 130x300 --m 2 --x-type e4m3 --json
expect 0 '"scale": "one"' --formats int8 --scale one --shapes 130x300 --m 70 --x-type int8 --y-type s32 --json
expect 0 '"experts": 5' --formats int8,fp8,int2,bf16 --shapes 37x140 --m 1,6 --experts 5 --top 2 --json
expect 0 "5 of    37 x   140  T  5  M     3    5.0 hit" --formats int8 --shapes 37x140 --m 3 --experts 5 --top 5 --zipf 1
expect 0 "int8" --formats int8 --shapes 37x141 --m 3 --clock cpu
expect 2 "--clock cpu is of one thread" --clock cpu --threads 2
expect 2 "--clock cpu is of one thread" --clock cpu --experts 2
expect 2 "--top is at most what --experts is" --experts 2 --top 3
expect 2 "--sorted is of --experts on the cuda backend" --sorted --experts 2
printf '# formats shapes M\nint8 64x64 1\n\nfp8,int2 32x256 2,3 # two\n' >"$work/cases"
expect 0 'int2   group     32 x   256  M     3' --file "$work/cases"
expect 2 "got: int8 64x64" --file <(echo int8 64x64)
expect 2 "there is nothing to measure in it" --file <(echo '# nothing')
expect 2 "--file takes the place" --file "$work/cases" --m 1
expect 2 "$work/none: No such file or directory" --file "$work/none"
expect 2 "or group32-bf16-zeros-f16, got group16" --scale group16
expect 2 "--m: 0 is no number of 1..16777216" --m 0
expect 2 "--shapes: 3 is no NxK" --shapes 3
expect 2 "--formats: int3 is no format" --formats int3
expect 2 "are for the cuda backend" --plot "$work/plot.svg"
expect 1 "a weight of int8 does not take x of e4m3 and y of f32" --formats int8 --x-type e4m3
# A library that lacks a type is a row that says what it computes in its place, where there is a library.
if ldconfig -p | grep -q 'libdnnl\.so\.2'; then
  short=(kernels --backend cpu --rounds 1 --burst-ms 1 --cold-mib 0 --threads 1)
  export DNNL_MAX_CPU_ISA=AVX2
  expect 0 "oneDNN f32" --formats fp8,bf16 --shapes 64x64 --m 2
  expect 0 "oneDNN s8" --formats int8 --shapes 64x64 --m 2
fi
[ "$failures" -eq 0 ]
