"""A gemmd of a benchmark's own, with random weights, and what its calls took."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

BUILD = Path(os.environ.get("GEMMD_BUILD", "build")).resolve()
Shape = Tuple[int, int]


class Failed(Exception):
    pass


def family(pid: int) -> List[int]:
    """The process, its children and theirs, parents first."""
    parents: Dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass
    every = [pid]
    for at in every:
        every += [child for child, parent in parents.items() if parent == at]
    return every


class Daemon:
    """gemmd on a socket in a folder of its own, and the tools on it."""

    def __init__(self, backend: str, tune: str, *options: str, build: Path = BUILD) -> None:
        self.build = build
        self.folder = tempfile.TemporaryDirectory(prefix="gemmd-bench-")
        self.environment = dict(os.environ, GEMMD_SOCKET=self.folder.name + "/socket")
        words = [str(build / "gemmd"), "--socket", self.environment["GEMMD_SOCKET"], "--backend", backend]
        words += ["--tune", tune, "--log_level", "error", *options]
        self.process = subprocess.Popen(words, start_new_session=True)
        self.backend = backend
        for _ in range(600):
            if self.tool("gemmctl", "ping", check=False).returncode == 0:
                return
            time.sleep(0.05)
        self.close()
        raise Failed("gemmd does not answer")

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.stop(False)  # or it would not hear the other
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.folder.cleanup()

    def stop(self, stopped: bool) -> None:
        """Stops the daemon and its workers where they are, or lets them go on: whoever starts and watches them first, or
        last. They have sessions of their own."""
        every = family(self.process.pid)
        for pid in every if stopped else reversed(every):
            try:
                os.kill(pid, signal.SIGSTOP if stopped else signal.SIGCONT)
            except ProcessLookupError:
                pass

    def tool(self, program: str, *words: str, check: bool = True) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [str(self.build / program), *words], env=self.environment, capture_output=True, text=True, check=False
        )
        if check and done.returncode != 0:
            raise Failed(done.stderr.strip())
        return done

    def ask(self, program: str, *words: str) -> dict:
        return json.loads(self.tool(program, *words, "--json").stdout)

    def load(self, format: str, shape: Shape) -> str:
        """A weight of random numbers in -2..2; its name."""
        n, k = shape
        wide = b"\x34" if format == "f16" else b"\x3d"  # exponents of F16 and BF16
        path, kind = f"{self.folder.name}/{n}x{k}.safetensors", "F16" if format == "f16" else "BF16"
        count = min(n * k, 1 << 22)  # that are of chance; then they repeat
        block = bytearray(2 * count)
        block[0::2] = os.urandom(count)
        block[1::2] = os.urandom(count).translate(bytes(wide[0] | byte & 0x80 for byte in range(256)))
        head = json.dumps({"w": {"dtype": kind, "shape": [n, k], "data_offsets": [0, 2 * n * k]}}).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(head)) + head)
            for at in range(0, 2 * n * k, len(block)):
                file.write(block[: 2 * n * k - at])
        name = f"{format}.{n}x{k}"
        self.tool("gemmctl", "load", path, "--tensor", "w", "--format", format, "--name", name)
        os.unlink(path)
        return name

    def load_codes(self, shape: Shape) -> str:
        """A weight of random INT8, faster to make than to convert; its name."""
        n, k = shape
        path, name = f"{self.folder.name}/codes.safetensors", f"int8.{n}x{k}"
        head = {
            "w": {"dtype": "I8", "shape": [n, k], "data_offsets": [0, n * k]},
            "w_scale": {"dtype": "F32", "shape": [n], "data_offsets": [n * k, n * k + 4 * n]},
        }
        text, block = json.dumps(head).encode(), os.urandom(16 << 20)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for at in range(0, n * k, len(block)):
                file.write(block[: n * k - at])
            file.write(struct.pack("<f", 0.01) * n)
        self.tool("gemmctl", "load", path, "--tensor", "w", "--format", "int8", "--name", name)
        os.unlink(path)
        return name

    def tune(self, name: str, rows: int, y_type: str, *words: str, anew: bool = True) -> dict:
        if anew:
            self.tool("gemmctl", "tune", "forget", "*")
        kind = "f16" if name.startswith("f16") else "bf16"
        return self.ask("gemmctl", "tune", name, "--m", str(rows), "--x-type", kind, "--y-type", y_type, *words)

    def shapes(self) -> List[dict]:
        return self.ask("gemmctl", "tune", "list")["shapes"]


def attempt(name: str, work: Callable[..., None], *arguments: object) -> bool:
    """Does the work; where it fails, says why."""
    try:
        work(*arguments)
    except Failed as reason:
        print(f"{name}: {reason}")
        return False
    return True


def end_with_daemons() -> None:
    """SIGTERM ends this program as anything else does: no daemon stays behind, and none stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def quantile(buckets: Dict[float, int], part: float) -> float:
    left = part * sum(buckets.values())
    for us in sorted(buckets):
        left -= buckets[us]
        if left <= 0:
            return us
    return math.nan


def pooled(turns: List[Dict[float, int]]) -> Dict[float, int]:
    every: Dict[float, int] = {}
    for turn in turns:
        for us, count in turn.items():
            every[us] = every.get(us, 0) + count
    return every
