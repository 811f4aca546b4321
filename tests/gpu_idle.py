#!/usr/bin/env python3
"""What gemmd takes of a device while nobody asks it for anything, and what it does there when it is left alone.

    GEMMD_BUILD=build/gemmd-0.1.0-x86_64 tests/gpu_idle.py            (about 100 s on a GPU)
    tests/gpu_idle.py --backend cpu --gib 0.05 --size 512             (without one)

In this order: the device's memory before gemmd, with it, with the weights, and with its worker asleep; how long the
first product takes that wakes it; the same memory with one and with three engines that have borrowed all weights and
replay CUDA graphs; whether shapes are tuned while these replay (they are not), and how soon after they stop; a pause
that engines state. Exit status 1 where the worker does not sleep or wake, or where something is tuned that should not
be, or is not that should.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()


def _built(variable: str, folder: str, file: str) -> None:
    found = [place / file for place in (BUILD / folder, BUILD) if (place / file).exists()]
    if found:
        os.environ.setdefault(variable, str(found[0]))


_built("GEMMD_BINARY", "bin", "gemmd")
_built("GEMMCTL_BINARY", "bin", "gemmctl")
_built("GEMMCLIENT_LIBRARY", "lib", "libgemmclient.so.0")
_built("GEMMCLIENT_DIRECT_LIBRARY", "lib", "libgemmclient-direct.so.0")
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "client" / "python")]

import numpy as np  # noqa: E402

PATIENCE_S = 60
OPTIONS = "worker_idle_s = 4\nverify_s = 20\n"


# ---- an engine: a process of its own, which does what lines of its standard input say


class Engine:
    def __init__(self, arguments):
        import gemmclient

        self.cuda, self.running = arguments.backend == "cuda", False
        if self.cuda:
            import torch

            self.torch = torch
            torch.cuda.init()
        self.session = gemmclient.connect(arguments.socket, name="engine", arena_bytes=1 << 20)
        ordinal = 0 if self.cuda else -1
        self.direct = gemmclient.Direct(self.session, ordinal=ordinal, rows_most=64, threads=0 if self.cuda else 1)
        names = [weight.name for weight in self.session.weights()]
        self.weights = [self.direct.borrow(name) for name in names]
        self.tuned = self.weights[names.index("tuned")]
        self.rows = 0
        self.prepare(1)

    def prepare(self, rows: int) -> None:
        """One product more for the first time, and what is replayed from now on."""
        weight, self.rows = self.tuned, rows
        if not self.cuda:
            self.x, self.y = np.zeros((rows, weight.k), np.uint16), np.zeros((rows, weight.n), np.uint16)
            self.launch()
            return
        torch = self.torch
        self.x = torch.randn(rows, weight.k, device="cuda").to(torch.bfloat16)
        self.y = torch.empty(rows, weight.n, device="cuda", dtype=torch.bfloat16)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self.launch()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(20):
                self.launch()

    def launch(self) -> None:
        x, y = (self.x.data_ptr(), self.y.data_ptr()) if self.cuda else (self.x.ctypes.data, self.y.ctypes.data)
        stream = self.torch.cuda.current_stream().cuda_stream if self.cuda else 0
        self.tuned.launch(self.rows, x, "bf16", y, "bf16", stream=stream)

    def replay(self) -> None:
        while self.running:
            if self.cuda:
                for _ in range(20):
                    self.graph.replay()
                self.torch.cuda.synchronize()
            else:
                self.launch()

    def serve(self) -> None:
        thread = None
        for line in sys.stdin:
            words = line.split()
            if words[0] == "replay" and not self.running:
                self.running = True
                thread = threading.Thread(target=self.replay)
                thread.start()
            elif words[0] == "stop" and self.running:
                self.running = False
                thread.join()
            elif words[0] == "rows":
                self.prepare(int(words[1]))
            elif words[0] == "quiet":
                self.direct.quiet(int(words[1]))
            print("done", flush=True)
        self.running = False


class Child:
    def __init__(self, arguments, socket: str):
        chosen = ["--backend", arguments.backend, "--engine", "--socket", socket]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *chosen], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answers: "queue.Queue[str]" = queue.Queue()
        threading.Thread(target=self._hear, daemon=True).start()
        self._await("ready")

    def _hear(self) -> None:
        for line in self.process.stdout:
            self.answers.put(line.strip())

    def _await(self, word: str) -> None:
        try:
            answer = self.answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise RuntimeError("an engine does not answer") from None
        if answer != word:
            raise RuntimeError(f"an engine says {answer[:200]}")

    def tell(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self._await("done")

    def end(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


# ---- the run


def nvidia_smi(what: str) -> List[str]:
    command = ["nvidia-smi", f"--query-{what}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def used_mib() -> int:
    lines = nvidia_smi("gpu=memory.used")
    return int(lines[0]) if lines else 0


class Run:
    def __init__(self, arguments, daemon, before: int):
        import gemmclient

        self.arguments, self.daemon, self.before = arguments, daemon, before
        self.session = gemmclient.connect(daemon.socket, name="idle", arena_bytes=16 << 20, timeout=60)
        self.bad = 0
        self.engines: List[Child] = []

    def device(self) -> Dict:
        command = [os.environ["GEMMCTL_BINARY"], "--socket", self.daemon.socket, "status", "--json"]
        text = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
        return json.loads(text)["devices"][0]

    def until(self, what: str, true: Callable[[Dict], bool], seconds: float = PATIENCE_S) -> float:
        begin = time.monotonic()
        while not true(self.device()):
            if time.monotonic() - begin > seconds:
                self.bad += 1
                print(f"not within {seconds:.0f} s: {what}; {self.device()}", flush=True)
                break
            time.sleep(0.02)
        return time.monotonic() - begin

    def asleep(self) -> None:
        self.until("asleep", lambda device: device["state"] == "asleep")

    def memory(self, what: str) -> None:
        device = self.device()
        slabs = device["memory_slabs"] >> 20
        used = used_mib()
        processes = ", ".join(line.replace(" ", "") for line in nvidia_smi("compute-apps=pid,used_memory"))
        print(
            f"{what}: {used - self.before} MiB of the device beside what was there before, {slabs} of these weights; "
            f"the worker ({device['state']}, process {device['pid']}) has {device['memory_own'] >> 20} by gemmctl "
            f"status; processes by nvidia-smi: {processes or '-'}",
            flush=True,
        )

    def load(self) -> None:
        size, random = self.arguments.size, np.random.default_rng(1)
        each = 4 * size * size * 2
        values = (random.standard_normal((4 * size, size), np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for i in range(max(1, round(self.arguments.gib * (1 << 30) / each))):
            values[i, 0] ^= 0x80
            self.session.load_array(values, name=f"large/{i}", format="bf16", element="bf16")
        some = random.standard_normal((size, size), np.float32) / np.float32(size**0.5)
        self.session.load_array(some, name="tuned", format="fp8")

    def product(self) -> float:
        """Milliseconds from opening the weight to y."""
        x = np.ones((1, self.arguments.size), np.float32)
        begin = time.perf_counter()
        with self.session.open("tuned") as weight:
            weight.matmul(x)
        return (time.perf_counter() - begin) * 1e3

    def wake(self) -> None:
        times, again = [], []
        for _ in range(3):
            self.asleep()
            times.append(self.product())
            again.append(self.product())
        print(
            f"first product of a worker that sleeps: {', '.join(f'{ms:.0f}' for ms in times)} ms; "
            f"awake: {statistics.median(again):.2f} ms",
            flush=True,
        )

    def engine(self) -> Child:
        child = Child(self.arguments, self.daemon.socket)
        self.engines.append(child)
        return child

    def tuning(self) -> None:
        first = self.engines[0]
        for engine in self.engines:
            engine.tell("replay")
        first.tell("stop")
        first.tell("rows 16")
        first.tell("replay")
        self.until("16 rows are to be tuned", lambda device: device["untuned"] > 0)
        naps, states = self.device()["naps"], set()
        for _ in range(40):
            device = self.device()
            states.add((device["state"], device["quiet"]))
            self.bad += device["untuned"] == 0
            time.sleep(0.25)
        print(f"while they replay, for 10 s: {device['untuned']} shapes wait, naps {device['naps'] - naps}, {states}")
        for engine in self.engines:
            engine.tell("stop")
        woken = self.until("started for tuning", lambda device: device["state"] != "asleep")
        self.memory("started for tuning")
        tuned = self.until("tuned", lambda device: device["untuned"] == 0)
        asleep = self.until("asleep", lambda device: device["state"] == "asleep")
        print(
            f"left alone: the worker is started after {woken:.1f} s, has tuned {tuned:.1f} s later, "
            f"and sleeps {asleep:.1f} s after that",
            flush=True,
        )
        first.tell("rows 33")
        for engine in self.engines:
            engine.tell("replay")
        time.sleep(1)
        for engine in self.engines:
            engine.tell("stop")
            engine.tell("quiet 20000")
        tuned = self.until("tuned in a pause", lambda device: device["untuned"] == 0)
        print(f"engines that say that they pause: another shape is tuned after {tuned:.1f} s", flush=True)

    def all(self) -> int:
        self.memory("gemmd")
        self.load()
        self.memory("with weights")
        self.asleep()
        self.memory("asleep")
        self.wake()
        self.engine()
        self.memory("one engine, the worker awake")
        self.asleep()
        self.memory("one engine, asleep")
        self.engine()
        self.engine()
        self.asleep()
        self.memory("three engines, asleep")
        self.tuning()
        device = self.device()
        print({key: device[key] for key in ("naps", "restarts", "verified", "damaged", "quiet", "failures", "state")})
        for engine in self.engines:
            engine.end()
        self.memory("asleep, engines gone")
        self.bad += device["restarts"] + device["damaged"] + (device["verified"] == 0)
        return 1 if self.bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", type=int, default=4096, help="K of all weights, and N of the one that is tuned")
    parser.add_argument("--gib", type=float, default=4.0, help="of weights")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--socket", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        engine = Engine(arguments)
        print("ready", flush=True)
        engine.serve()
        return 0
    os.environ["GEMMD_TEST_BACKEND"] = arguments.backend
    import support

    begin, before = time.monotonic(), used_mib()
    with support.Daemon(OPTIONS) as daemon:
        try:
            status = Run(arguments, daemon, before).all()
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            status = 1
        log = daemon.log()
        if "OUT" in os.environ:
            Path(os.environ["OUT"], "gemmd.log").write_text(log)
        if status != 0:
            sys.stderr.write(log[-4000:])
    print(f"{time.monotonic() - begin:.0f} s", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
