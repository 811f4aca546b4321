"""A tritonserver ($TRITONSERVER) on a folder with models/ and backends/."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from support import BUILD, PATIENCE_S


def install_backend(folder: Path) -> None:
    (folder / "backends/gemmd").mkdir(parents=True)
    shutil.copy(BUILD / "libtriton_gemmd.so", folder / "backends/gemmd")


class TritonServer:
    """Lives when made. `url`: of its HTTP service."""

    def __init__(self, folder: Path, *arguments: str):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{port}/v2", folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [os.environ["TRITONSERVER"], f"--model-repository={folder}/models",
                 f"--backend-directory={folder}/backends", "--http-address=127.0.0.1", f"--http-port={port}",
                 "--allow-grpc=false", "--allow-metrics=false", "--exit-on-error=false", "--strict-readiness=false",
                 "--disable-auto-complete-config", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        while self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/health/live", timeout=PATIENCE_S):
                    return
            except (urllib.error.URLError, ConnectionError):
                os.sched_yield()
        raise RuntimeError(self.log.read_text())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)
