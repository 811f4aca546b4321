#!/usr/bin/env python3
"""What becomes of engines that compute with gemmd's weights when gemmd is killed, stopped, upgraded or loads others.

    GEMMD_BUILD=build/gemmd-0.1.0-x86_64 tests/gpu_lifetimes.py [--steps 100000]   (about two minutes on a GPU)
    tests/gpu_lifetimes.py --backend cpu --size 256 --steps 2000 --seconds 1       (without one)

Two engines, processes of their own, replay a CUDA graph of eight products (two blocks of four layers, FP8 and INT2, x
in bf16) and compare each y bit for bit with what the same x gave at first, on the device. Meanwhile the things that
`events` lists happen. Then, in the order A B B A, the median time of a step with gemmd alive and with all its processes
dead; what a second and a third engine take of the device's memory for the same weights; and how long an engine needs
from connect() to its first product once CUDA is started. Exit status 1 where a step was wrong or failed, or where an
engine's session did not find the next gemmd. With --backend cpu the products are computed by the engines' processors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()


def _built(variable: str, folder: str, file: str) -> None:
    found = [place / file for place in (BUILD / folder, BUILD) if (place / file).exists()]
    if found:
        os.environ.setdefault(variable, str(found[0]))


_built("GEMMD_BINARY", "bin", "gemmd")
_built("GEMMCLIENT_LIBRARY", "lib", "libgemmclient.so.0")
_built("GEMMCLIENT_DIRECT_LIBRARY", "lib", "libgemmclient-direct.so.0")
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "client" / "python")]

import numpy as np  # noqa: E402

LAYERS = 8
FORMATS = ("fp8", "int2")  # of the blocks
INPUTS = 4  # the x of the steps, in turn: what a product left undone would still hold the y of another one
PATIENCE_S = 120


def layer_names() -> List[str]:
    return [f"block{i // 4}/layer{i % 4}.{FORMATS[i // 4]}" for i in range(LAYERS)]


def bf16(values: np.ndarray) -> np.ndarray:
    """float32 -> the upper halves of its words, uint16."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def inputs(rows: int, size: int) -> np.ndarray:
    """[INPUTS, rows, size], bf16 as uint16."""
    return bf16(np.random.default_rng(1).standard_normal((INPUTS, rows, size)))


# ---- an engine


class CudaWork:
    """A step is a replay: the next x, the products, and the comparison, with the counts on the device."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.device = torch.device("cuda", 0)
        torch.cuda.init()
        self.bf16(np.zeros((1, 8), np.uint16)).float().cpu()  # what first() needs beside the product is loaded


    def bf16(self, values: np.ndarray):
        torch = self.torch
        return torch.from_numpy(values.view(np.int16).copy()).to(self.device).view(torch.bfloat16)

    def product(self, weight, x, y) -> None:
        stream = self.torch.cuda.current_stream().cuda_stream
        weight.launch(x.shape[0], x.data_ptr(), "bf16", y.data_ptr(), "bf16", stream=stream)

    def first(self, weights, x: np.ndarray) -> np.ndarray:
        """One product, and its end: y in float32."""
        torch = self.torch
        y = torch.empty(x.shape[0], weights[0].n, dtype=torch.bfloat16, device=self.device)
        self.product(weights[0], self.bf16(x), y)
        return y.float().cpu().numpy()

    def prepare(self, weights, xs: np.ndarray) -> None:
        torch = self.torch
        long = {"dtype": torch.int64, "device": self.device}
        self.xs = self.bf16(xs).view(torch.int16)
        self.rows = [torch.empty(xs.shape[1:], dtype=torch.bfloat16, device=self.device) for _ in range(LAYERS + 1)]
        self.firsts = torch.zeros(INPUTS, xs.shape[1], weights[-1].n, dtype=torch.int16, device=self.device)
        self.turn, self.done, self.wrong = (torch.zeros(1, **long) for _ in range(3))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step(weights)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step(weights)
        for _ in range(INPUTS):
            self.graph.replay()
            self.firsts[int(self.turn.item())] = self.rows[-1].view(torch.int16)
        if not bool(torch.isfinite(self.firsts.view(torch.bfloat16)).all()) or not bool(self.firsts.any()):
            raise RuntimeError("the first results are not finite, or nothing")
        self.counts()

    def _step(self, weights) -> None:
        torch, rows = self.torch, self.rows
        self.turn.add_(1).remainder_(INPUTS)
        rows[0].view(torch.int16).copy_(self.xs.index_select(0, self.turn)[0])
        for weight, x, y in zip(weights, rows, rows[1:]):
            self.product(weight, x, y)
        same = rows[-1].view(torch.int16) == self.firsts.index_select(0, self.turn)[0]
        self.wrong.add_(same.logical_not().any())
        self.done.add_(1)

    def run(self, steps: int) -> float:
        """Microseconds a step."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(steps):
            self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000 / steps

    def counts(self) -> Tuple[int, int]:
        """Steps done and wrong ones since the last call."""
        done, wrong = int(self.done.item()), int(self.wrong.item())
        self.done.zero_()
        self.wrong.zero_()
        return done, wrong

    def memory_used(self) -> int:
        """Of the device, by everybody."""
        self.torch.cuda.synchronize()
        free, total = self.torch.cuda.mem_get_info()
        return total - free


