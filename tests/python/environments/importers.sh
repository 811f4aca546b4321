#!/bin/sh
# Makes .cache/importers, a virtual environment with the tools whose files gemmd reads, and PyTorch, which they want
# (about 5 GB). Prints why where it cannot; exit 1.
set -eu
cd "$(dirname "$0")/../../.."
environment=.cache/importers
tools='torch transformers compressed-tensors torchao gguf safetensors comfy-kitchen nvidia-modelopt numpy cffi'

if ! "$environment/bin/python" -c 'import cffi, comfy_kitchen, compressed_tensors, gguf, modelopt, safetensors, torch, torchao, transformers' 2>/dev/null; then
  echo "test-importers: installing from PyPI into $environment: $tools"
  /usr/bin/python3 -m venv --clear "$environment" || { echo "test-importers: needs Debian's python3-venv" >&2; exit 1; }
  # auto-gptq wants a transformers of its time; its packer, which is what is run, does not
  # shellcheck disable=SC2086 # a list
  { "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir $tools &&
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps auto-gptq; } ||
    { echo "test-importers: PyPI cannot be reached" >&2; exit 1; }
fi
