#!/usr/bin/env python3
"""How fast models are loaded, beside what the machine copies, in one run:

  cp              the model's files to a tmpfs by cp
  read            the same by pread, as many threads as there are processors, into memory that is there
  copy            memory to memory, as many threads
  bus             memory to the GPU, pinned (with torch and a GPU)
  FORMAT          gemmctl load FOLDER --format FORMAT: into an empty gemmd
  FORMAT again    the same while the content is there, under another prefix
  FORMAT trusted  and with --trust-size-and-time

load.py [--backend cpu|cuda] [--mib N] [--type bf16|f16|fp8] [--folder DIR] [--rounds N] [FORMAT...]

Rates are bytes of the files a second; `of cp` is against cp of the same round. `core s/GB`: seconds that gemmd's
processes computed for a GB of the files. `beside` is the most memory that they came to have beside the slabs of weights:
their own, and memfds, each counted once. Random tensors of that type (bf16) in shards, those of fp8 with a scale a row,
made in DIR (a tmpfs by default, so that they are in memory); FORMAT `stored` is: as they are. Programs from
$GEMMD_BUILD.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from daemon import Daemon, end_with_daemons

MIB = 1 << 20
PIECE = 4 * MIB
SHARD = 2 << 30
# N and K of a layer's weights: of an 8B, and of a 70B model
LAYERS = {
    "cpu": [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (14336, 4096), (14336, 4096), (4096, 14336)],
    "cuda": [(8192, 8192), (1024, 8192), (1024, 8192), (8192, 8192), (28672, 8192), (28672, 8192), (8192, 28672)],
}
NAMES = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"] + [
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
]


def processors() -> int:
    return len(os.sched_getaffinity(0))


# ---- the model


# name in a file, bytes, and the least of the upper byte's: numbers of all mantissas, in magnitude up to 1
TYPES = {"bf16": ("BF16", 2, 0x3B), "f16": ("F16", 2, 0x30), "fp8": ("F8_E4M3", 1, 0x20)}
Tensor = Tuple[str, str, int, int]  # name, type in the file, N, K


def random_block(kind: str, bytes_: int) -> bytes:
    _, element, least = TYPES[kind]
    data = bytearray(os.urandom(bytes_))
    data[element - 1 :: element] = data[element - 1 :: element].translate(
        bytes(least + (byte & 3) | byte & 0x80 for byte in range(256))
    )
    return bytes(data)


def bytes_of(tensor: Tensor) -> int:
    _, kind, n, k = tensor
    return n * k * {"BF16": 2, "F16": 2, "F8_E4M3": 1, "F32": 4}[kind]


def write_shard(path: Path, tensors: List[Tensor], block: bytes) -> None:
    head: Dict[str, object] = {}
    end = 0
    for tensor in tensors:
        name, kind, n, k = tensor
        head[name] = {"dtype": kind, "shape": [n, k], "data_offsets": [end, end + bytes_of(tensor)]}
        end += bytes_of(tensor)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for i, tensor in enumerate(tensors):
            left, at = bytes_of(tensor), 2 * (hash(tensor[0]) % (len(block) // 4))
            if tensor[1] == "F32":
                left -= file.write(struct.pack("<f", 0.5) * (left // 4))
                continue
            file.write(struct.pack("<Q", i))  # no two tensors are alike
            left -= 8
            while left > 0:
                left -= file.write(block[at : at + min(left, len(block) - at)])
                at = 0


def tensors_of(layer: int, name: str, n: int, k: int, kind: str) -> List[Tensor]:
    full = f"model.layers.{layer}.{name}"
    scale = [(full + ".weight_scale", "F32", n, 1)] if kind == "fp8" else []
    return [(full + ".weight", TYPES[kind][0], n, k), *scale]


def make_model(folder: Path, options: argparse.Namespace, mib: int) -> int:
    """Shards with an index; their bytes."""
    shards: List[List[Tensor]] = [[]]
    size = total = layer = 0
    while total < mib * MIB:
        for name, (n, k) in zip(NAMES, LAYERS[options.backend]):
            tensors = tensors_of(layer, name, n, k, options.type)
            more = sum(map(bytes_of, tensors))
            if size > 0 and size + more > SHARD:
                shards.append([])
                size = 0
            shards[-1] += tensors
            size += more
            total += more
            if total >= mib * MIB:
                break
        layer += 1
    block = random_block(options.type, 64 * MIB)
    weights = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / file, shard, block)
        weights.update({tensor[0]: file for tensor in shard})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    return total


def files_of(folder: Path) -> List[Path]:
    return sorted(folder.glob("*.safetensors"))


# ---- what the machine does


def timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def touch(total: int) -> None:
    """A virtual machine gets memory from its host as it is touched for the first time, whoever does that pays."""
    with mmap.mmap(-1, total) as memory:
        for at in range(0, total, mmap.PAGESIZE):
            memory[at] = 1


def cp(folder: Path, where: Path) -> float:
    target = where / "copy"
    target.mkdir()
    seconds = timed(lambda: subprocess.run(["cp", *map(str, files_of(folder)), str(target)], check=True))
    shutil.rmtree(target)
    return seconds


def in_threads(work: Callable[[int], None]) -> float:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(processors())]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return timed(run)


def read(folder: Path) -> float:
    pieces = [(path, at) for path in files_of(folder) for at in range(0, path.stat().st_size, PIECE)]
    buffers = [bytearray(os.urandom(1) * PIECE) for _ in range(processors())]

    def work(which: int) -> None:
        for path, at in pieces[which :: processors()]:
            fd = os.open(path, os.O_RDONLY)
            os.preadv(fd, [buffers[which]], at)
            os.close(fd)

    return in_threads(work)


def copy(total: int) -> float:
    import ctypes

    buffers = [(ctypes.create_string_buffer(b"\1" * (8 * PIECE)), ctypes.create_string_buffer(b"\1" * (8 * PIECE)))]
    buffers += [tuple(ctypes.create_string_buffer(b"\1" * (8 * PIECE)) for _ in "ab") for _ in range(processors() - 1)]
    times = total // (8 * PIECE * processors()) + 1

    def work(which: int) -> None:
        for _ in range(times):
            ctypes.memmove(buffers[which][0], buffers[which][1], 8 * PIECE)

    return in_threads(work) * total / (times * 8 * PIECE * processors())


def bus() -> float:
    """Bytes a second; 0: there is no GPU, or no torch."""
    try:
        import torch
    except ImportError:
        return 0.0
    if not torch.cuda.is_available():
        return 0.0
    host = torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    best = 1e9
    for _ in range(5):
        torch.cuda.synchronize()
        best = min(best, timed(lambda: (device.copy_(host, non_blocking=True), torch.cuda.synchronize())))
    return 256 * MIB / best


# ---- memory


def family(root: int) -> List[int]:
    """The process and all below it."""
    parents = {}
    for process in os.listdir("/proc"):
        if process.isdigit():
            try:
                parents[int(process)] = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    found = [root]
    for parent in found:
        found += [process for process in parents if parents[process] == parent]
    return found


def memory_of(root: int) -> int:
    """What is the processes' own, and memfds that are not slabs."""
    own, memfds = 0, {}
    for process in family(root):
        try:
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    own += int(line.split()[1]) * 1024
            for fd in os.listdir(f"/proc/{process}/fd"):
                path = f"/proc/{process}/fd/{fd}"
                link = os.readlink(path)
                if "memfd:" in link and "gemmd-weights" not in link:
                    facts = os.stat(path)
                    memfds[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
        except OSError:
            continue
    return own + sum(memfds.values())


def core_seconds(root: int) -> float:
    """That the processes have computed, those that have ended included."""
    ticks = 0
    for process in family(root):
        try:
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def settle(root: int) -> None:
    """Until the worker of a GPU has what it makes once when it starts, cuBLASLt's tables: they are of no load."""
    still, last, until = 0, memory_of(root), time.monotonic() + 20
    while still < 10 and time.monotonic() < until:
        time.sleep(0.1)
        now = memory_of(root)
        still, last = (still + 1 if abs(now - last) < MIB else 0), now


class Watch:
    """The most memory that gemmd has beyond what it had, looked at every 20 ms; and what it computes."""

    def __init__(self, root: int) -> None:
        self.root, self.most, self.ended = root, 0, threading.Event()
        self.before, self.seconds = memory_of(root), core_seconds(root)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            self.most = max(self.most, memory_of(self.root))

    def end(self) -> None:
        self.ended.set()
        self.thread.join()
        self.most = max(0, self.most - self.before)
        self.seconds = core_seconds(self.root) - self.seconds


# ---- loads


def load(daemon: Daemon, folder: Path, format: str, prefix: str, *words: str) -> float:
    return timed(lambda: daemon.tool("gemmctl", "load", str(folder), "--format", format, "--prefix", prefix, *words))


class Rates:
    def __init__(self, total: int) -> None:
        self.total = total
        self.rates: Dict[str, List[float]] = {}
        self.against: Dict[str, List[float]] = {}
        self.beside: Dict[str, List[float]] = {}
        self.cores: Dict[str, List[float]] = {}

    def add(self, what: str, seconds: float, cp_seconds: float = 0.0, watch: Optional[Watch] = None) -> None:
        self.rates.setdefault(what, []).append(self.total / seconds / 1e9)
        if cp_seconds:
            self.against.setdefault(what, []).append(cp_seconds / seconds)
        if watch:
            self.beside.setdefault(what, []).append(watch.most / MIB)
            self.cores.setdefault(what, []).append(watch.seconds / self.total * 1e9)
        print(f"# {what}: {self.total / seconds / 1e9:.2f} GB/s", flush=True)

    def table(self) -> None:
        print(f"{'':16} {'GB/s':>7} {'least':>7} {'most':>7} {'of cp':>6} {'core s/GB':>9} {'beside, MiB':>11}")
        for what, rates in self.rates.items():
            of = f"{statistics.median(self.against[what]):6.2f}" if what in self.against else "     -"
            cores = f"{statistics.median(self.cores[what]):9.2f}" if what in self.cores else "        -"
            beside = f"{max(self.beside[what]):11.0f}" if what in self.beside else "          -"
            rate = f"{statistics.median(rates):7.2f} {min(rates):7.2f} {max(rates):7.2f}"
            print(f"{what:16} {rate} {of} {cores} {beside}")


TURNS = [("", "a.", []), (" again", "b.", []), (" trusted", "c.", ["--trust-size-and-time"])]


def watched(daemon: Daemon, folder: Path, format: str, prefix: str, *words: str) -> Tuple[float, Watch]:
    watch = Watch(daemon.process.pid)
    try:
        return load(daemon, folder, format, prefix, *words), watch
    finally:
        watch.end()


def one_round(options: argparse.Namespace, folder: Path, where: Path, rates: Rates) -> None:
    cp_seconds = cp(folder, where)
    rates.add("cp", cp_seconds)
    rates.add("read", read(folder))
    rates.add("copy", copy(rates.total))
    for format in options.formats:
        with Daemon(options.backend, "off", *options.option) as daemon:
            if options.backend == "cuda":
                settle(daemon.process.pid)
            for what, prefix, words in TURNS:
                seconds, watch = watched(daemon, folder, format, prefix, *words)
                rates.add(format + what, seconds, cp_seconds, watch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--mib", type=int, default=0, help="of the model; cpu: 512, cuda: 16384")
    parser.add_argument("--type", choices=TYPES, default="bf16", help="of the model's tensors")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], help="of gemmd, as --option=--loaders_max=4")
    parser.add_argument("formats", nargs="*", metavar="FORMAT", default=[])
    options = parser.parse_args()
    options.formats = options.formats or ["int8", "fp8", "bf16", "int2"]
    end_with_daemons()
    with tempfile.TemporaryDirectory(prefix="gemmd-load-", dir=options.folder) as where:
        folder = Path(where) / "model"
        folder.mkdir()
        total = make_model(folder, options, options.mib or (512 if options.backend == "cpu" else 16384))
        print(f"# {total / 1e9:.1f} GB in {len(files_of(folder))} shards, {processors()} processors", flush=True)
        if options.backend == "cuda":
            print(f"# bus: {bus() / 1e9:.1f} GB/s", flush=True)
        rates = Rates(total)
        if options.backend == "cpu":
            touch(4 * total)
        for _ in range(options.rounds):
            one_round(options, folder, Path(where), rates)
        rates.table()


if __name__ == "__main__":
    main()
