#!/bin/sh
# Dependencies point one way: daemon -> proto, kernels; client -> proto; client/direct -> kernels; gemmctl, client/model
# -> proto/weights; kernels -> proto's gemm.h, status.h, number.h and clock.h; proto -> nothing, and of it proto/weights
# alone knows files. Within daemon/, no process includes another's folder, but for main.c, which starts each by its one
# public header. Within kernels/, no backend includes another's. tests/ may include all of these, and none of them includes
# tests/; gemm-bench, which is installed, is there because it measures both sides: tests/gemm-bench asks a daemon as a
# client does, by the public headers and client/tool, and tests/gemm-bench/kernels measures kernels/ in its own
# process, where a client may not look.
cd "$(dirname "$0")/.." || exit 2
found=0

# complain WHERE REGEX WHY: no file below that folder, or that file, may include what matches.
complain() {
  [ -e "$1" ] || return 0
  if hits=$(grep -rHnE "^[[:space:]]*#[[:space:]]*include[[:space:]]+\"$2" "$1" --include='*.[ch]' --include='*.cu' \
    --include='*.cuh' --include='*.def'); then
    printf '%s\n' "$hits" | sed "s|\$|  <- $3|"
    found=1
  fi
}

complain proto '(\.\./)*(daemon|client|kernels|tests)/' 'proto depends on nothing'
complain kernels '(\.\./)*(daemon|client|tests)/' 'kernels depend on proto only'
complain kernels '(\.\./)+proto/(limits|tally|wire|shm|weights)' 'kernels see gemm.h, status.h, number.h and clock.h only'
complain proto '(\.\.?/)*weights/' 'what goes over the wire knows no files'
complain proto/weights '(\.\./)+(wire|shm)/' 'weights see numbers, limits and statuses only'
complain client '(\.\./)*(daemon|tests)/' 'the client depends on proto only'
for place in client/*; do # what computes in the client's process has the kernels
  [ "$place" = client/direct ] || complain "$place" '(\.\./)*kernels/' 'of the client, client/direct alone sees kernels'
done
complain client/direct '(\.\./)*kernels/(cpu|cuda)/' 'a backend is behind its table'
for place in client/session client/submit client/memory client/weight client/ggml client/tool client/triton; do
  complain "$place" '(\.\./)*proto/weights/' 'of the client, gemmctl and model/ alone know files of weights'
done
# of proto/ all may include clock.h
complain client/ctl '(\.\./)*proto/((limits|number|status|tally)\.|wire/|shm/)' 'gemmctl asks files of weights and gemm.h alone'
complain client/ggml '(\.\./)*proto/[^c]' 'adapters use the public header only'
complain client/triton '(\.\./)*proto/[^c]' 'adapters use the public header only'
complain client/tool '(\.\./)*proto/([^cf]|.*/)' 'the tools use the public header and the words of formats.def'
complain daemon '(\.\./)*(client|tests)/' 'the daemon depends on proto and kernels'
complain daemon/supervisor '(\.\./)*(worker|loader)/' 'one process, one folder'
complain daemon/supervisor '(\.\./)+kernels/' 'the supervisor computes nothing'
complain daemon/worker '(\.\./)*(supervisor|loader)/' 'one process, one folder'
complain daemon/loader '(\.\./)*(supervisor|worker)/' 'one process, one folder'
complain kernels/cpu '(\.\./)*cuda/' 'one backend, one folder'
complain kernels/cuda '(\.\./)*cpu/' 'one backend, one folder'
for file in tests/gemm-bench/*.[ch]; do
  complain "$file" '(\.\./)*(proto/[^c]|(kernels|daemon|tests)/)' 'what asks a daemon uses the public headers and client/tool'
done
complain tests/gemm-bench '(\.\./)*client/([a-fh-z][a-z_]*\.|[a-su-z][a-z]*/)' 'gemm-bench uses the public headers and client/tool'
complain tests/gemm-bench/kernels '(\.\./)*client/gemmclient' 'kernels are measured without a daemon'
complain tests/gemm-bench/kernels '(\.\./)*(daemon|tests)/' 'kernels are measured without a daemon'
complain tests/gemm-bench/kernels '(\.\./)*proto/(limits|tally|wire|shm|weights)' 'as kernels: gemm.h, status.h, number.h and clock.h only'
for place in tests/*; do
  case $place in tests/gemm-bench | tests/unit) continue ;; esac
  complain "$place" '(\.\./)*(tests/)?gemm-bench/' 'its unit tests alone look into gemm-bench'
done
exit $found
