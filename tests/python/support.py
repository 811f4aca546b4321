"""What the Python tests share: a gemmd of their own, safetensors files, references in float64."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Dict, Tuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
PATIENCE_S = 60  # until a test gives up; nothing takes so long by itself

os.environ.setdefault("GEMMCLIENT_LIBRARY", str(BUILD / "libgemmclient.so.0"))
os.environ.setdefault("GEMMCLIENT_DIRECT_LIBRARY", str(BUILD / "libgemmclient-direct.so.0"))
os.environ.setdefault("GEMMD_BINARY", str(BUILD / "gemmd"))
sys.path.insert(0, str(ROOT / "client" / "python"))


class Daemon:
    """gemmd on a socket in a folder of its own. Ends, and its folder goes, with `with` or close()."""

    def __init__(self, options: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gemmd-python-"))
        self.socket = str(self.folder / "socket")
        backend = os.environ.get("GEMMD_TEST_BACKEND", "cpu")
        (self.folder / "gemmd.conf").write_text(
            f"socket = {self.socket}\nbackend = {backend}\nlog_level = debug\nworker_restarts_max = 100\n{options}\n"
        )
        self.process = None
        self.start()

    def start(self) -> None:
        """Returns when it serves: what it tells a service manager it tells us, who listen for as long as it lives."""
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = str(self.folder / "notify")
        Path(path).unlink(missing_ok=True)
        notify.bind(path)
        notify.settimeout(PATIENCE_S)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [os.environ["GEMMD_BINARY"], "--config", str(self.folder / "gemmd.conf")],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                env={**os.environ, "NOTIFY_SOCKET": path},
            )  # fmt: skip
        while not notify.recv(512).startswith(b"READY=1"):
            pass
        threading.Thread(target=self._listen, args=(notify, self.process), daemon=True).start()

    @staticmethod
    def _listen(notify: socket.socket, process: subprocess.Popen) -> None:
        notify.settimeout(0.2)
        with notify:
            while process.poll() is None:
                with contextlib.suppress(TimeoutError):
                    notify.recv(512)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        """Without warning."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_S)
        shutil.rmtree(self.folder)

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stop(pid: int) -> None:
    """Stops a process, and returns when all of its threads stand still."""
    os.kill(pid, signal.SIGSTOP)
    for task in Path(f"/proc/{pid}/task").iterdir():
        while (task / "stat").read_text().rpartition(")")[2].split()[0] != "T":
            os.sched_yield()


def kill_orphan(pid: int) -> None:
    """Ends a stopped process whose parent is gone, unless the kernel has done so: it hangs up on orphaned groups."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def write_safetensors(path: Path, tensors: Dict[str, Tuple[str, np.ndarray]]) -> None:
    """name -> (type as safetensors calls it, array)."""
    header, begin = {}, 0
    for name, (kind, array) in tensors.items():
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [begin, begin + array.nbytes]}
        begin += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for _, array in tensors.values())
    )


def quantize_rows(rows: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """INT8 codes and scales by absmax a row, as gemmd's contract of numerics says."""
    scale = (np.abs(rows.astype(np.float32)).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)
    codes = np.rint(rows.astype(np.float32) / np.where(scale == 0, np.float32(1), scale))
    return codes.astype(np.float64), scale.astype(np.float64)


def int8_product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """x * W^T with both quantized, in float64."""
    (x_codes, x_scale), (w_codes, w_scale) = quantize_rows(x), quantize_rows(w)
    return (x_codes @ w_codes.T) * x_scale * w_scale.T


def worst_row(y: np.ndarray, reference: np.ndarray) -> float:
    """The largest relative error of a row."""
    y, reference = y.reshape(-1, y.shape[-1]), reference.reshape(-1, y.shape[-1])
    return float((np.linalg.norm(y - reference, axis=1) / np.linalg.norm(reference, axis=1)).max())
