#!/bin/bash
# For which GPUs `make CUDA_ARCH=...` has device code compiled, as the commands say that it would run; the compiler and
# nvidia-smi are stood in for.
set -eu
cd "$(dirname "$0")/../.."
[ -f Makefile ] || exit 0 # an unpacked bundle builds nothing
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
printf '#!/bin/sh\necho --fdevice-syntax-only\n' >"$bare/nvcc"
printf '#!/bin/sh\nprintf "9.0\\n8.9\\n"\n' >"$bare/nvidia-smi"
chmod +x "$bare"/*

# compiles WORD EXPECTED: code of a kernel for all devices, of one that converts FP8, and of one of Hopper's, and
# whether that is only parsed
compiles() {
  local found file files='' objects=''
  for file in kernels/cuda/{weight/checksum,passes/quantize,families/sm90/int4/scales}.cu; do
    files="$files -W $file" objects="$objects build/obj/$file.o"
  done
  found=$(PATH=$bare:$PATH make -n -j1 V=1 NVCC="$bare/nvcc" NVCC_FAST= ${1:+CUDA_ARCH="$1"} $files $objects |
    grep -oE -- 'code=[^ ]+|-fdevice-syntax-only' | sed 's/code=//' | tr '\n' ' ')
  [ "$found" = "$2 " ] || { echo "CUDA_ARCH=$1: '$found' for '$2'"; exit 1; }
}

compiles '' 'sm_80 [sm_90,compute_90] sm_80 sm_89 [sm_90,compute_90] sm_90a'
compiles 90 '[sm_90,compute_90] [sm_90,compute_90] sm_90a'
compiles 89 'sm_80 sm_89 -fdevice-syntax-only sm_90a'
compiles '86 120' 'sm_80 [sm_90,compute_90] sm_80 [sm_90,compute_90] sm_90a'
compiles native 'sm_80 [sm_90,compute_90] sm_89 [sm_90,compute_90] sm_90a'
said=$(make -n NVCC="$bare/nvcc" CUDA_ARCH=75 all 2>&1) && exit 1
case $said in *'CUDA_ARCH=75: no GPU of compute capability 8.0 or later'*) ;; *) echo "make says: $said"; exit 1 ;; esac
