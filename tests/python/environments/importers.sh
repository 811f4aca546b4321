#!/bin/sh
# Makes .cache/importers, a virtual environment with the tools whose files gemmd reads, and PyTorch, which they want
# (about 5 GB). Prints why where it cannot; exit 1.
set -eu
cd "$(dirname "$0")/../../.."
environment=.cache/importers
tools='torch transformers compressed-tensors torchao gguf safetensors comfy-kitchen nvidia-modelopt numpy cffi'

if ! "$environment/bin/python" -c 'import cffi, comfy_kitchen, compressed_tensors, gguf, gptqmodel, modelopt, safetensors, torch, torchao, transformers' 2>/dev/null; then
  echo "test-importers: installing from PyPI into $environment: $tools"
  /usr/bin/python3 -m venv --clear "$environment" || { echo "test-importers: needs Debian's python3-venv" >&2; exit 1; }
  # auto-gptq and autoawq want a transformers of their time; their packers, which are what is run, do not. GPTQModel wants a torch of
  # its own; what its packer imports is listed, and none of its kernels is built.
  gptqmodel='gptqmodel pypcre logbar device-smi threadpoolctl tokenicer defuser accelerate datasets dill multiprocess xxhash pyarrow'
  # shellcheck disable=SC2086 # a list
  { "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir $tools &&
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps auto-gptq autoawq &&
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --upgrade 'setuptools>=77' wheel &&
    BUILD_CUDA_EXT=0 "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
      --no-build-isolation $gptqmodel; } ||
    { echo "test-importers: PyPI cannot be reached" >&2; exit 1; }
fi
