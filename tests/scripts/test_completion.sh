#!/bin/bash
# bash completion: names of weights and of files as they are, also where they hold what a shell would execute.
set -eu
. "$(dirname "$0")/../support/daemon/daemon.sh"
cd "$work"
failures=0

# complete_words WORDS...: what completion makes of a command line, a line each.
complete_words() {
  bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gemmctl; [ ${#COMPREPLY[@]} -eq 0 ] || printf "%s\n" "${COMPREPLY[@]}"' \
    "$root/deploy/gemmctl.bash-completion" "$@"
}
# expect LINES WORDS...
expect() {
  local lines=$1 got
  shift
  got=$(complete_words "$@" | LC_ALL=C sort)
  [ "$got" = "$lines" ] || { echo "$*: \"$got\", expected \"$lines\"" && failures=$((failures + 1)); }
}

"$build/gemmd" --socket "$GEMMD_SOCKET" --backend cpu --slab_bytes 2097152 2>gemmd.log &
pids="$pids $!"
await $!
"$build/gemm-demo" generate 'a model.safetensors' >/dev/null
for name in '$(touch${IFS}executed)' 'a b' 'a `c`' plain; do
  ctl load 'a model.safetensors' --tensor encoder.layer.0.output.dense.weight --format int8 --name "$name" >/dev/null
done

gemmctl=$build/gemmctl
expect plain "$gemmctl" unload p
expect plain "$build/gemm-bench" --weight p
expect 'a\ \`c\`
a\ b' "$gemmctl" unload a
expect 'a\ b' "$gemmctl" unload 'a\ b'
expect '\$\(touch\$\{IFS\}executed\)' "$gemmctl" unload '\$'
expect '\$\(touch\$\{IFS\}executed\)' "$build/gemm-bench" --weight '$'
complete_words "$gemmctl" unload '' >/dev/null
[ ! -e executed ] || { echo "the name of a weight was executed" && failures=$((failures + 1)); }
expect 'a model.safetensors' "$gemmctl" load a
expect 'a model.safetensors' "$gemmctl" quantize x --calibration a
expect 'unload' "$gemmctl" u
expect '--replace' "$gemmctl" load --rep
[ $failures -eq 0 ]
