#!/bin/bash
# The tests that a machine with an NVIDIA GPU is for: conformance on the cuda backend, and the end-to-end tests with a
# daemon that must take it. Runs from the source tree (make test-gpu) or from an unpacked bundle, where nothing is built.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${GEMMD_BUILD:-}" ]; then
  GEMMD_BUILD=$(dirname "$here")
fi
export GEMMD_BUILD GEMMD_TEST_BACKEND=cuda
export PATH=$GEMMD_BUILD/bin:$PATH
exec "$here/run.sh" "$GEMMD_BUILD"/tests/conformance/test_* "$GEMMD_BUILD"/tests/end_to_end/test_*
