#!/bin/bash
# The tests that a machine with an NVIDIA GPU is for: conformance on the cuda backend, and the end-to-end tests with a
# daemon that must take it. Runs from the source tree (make test-gpu) or from an unpacked bundle, where nothing is built.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${GEMMD_BUILD:-}" ]; then
  tests=$GEMMD_BUILD/tests
else
  GEMMD_BUILD=$(dirname "$here")/bin tests=$here
fi
export GEMMD_BUILD GEMMD_TEST_BACKEND=cuda
exec "$here/run.sh" "$tests"/conformance/test_* "$tests"/end_to_end/test_* "$tests"/end_to_end/direct/test_*
