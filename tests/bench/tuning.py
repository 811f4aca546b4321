#!/usr/bin/env python3
"""What tuning costs and gives, each against daemons of its own:

  load        p99 of calls at 30 % of the rate that can be had, tuning in the background and off, in turns
  twice       two searches, each anew: by how much the kernels differ that they choose
  exhaustive  the search against the whole product of parameters: both winners in one final, and the time that each took
  sight       from the first request for a shape to its winner on an idle device

tuning.py [--backend cpu|cuda] [--seconds N] [PART...]      all but `exhaustive` without a PART; programs from $GEMMD_BUILD

A machine that does something else beside shows that, not the tuner. Random weights; needs no package of Python's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

BUILD = Path(os.environ.get("GEMMD_BUILD", "build")).resolve()
Shape = Tuple[int, int]

SHAPES: Dict[str, List[Shape]] = {
    "cpu": [(1024, 1024), (1536, 384), (384, 1536), (2048, 512)],
    "cuda": [(4096, 4096), (8192, 1024), (1280, 8192), (2560, 2560)],
}
FORMATS = {"cpu": ["int8", "fp8", "int2"], "cuda": ["int8", "fp8", "f16"]}
ROWS = {"cpu": [1, 8, 64], "cuda": [1, 16, 64]}
LOAD_ROWS = "1:4,2:1,4:1,8:1,16:2,32:1,64:1"  # M:WEIGHT, of gemm-bench
LIMIT = 1.03  # two kernels that differ by no more are the same


class Failed(Exception):
    pass


def geometric_mean(values: List[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


class Daemon:
    """gemmd on a socket in a folder of its own, and the tools on it."""

    def __init__(self, backend: str, tune: str, *options: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="gemmd-tuning-")
        self.environment = dict(os.environ, GEMMD_SOCKET=self.folder.name + "/socket")
        words = [str(BUILD / "gemmd"), "--socket", self.environment["GEMMD_SOCKET"], "--backend", backend]
        self.process = subprocess.Popen([*words, "--tune", tune, "--log_level", "error", *options])
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
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.folder.cleanup()

    def tool(self, program: str, *words: str, check: bool = True) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [str(BUILD / program), *words], env=self.environment, capture_output=True, text=True, check=False
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
        data = bytearray(2 * n * k)
        data[0::2] = os.urandom(n * k)
        data[1::2] = os.urandom(n * k).translate(bytes(wide[0] | byte & 0x80 for byte in range(256)))
        head = json.dumps({"w": {"dtype": kind, "shape": [n, k], "data_offsets": [0, len(data)]}}).encode()
        Path(path).write_bytes(struct.pack("<Q", len(head)) + head + data)
        name = f"{format}.{n}x{k}"
        self.tool("gemmctl", "load", path, "--tensor", "w", "--format", format, "--name", name)
        os.unlink(path)
        return name

    def tune(self, name: str, rows: int, *words: str, anew: bool = True) -> dict:
        if anew:
            self.tool("gemmctl", "tune", "forget", "*")
        kind = "f16" if name.startswith("f16") else "bf16"
        return self.ask("gemmctl", "tune", name, "--m", str(rows), "--x-type", kind, "--y-type", kind, *words)

    def shapes(self) -> List[dict]:
        return self.ask("gemmctl", "tune", "list")["shapes"]


def time_of(result: dict, kernel: str) -> Optional[int]:
    """Of a kernel that a search has timed, ns."""
    for each in result["results"]:
        if each["kernel"] == kernel and each["ns"] > 0:
            return each["ns"]
    return None


def cases(daemon: Daemon):
    for format in FORMATS[daemon.backend]:
        for shape in SHAPES[daemon.backend]:
            name = daemon.load(format, shape)
            for rows in ROWS[daemon.backend]:
                yield name, rows


# ---- the parts


def part_load(backend: str, seconds: float) -> None:
    formats = FORMATS[backend][:2]
    rate = 0
    p99: Dict[str, List[float]] = {"off": [], "background": []}
    print(f"{'tuning':<12}{'calls/s':>9}{'p50':>9}{'p99':>9}{'p99.9':>9}{'max us':>9}  shapes tuned")
    for mode in ("off", "background", "background", "off"):
        with Daemon(backend, mode) as daemon:
            names = ",".join(daemon.load(format, shape) for format in formats for shape in SHAPES[backend])
            call = ["--weight", names, "--m", LOAD_ROWS, "--x-type", "bf16", "--y-type", "bf16"]
            if rate == 0:
                most = daemon.ask("gemm-bench", *call, "--seconds", "2")
                rate = max(1, int(0.3 * most["requests"] / most["seconds"]))
            got = daemon.ask("gemm-bench", *call, "--seconds", str(seconds), "--warmup", "1", "--rate", str(rate))
            us, shapes = got["latency_us"], daemon.shapes()
        p99[mode].append(us["p99"])
        tuned = sum(shape["state"] == "tuned" for shape in shapes)
        figures = "".join(f"{us[key]:9.1f}" for key in ("p50", "p99", "p999", "max"))
        print(f"{mode:<12}{rate:>9}{figures}  {tuned} of {len(shapes)}", flush=True)
    on, off = statistics.mean(p99["background"]), statistics.mean(p99["off"])
    print(f"load: p99 on / off {on / off:.3f} (each turn of off: {p99['off'][0]:.1f}, {p99['off'][1]:.1f} us)")


def part_twice(backend: str, _: float) -> None:
    ratios = []
    with Daemon(backend, "off") as daemon:
        for name, rows in cases(daemon):
            first, second = daemon.tune(name, rows)["kernel"], daemon.tune(name, rows)["kernel"]
            ratio = 1.0
            if first != second:  # each against what wins at that moment, in a final of their own
                part = []
                for kernel in (first, second):
                    result = daemon.tune(name, rows, "--kernel", kernel, anew=False)
                    part.append((time_of(result, kernel) or math.inf) / time_of(result, result["kernel"]))
                ratio = max(part) / min(part)
            ratios.append(ratio)
            print(f"{name:<20} {rows:>5} rows  {ratio:.3f}  {first}{'' if first == second else ' | ' + second}", flush=True)
    same = sum(ratio <= LIMIT for ratio in ratios)
    print(f"twice: within 3 % in {same} of {len(ratios)} cases ({100 * same / len(ratios):.0f} %), worst {max(ratios):.3f}")


def part_exhaustive(backend: str, _: float) -> None:
    quality, share = [], []
    print(f"{'weight':<20}{'rows':>5}{'short us':>10}{'best us':>9}{'of best':>9}{'of time':>9}  kernels")
    with Daemon(backend, "off") as daemon:
        for name, rows in cases(daemon):
            daemon.tune(name, rows)  # loads the kernels that both are about to time
            short = daemon.tune(name, rows)
            whole = daemon.tune(name, rows, "--exhaustive", "--kernel", short["kernel"])
            ours, best = time_of(whole, short["kernel"]), time_of(whole, whole["kernel"])
            if not ours or not best:
                raise Failed(f"{name}, {rows} rows: {short['kernel']} was not timed again: {whole['why']}")
            quality.append(best / ours)
            share.append(short["spent_ns"] / whole["spent_ns"])
            kernels = "the same" if short["kernel"] == whole["kernel"] else f"{short['kernel']} | {whole['kernel']}"
            print(
                f"{name:<20}{rows:>5}{ours / 1e3:10.2f}{best / 1e3:9.2f}{quality[-1]:9.3f}{share[-1]:9.3f}  {kernels}",
                flush=True,
            )
    print(
        f"exhaustive: {len(quality)} cases, of the best {geometric_mean(quality):.3f} (geometric mean), "
        f"worst {min(quality):.3f}, at least 0.98 in {sum(each >= 0.98 for each in quality)}; "
        f"of its time {geometric_mean(share):.3f}, at most 0.10 in {sum(each <= 0.1 for each in share)}"
    )


def part_sight(backend: str, _: float) -> None:
    seconds = []
    with Daemon(backend, "background") as daemon:
        for format in FORMATS[backend][:2]:
            for shape in SHAPES[backend][:3]:
                name, rows = daemon.load(format, shape), f"{daemon.folder.name}/rows"
                Path(rows).write_bytes(bytes(4 * 4 * shape[1]))
                begin = time.monotonic()
                daemon.tool("gemmctl", "matmul", name, "--x", rows, "--y", rows + ".y")
                wanted = f"{format}-row-{shape[0]}x{shape[1]}-"
                while not any(each["state"] == "tuned" and each["shape"].startswith(wanted) for each in daemon.shapes()):
                    if time.monotonic() - begin > 60:
                        raise Failed(f"{name} is not tuned after a minute")
                    time.sleep(0.01)
                seconds.append(time.monotonic() - begin)
    print("sight:", " ".join(f"{each:.2f}" for each in seconds), f"s; worst {max(seconds):.2f}")


def main() -> int:
    parts = {"load": part_load, "twice": part_twice, "exhaustive": part_exhaustive, "sight": part_sight}
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--backend", choices=sorted(SHAPES), default="cpu")
    options.add_argument("--seconds", type=float, default=10, help="of load in each turn")
    options.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(parts))
    given = options.parse_args()
    for part in given.parts or ["load", "twice", "sight"]:
        if part not in parts:
            options.error(f"there is no part {part}")
    for part in given.parts or ["load", "twice", "sight"]:
        try:
            parts[part](given.backend, given.seconds)
        except Failed as reason:
            print(f"{part}: {reason}")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
