#!/bin/bash
# Runs inside the Debian of run.sh.
set -u
cd /stage || exit 1
passed=0 failed=0

check() {
  local what=$1
  shift
  if "$@" >check.log 2>&1; then
    echo "ok - $what"
    passed=$((passed + 1))
  else
    echo "not ok - $what"
    tail -n 20 check.log | sed 's/^/    /'
    failed=$((failed + 1))
  fi
}
absent() { ! command -v "$1"; }

check "there is no compiler" absent cc
check "there is no gemmd" absent gemmd
check "pip installs the wheel" pip install --quiet --no-index --find-links wheels --break-system-packages gemmclient
check "models for the example" python3 make_models.py
export GEMMD_SOCKET=embedded:
check "the first example of the README" python3 example.py
check "what it computed is right" python3 - <<'END'
import gemmclient, numpy as np
with gemmclient.connect() as session:
    w = np.arange(-96, 96, dtype=np.float32).reshape(12, 16)
    session.load_array(w, name="w", format="f16")
    x = np.arange(48, dtype=np.float16).reshape(3, 16)
    assert (session.open("w").matmul(x, y_type="f32") == x.astype(np.float32) @ w.T).all()
    assert gemmclient.library_version() == gemmclient.__version__
END
check "products in this process, by the direct library" python3 - <<'END'
import ctypes, gemmclient, numpy as np
from gemmclient._library import direct_library
assert direct_library() is not None
with gemmclient.connect() as session:
    w = np.arange(-96, 96, dtype=np.float32).reshape(12, 16)
    session.load_array(w, name="w", format="f16")
    weight = gemmclient.Direct(session).borrow("w")
    x, y = np.empty(1024, np.uint8), np.empty(1024, np.uint8)  # both begin at a multiple of 16
    x, y = x[-x.ctypes.data % 16 :][:96].view(np.float16), y[-y.ctypes.data % 16 :][:144].view(np.float32)
    x[:] = np.arange(48)
    weight.launch(3, x.ctypes.data, "f16", y.ctypes.data, "f32")
    assert (y.reshape(3, 12) == x.astype(np.float32).reshape(3, 16) @ w.T).all(), y
END
check "gemmctl is a command" gemmctl ping
check "gemmd is a command" gemmd --version
check "pip removes it all" sh -c 'pip uninstall --quiet --yes --break-system-packages gemmclient && ! command -v gemmctl &&
  ! ls -d /usr/local/lib/python3*/dist-packages/gemmclient'
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
