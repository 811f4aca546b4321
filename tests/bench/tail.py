#!/usr/bin/env python3
"""The tail of calls at 70 % of the highest rate: p99.9 over p50, tuning in the background and off.

For each weight a daemon of each mode, in turns, the other one stopped meanwhile; tuning begins anew in each turn. A
turn looks for the highest rate at which products end as fast as they are asked for, asks for 70 % of that at random
times, counted from when a product was due, and looks then whether the rate has become another by more than a tenth:
what a machine can do moves, and with it what share 70 % were. Such a turn, and one whose own rate was too much
meanwhile, is marked `moved`, and stands by itself in the summary. `machine` is the tail that the cores alone would give such calls, from threads that do nothing but read
the clock afterwards (gemm-bench(1)); while tuning goes on these are not alone.

tail.py [--backend cpu|cuda] [--format int8] [--shapes 1536x384,4096x4096] [--seconds N] [--turns N] [--clients C]
        [--in-flight D]      programs from $GEMMD_BUILD; needs no package of Python's
"""

from __future__ import annotations

import argparse
import statistics
from typing import Dict, List, Tuple

from daemon import Daemon, Failed, Shape, attempt, end_with_daemons, pooled, quantile

SHARE = 0.7  # of the highest rate
MOVED = 0.1  # of it, from before a turn to behind it
PROBE_S = 0.3  # of load, to see whether it
KEEPS = 0.98  # of a rate keeps up
MODES = ("background", "off")

Buckets = Dict[float, int]


def ratio(buckets: Buckets) -> float:
    return quantile(buckets, 0.999) / quantile(buckets, 0.5)


class Turn:
    """One load of one daemon, between two looks at what it can do."""

    def __init__(self, daemon: Daemon, call: List[str], seconds: float) -> None:
        self.daemon, self.call = daemon, call
        self.highest = self.look()
        rate = max(1, int(SHARE * self.highest))
        got = self.load(rate, seconds, "--histogram")
        self.moved = (
            got["rows_per_s"] < KEEPS * rate
            or not self.keeps_up(self.highest * (1 - MOVED))
            or self.keeps_up(self.highest * (1 + MOVED))
        )
        self.latency: Buckets = dict(got["latency_us"]["buckets"])
        self.machine_us = got["machine_us"]["p999"]  # while the daemon tunes for lack of requests that is no measure

    def load(self, rate: float, seconds: float, *words: str) -> dict:
        return self.daemon.ask(
            "gemm-bench", *self.call, *words, "--warmup", "0.1", "--seconds", str(seconds), "--rate", str(rate)
        )

    def keeps_up(self, rate: float) -> bool:
        return self.load(rate, PROBE_S)["rows_per_s"] >= KEEPS * rate

    def look(self) -> float:
        """Halves what lies between nothing and the rate where each product waits for another."""
        words = [*self.call, "--warmup", "0.1", "--seconds", str(PROBE_S)]
        low, high = 0.0, self.daemon.ask("gemm-bench", *words)["rows_per_s"]
        closed = high
        while high - low > closed / 32:
            middle = (low + high) / 2
            low, high = (middle, high) if self.keeps_up(middle) else (low, middle)
        if low == 0:
            raise Failed(f"no rate keeps up, of {closed:.0f} rows/s where each product waits for another")
        return low

    def line(self, alone: bool) -> str:
        p50, p999 = (quantile(self.latency, part) for part in (0.5, 0.999))
        return (
            f"{self.highest:10.0f} rows/s at most, p50 {p50:8.1f}, p99.9 {p999:9.1f} us, {ratio(self.latency):6.1f} times"
            f"{f', machine {self.machine_us:.1f}' if alone else ''}{', moved' if self.moved else ''}"
        )


def summary(turns: List[Turn]) -> str:
    if not turns:
        return "none"
    ratios = sorted(ratio(turn.latency) for turn in turns)
    together = ratio(pooled([turn.latency for turn in turns]))
    return f"{len(turns)} turns, p99.9 / p50 {ratios[0]:.1f} to {ratios[-1]:.1f}, median {statistics.median(ratios):.1f}, all calls together {together:.1f}"


def measure(backend: str, format: str, shape: Shape, call: List[str], seconds: float, count: int) -> None:
    turns: Dict[str, List[Turn]] = {mode: [] for mode in MODES}
    with Daemon(backend, MODES[0]) as first, Daemon(backend, MODES[1]) as second:
        daemons = dict(zip(MODES, (first, second)))
        names = [daemon.load(format, shape) for daemon in daemons.values()]
        words = ["--weight", names[0], *call]
        print(f"== {names[0]}, one row", flush=True)
        for turn in range(2 * count):
            mode = MODES[turn % 4 in (1, 2)]
            for other, daemon in daemons.items():
                daemon.stop(other != mode)
            if mode == MODES[0]:
                first.tool("gemmctl", "tune", "forget", "*")
            turns[mode].append(Turn(daemons[mode], words, seconds))
            print(f"{mode:<11}{turns[mode][-1].line(mode == 'off')}", flush=True)
        for daemon in daemons.values():
            daemon.stop(False)
        tuned = sum(each["state"] == "tuned" for each in first.shapes())
    print(f"{tuned} shapes were tuned in the last turn")
    for mode, every in turns.items():
        print(f"{mode:<11}steady: {summary([turn for turn in every if not turn.moved])}")
        print(f"{'':<11}moved:  {summary([turn for turn in every if turn.moved])}", flush=True)


def parse_shapes(text: str) -> List[Shape]:
    shapes: List[Tuple[int, int]] = []
    for word in text.split(","):
        n, k = word.split("x")
        shapes.append((int(n), int(k)))
    return shapes


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    options.add_argument("--format", choices=("int8", "fp8", "int2", "int2a8"), default="int8")
    options.add_argument("--shapes", type=parse_shapes, default="1536x384,4096x4096", metavar="NxK,...")
    options.add_argument("--seconds", type=float, default=2, help="of load in each turn")
    options.add_argument("--turns", type=int, default=4, help="of each mode")
    options.add_argument("--clients", type=int, default=1)
    options.add_argument("--in-flight", type=int, default=16, help="products that a client has under way at most")
    given = options.parse_args()
    call = ["--clients", str(given.clients), "--in-flight", str(given.in_flight)]
    end_with_daemons()
    for shape in given.shapes:
        if not attempt("tail", measure, given.backend, given.format, shape, call, given.seconds, given.turns):
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