class HostWork:
    """The same with numpy, computed when launch returns."""

    def product(self, weight, x, y) -> None:
        weight.launch(x.shape[0], x.ctypes.data, "bf16", y.ctypes.data, "bf16")

    @staticmethod
    def empty(shape) -> np.ndarray:
        """Aligned as products ask for."""
        size = int(np.prod(shape)) * 2
        room = np.empty(size + 64, np.uint8)
        skip = -room.ctypes.data % 64
        return room[skip : skip + size].view(np.uint16).reshape(shape)

    def first(self, weights, x: np.ndarray) -> np.ndarray:
        given, y = self.empty(x.shape), self.empty((x.shape[0], weights[0].n))
        given[:] = x
        self.product(weights[0], given, y)
        return (y.astype(np.uint32) << 16).view(np.float32)

    def prepare(self, weights, xs: np.ndarray) -> None:
        self.weights, self.xs = weights, xs
        self.rows = [self.empty(xs.shape[1:]) for _ in range(LAYERS + 1)]
        self.turn, self.firsts = 0, None
        firsts = [self._step().copy() for _ in range(INPUTS)]
        self.firsts = firsts[-1:] + firsts[:-1]
        self.done = self.wrong = 0

    def _step(self) -> np.ndarray:
        self.turn = (self.turn + 1) % INPUTS
        self.rows[0][:] = self.xs[self.turn]
        for weight, x, y in zip(self.weights, self.rows, self.rows[1:]):
            self.product(weight, x, y)
        return self.rows[-1]

    def run(self, steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            y = self._step()
            self.wrong += not np.array_equal(y, self.firsts[self.turn])
            self.done += 1
        return (time.perf_counter() - begin) * 1e6 / steps

    def counts(self) -> Tuple[int, int]:
        counted, self.done, self.wrong = (self.done, self.wrong), 0, 0
        return counted

    def memory_used(self) -> int:
        return 0


class Engine:
    """This process: steps in the main thread, what the parent asks for between them, and the session in a third."""

    def __init__(self, arguments):
        self.chunk = arguments.chunk
        work = CudaWork() if arguments.backend == "cuda" else HostWork()
        import gemmclient

        xs = inputs(arguments.rows, arguments.size)
        begin = time.perf_counter()
        self.session = gemmclient.connect(arguments.socket, name="engine", arena_bytes=16 << 20, reconnect=PATIENCE_S)
        connected = time.perf_counter()
        ordinal, threads = (0, 0) if arguments.backend == "cuda" else (-1, 1)
        self.direct = gemmclient.Direct(
            self.session, ordinal=ordinal, lanes=1, rows_most=max(16, arguments.rows), threads=threads
        )
        opened = time.perf_counter()
        self.weights = [self.direct.borrow(name) for name in layer_names()]
        borrowed = time.perf_counter()
        y = work.first(self.weights, xs[0])
        ended = time.perf_counter()
        self.more: List = []
        error = self._off_the_workers(y, xs[0])
        work.prepare(self.weights, xs)
        self.work, self.asked, self.times, self.paused = work, 0, [], False
        ms = {"connect": connected - begin, "open": opened - connected, "borrow": borrowed - opened}
        ms.update(product=ended - borrowed, all=ended - begin)
        ready = {name: value * 1000 for name, value in ms.items()}
        self._say({"ready": ready, "error": error, "used": work.memory_used()})

    def _off_the_workers(self, y: np.ndarray, x: np.ndarray) -> float:
        with self.session.open(layer_names()[0]) as weight:
            want = weight.matmul((x.astype(np.uint32) << 16).view(np.float32)).copy()
        error = float((np.linalg.norm(y - want, axis=1) / np.linalg.norm(want, axis=1)).max())
        if not error < 1e-2:
            raise RuntimeError(f"the first product is off by {error:.2e} of the worker's")
        return error

    def serve(self) -> None:
        commands: "queue.Queue[Optional[str]]" = queue.Queue()
        threading.Thread(target=self._hear, args=(commands,), daemon=True).start()
        while True:
            while self.paused or not commands.empty():
                line = commands.get()
                if line is None or line == "quit":
                    return
                self._obey(*line.split(" "))
            self.asked += self.chunk
            self.times.append(self.work.run(self.chunk))

    @staticmethod
    def _hear(commands) -> None:
        for line in sys.stdin:
            commands.put(line.strip())
        commands.put(None)

    def _obey(self, command: str, *words: str) -> None:
        if command == "phase":
            done, wrong = self.work.counts()
            us, most = (statistics.median(self.times), max(self.times)) if self.times else (0.0, 0.0)
            self._say({"steps": done, "wrong": wrong, "failed": self.asked - done, "us": us, "most": most})
            self.asked, self.times = 0, []
        elif command in ("pause", "resume"):
            self.paused = command == "pause"
            self._say({})
        elif command == "session":
            threading.Thread(target=self._look, daemon=True).start()
        elif command == "memory":
            self._say({"used": self.work.memory_used()})
        elif command == "borrow":
            self.more = [self.direct.borrow(name) for name in words]
            self._say({"used": self.work.memory_used()})

    def _look(self) -> None:
        """Beside the steps, which need no session."""
        try:
            self._say({"pid": self.session.status().pid})
        except Exception as error:
            self._say({"pid": 0, "why": f"{type(error).__name__}: {error}"})

    @staticmethod
    def _say(what: Dict) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


# ---- the parent's side of one


class Ended(Exception):
    pass


class Child:
    def __init__(self, name: str, arguments, socket: str):
        self.name, self.paused = name, False
        chosen = ["--backend", arguments.backend, "--size", arguments.size, "--rows", arguments.rows]
        chosen += ["--chunk", arguments.chunk, "--engine", "--socket", socket]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *map(str, chosen)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answers: "queue.Queue[Optional[str]]" = queue.Queue()
        threading.Thread(target=self._hear, daemon=True).start()
        try:
            self.ready = self._answer()
        except Ended:
            self.kill()
            raise

    def _hear(self) -> None:
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def _answer(self) -> Dict:
        try:
            line = self.answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Ended(f"{self.name} does not answer") from None
        if line is None:
            raise Ended(f"{self.name} has ended, status {self.process.wait()}")
        try:
            return json.loads(line)
        except ValueError:
            raise Ended(f"{self.name} says {line.strip()[:200]}") from None

    def tell(self, command: str) -> None:
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except OSError:
            raise Ended(f"{self.name} has ended, status {self.process.wait()}") from None

    def ask(self, command: str) -> Dict:
        self.tell(command)
        return self._answer()

    def pause(self) -> None:
        self.ask("pause")
        self.paused = True

    def resume(self) -> None:
        self.ask("resume")
        self.paused = False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        with contextlib.suppress(Ended):
            self.tell("quit")
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


# ---- the run


class Run:
    def __init__(self, arguments, daemon):
        import gemmclient

        self.gemmclient = gemmclient
        self.arguments, self.daemon = arguments, daemon
        self.engines: List[Child] = []
        self.steps = self.bad = self.lost = 0
        self.session = self._connect()

    def _connect(self):
        return self.gemmclient.connect(self.daemon.socket, name="lifetimes", reconnect=PATIENCE_S, timeout=60)

    def device(self):
        return self.session.status().devices[0]

    def await_ready(self, restarts: int = -1) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(self.gemmclient.GemmdError):
                device = self.device()
                if device.state == "ready" and device.restarts != restarts:
                    return
            if time.monotonic() > deadline:
                raise Ended("gemmd's worker does not come back")
            time.sleep(0.02)

    def load(self, seed: int = 2) -> int:
        """The engines' weights, under their names. Bytes."""
        size, random = self.arguments.size, np.random.default_rng(seed)
        total = 0
        for name in layer_names():
            values = random.standard_normal((size, size), dtype=np.float32) / np.float32(size**0.5)
            chosen = name.rpartition(".")[2]
            total += self.session.load_array(values, name=name, format=chosen, replace=True).bytes
        return total

    def start(self, name: str) -> Child:
        engine = Child(name, self.arguments, self.daemon.socket)
        ms = engine.ready["ready"]
        parts = ", ".join(f"{part} {ms[part]:.1f}" for part in ("connect", "open", "borrow", "product"))
        print(
            f"{name}: {ms['all']:.1f} ms from connect() to the first product's end ({parts}), "
            f"off the worker's by {engine.ready['error']:.1e}"
            f"{mib(', ', engine.ready['used'], ' of the device in use')}",
            flush=True,
        )
        self.engines.append(engine)
        return engine

    def phase(
        self, what: str, event: Optional[Callable[[], None]] = None, seconds: Optional[float] = None
    ) -> List[float]:
        """The event, within at least so many seconds of steps. Prints, counts, and returns the engines' medians, in
        microseconds a step; printed beside them is the slowest chunk's."""
        seconds = self.arguments.seconds if seconds is None else seconds
        begin = time.monotonic()
        time.sleep(seconds / 4)
        if event is not None:
            event()
        time.sleep(max(seconds / 4, begin + seconds - time.monotonic()))
        texts, medians = [], []
        for engine in self.engines:
            counted = engine.ask("phase")
            self.steps += counted["steps"]
            self.bad += counted["wrong"] + counted["failed"]
            medians.append(counted["us"])
            if engine.paused and counted["steps"] == 0:
                continue
            self.bad += counted["steps"] == 0  # it stood still
            texts.append(
                f"{engine.name} {counted['steps']} steps, {counted['wrong']} wrong, {counted['failed']} failed, "
                f"{counted['us']:.1f} us (most {counted['most']:.1f})"
            )
        print(f"{what}: " + "; ".join(texts), flush=True)
        return medians

    def sessions_resume(self, what: str) -> None:
        """Each engine's session talks to the gemmd that is there now."""
        for engine in self.engines:
            found = engine.ask("session")
            if found["pid"] != self.daemon.process.pid:
                self.lost += 1
                print(f"{what}: {engine.name}'s session is lost: {found.get('why', found['pid'])}", flush=True)

    # ---- what happens

    def worker_killed(self) -> None:
        device = self.device()
        if device.pid <= 1:
            raise Ended("gemmd has no worker to kill")
        os.kill(device.pid, signal.SIGKILL)
        self.await_ready(device.restarts)

    def gemmd_killed(self) -> None:
        self.die()
        time.sleep(1)
        self.revive()

    def die(self) -> None:
        """gemmd and all that it has started, which ends without it; only then is it quiet."""
        family = descendants(self.daemon.process.pid)
        self.daemon.kill()
        deadline = time.monotonic() + 30
        while any(alive(pid) for pid in family):
            if time.monotonic() > deadline:
                raise Ended("gemmd's children do not end with it")
            time.sleep(0.01)

    def revive(self) -> None:
        self.daemon.start()
        self.await_ready()
        self.load()

    def others_loaded(self) -> None:
        size, random = self.arguments.size, np.random.default_rng(3)
        end = time.monotonic() + self.arguments.seconds / 2
        rounds = 0
        while time.monotonic() < end or rounds == 0:
            for format in ("fp8", "int8", "int2"):
                values = random.standard_normal((size, size), dtype=np.float32)
                self.session.load_array(values, name=f"other/{format}", format=format, replace=True)
            for format in ("fp8", "int8", "int2"):
                self.session.unload(f"other/{format}")
            rounds += 1

    def names_taken(self) -> None:
        """The engines' own names, by other values; then they go, and the first values come back."""
        self.load(4)
        for name in layer_names():
            self.session.unload(name)
        self.load()

    def engine_killed(self) -> None:
        third = self.start("engine 3")
        time.sleep(self.arguments.seconds / 4)
        third.kill()
        self.engines.remove(third)

    def gemmd_stopped(self) -> None:
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        time.sleep(self.arguments.seconds / 2)
        os.kill(self.daemon.process.pid, signal.SIGCONT)
        self.await_ready()

    def gemmd_upgraded(self) -> None:
        command = [os.environ["GEMMD_BINARY"], "--config", str(self.daemon.folder / "gemmd.conf"), "--upgrade"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        self.await_ready()

    def events(self) -> None:
        self.phase("nothing")
        for what, event in (
            ("worker killed", self.worker_killed),
            ("other weights loaded and unloaded", self.others_loaded),
            ("the engines' names replaced and unloaded", self.names_taken),
            ("a third engine started and killed", self.engine_killed),
            ("gemmd stopped and continued", self.gemmd_stopped),
            ("gemmd upgraded in place", self.gemmd_upgraded),
            ("gemmd killed and started again, empty", self.gemmd_killed),
        ):
            self.phase(what, event)
            self.sessions_resume(what)

    # ---- what is measured

    def alive_and_dead(self) -> None:
        """One engine's steps, the others pausing: gemmd alive, dead, dead, alive."""
        for engine in self.engines[1:]:
            engine.pause()
        self.phase("before A B B A")
        medians = [self.phase("gemmd alive")[0]]
        self.die()
        self.phase("gemmd has died", seconds=1)
        medians += [self.phase("gemmd dead")[0], self.phase("gemmd dead")[0]]
        self.revive()
        self.phase("gemmd is back", seconds=2)
        medians += [self.phase("gemmd alive")[0]]
        live, dead = (medians[0] + medians[3]) / 2, (medians[1] + medians[2]) / 2
        more = (live / dead - 1) * 100
        print(f"a step with gemmd alive {live:.2f} us, dead {dead:.2f} us: {more:+.2f} %", flush=True)
        for engine in self.engines[1:]:
            engine.resume()
        self.sessions_resume("gemmd was dead for two phases")

    def memory(self) -> None:
        """What engines take for the same weights, beside what gemmd has for them."""
        names = [f"large/{i}" for i in range(8)]
        n, k = (16384, 8192) if self.arguments.backend == "cuda" else (256, 256)
        values = bf16(np.random.default_rng(5).standard_normal((n, k), dtype=np.float32))
        while len(self.engines) < 3:
            self.start(f"engine {len(self.engines) + 1}")
        for engine in self.engines:
            engine.pause()
        before = self.engines[0].ask("memory")["used"]
        total = 0
        for i, name in enumerate(names):
            values[i, 0] ^= 0x80  # or they would be one and the same
            total += self.session.load_array(values, name=name, format="fp8", element="bf16").bytes
        used = [self.engines[0].ask("memory")["used"]]
        used += [engine.ask("borrow " + " ".join(names))["used"] for engine in self.engines]
        more = [f"{(now - then) / (1 << 20):+.0f}" for then, now in zip([before, *used], used)]
        print(
            f"{total / (1 << 20):.0f} MiB of weights: gemmd takes {more[0]} MiB of the device to load them, three "
            f"engines that borrow them {more[1]}, {more[2]} and {more[3]}{mib('; ', used[-1], ' are in use')}",
            flush=True,
        )
        for engine in self.engines:
            engine.resume()
        self.engines.pop().end()

    def rest(self) -> None:
        while self.steps < self.arguments.steps:
            self.phase("further steps")

    def all(self) -> int:
        self.await_ready()
        print(f"the engines' weights: {self.load() / (1 << 20):.1f} MiB", flush=True)
        try:
            self.start("engine 1")
            self.start("engine 2")
            self.events()
            self.alive_and_dead()
            self.memory()
            self.rest()
        except (Ended, OSError, subprocess.SubprocessError, self.gemmclient.GemmdError) as error:
            self.bad += 1
            print(f"{type(error).__name__}: {error}", flush=True)
        for engine in self.engines:
            engine.end()
        print(f"{self.steps} steps, {self.bad} wrong or failed, {self.lost} sessions lost", flush=True)
        return 1 if self.bad or self.lost else 0


def stat(pid: int) -> List[str]:
    """State, parent and so on; none where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> List[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        fields = stat(int(entry.name)) if entry.name.isdigit() else []
        if len(fields) > 1:
            parents[int(entry.name)] = int(fields[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def alive(pid: int) -> bool:
    return stat(pid)[:1] not in ([], ["Z"], ["X"])


def mib(before: str, size: int, after: str) -> str:
    """Nothing where nothing is known."""
    return f"{before}{size / (1 << 20):.0f} MiB{after}" if size else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100000, help="of all engines together, at least")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a phase, at least")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", type=int, default=2048, help="N and K of the layers")
    parser.add_argument("--rows", type=int, default=1, help="of x")
    parser.add_argument("--chunk", type=int, help="steps that are timed together")
    parser.add_argument("--options", default="", help="further lines of gemmd.conf, between semicolons")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--socket", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.chunk is None:
        arguments.chunk = 100 if arguments.backend == "cuda" else 5
    if arguments.engine:
        Engine(arguments).serve()
        return 0
    os.environ["GEMMD_TEST_BACKEND"] = arguments.backend
    import support

    begin = time.monotonic()
    with support.Daemon(arguments.options.replace(";", "\n")) as daemon:
        status = Run(arguments, daemon).all()
        if status != 0:
            sys.stderr.write(daemon.log()[-4000:])
    print(f"{time.monotonic() - begin:.0f} s", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
