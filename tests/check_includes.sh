#!/bin/sh
# Dependencies point one way: daemon -> proto, kernels; client -> proto; client/direct -> kernels; gemmctl -> proto/weights; kernels -> proto's
# gemm.h, status.h and number.h; proto -> nothing, and of it proto/weights alone knows files. Within daemon/, no process
# includes another's folder, but for main.c, which starts each by its one public header. Within kernels/, no backend includes another's.
cd "$(dirname "$0")/.." || exit 2
found=0

# complain WHERE REGEX WHY: no file below that folder, or that file, may include what matches.
complain() {
  [ -e "$1" ] || return 0
  if hits=$(grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]+\"$2" "$1" --include='*.[ch]' --include='*.cu' \
    --include='*.cuh' --include='*.def'); then
    printf '%s\n' "$hits" | sed "s|\$|  <- $3|"
    found=1
  fi
}

complain proto '(\.\./)*(daemon|client|kernels|tests)/' 'proto depends on nothing'
complain kernels '(\.\./)*(daemon|client|tests)/' 'kernels depend on proto only'
complain kernels '(\.\./)+proto/(message|ring|limits|commands|messages|weights)' 'kernels see gemm.h, status.h and number.h only'
complain proto '(\./)?weights/' 'what goes over the wire knows no files'
complain proto/weights '(\.\./)+(message|ring|commands|messages)' 'weights see numbers, limits and statuses only'
complain client '(\.\./)*(daemon|tests)/' 'the client depends on proto only'
for place in client/*; do # what computes in the client's process has the kernels
  [ "$place" = client/direct ] || complain "$place" '(\.\./)*kernels/' 'of the client, client/direct alone sees kernels'
done
complain client/direct '(\.\./)*kernels/(cpu|cuda)/' 'a backend is behind its table'
for place in client/*.[ch] client/bench client/ggml client/tool client/triton; do
  complain "$place" '(\.\./)*proto/weights/' 'of the client, gemmctl alone makes files of weights'
done
complain client/ctl '(\.\./)*proto/[a-z_]+\.' 'the tools use the public header only'
complain client/bench '(\.\./)*proto/' 'the tools use the public header only'
complain client/ggml '(\.\./)*proto/' 'adapters use the public header only'
complain client/triton '(\.\./)*proto/' 'adapters use the public header only'
complain client/tool '(\.\./)*proto/' 'the tools use the public header only'
complain daemon '(\.\./)*(client|tests)/' 'the daemon depends on proto and kernels'
complain daemon/supervisor '(\.\./)*(worker|loader)/' 'one process, one folder'
complain daemon/supervisor '(\.\./)+kernels/' 'the supervisor computes nothing'
complain daemon/worker '(\.\./)*(supervisor|loader)/' 'one process, one folder'
complain daemon/loader '(\.\./)*(supervisor|worker)/' 'one process, one folder'
complain kernels/cpu '(\.\./)*cuda/' 'one backend, one folder'
complain kernels/cuda '(\.\./)*cpu/' 'one backend, one folder'
exit $found
