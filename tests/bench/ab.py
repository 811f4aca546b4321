#!/usr/bin/env python3
"""Two builds against each other on one machine: A B B A, so that what drifts meets both alike.

ab.py kernels A B [--backend cpu|cuda] [--formats LIST] [--shapes LIST] [--m LIST] [--turns N] [-- OPTIONS...]
    A and B: programs gemm-bench, or folders that hold them. Each shape is measured by processes of its own, a process a
    turn; OPTIONS go to `gemm-bench kernels` as they are (--rounds, --scale, --bias, ...).
ab.py calls A B [the same] [--seconds S] [-- OPTIONS...]
    A and B: folders with gemmd, gemmctl and gemm-bench. A daemon of each, tuning off; the other one is stopped during a
    turn. OPTIONS go to `gemm-bench serve`.

A line a case: the median of A and of B, and B/A, the geometric mean over pairs of neighbouring turns, with the least
and the greatest of them; behind it that of B's fastest turn to A's, which others on the machine disturb less. In the
end geometric means of both, and where a library was measured beside, its own: what the machine alone did. Above 1, B
takes longer. With --most R, ends with 1 where a geometric mean of B/A is above R.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Tuple

from daemon import Daemon, Failed, end_with_daemons

SIDES = (0, 1, 1, 0)  # of a turn
CALL_PARTS = ("latency_us", "overhead_us")  # whose medians are compared

Times = Dict[str, List[List[float]]]  # of a case: microseconds of A and of B, as they came


def geometric(values: List[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def add(times: Times, case: str, side: int, us: float) -> None:
    times.setdefault(case, [[], []])[side].append(us)


def ratios(sides: List[List[float]]) -> List[float]:
    """Of the first A to the first B, the second B to the second A, and so on."""
    return [b / a for a, b in zip(*sides) if a > 0]


def report(title: str, times: Times, groups: Dict[str, str]) -> List[float]:
    """Lines of cases, then means by group; `groups` names that of a case. Returns the means."""
    by_group: Dict[str, List[Tuple[float, float]]] = {}
    for case, sides in times.items():
        pairs = ratios(sides)
        if not pairs:
            continue
        fastest = min(sides[1]) / min(sides[0])
        by_group.setdefault(groups[case], []).append((geometric(pairs), fastest))
        a, b = (statistics.median(side) for side in sides)
        spread = f"({min(pairs):.3f} to {max(pairs):.3f})"
        print(f"{case:<52}{a:10.2f}{b:10.2f} us  B/A {geometric(pairs):.4f}  {spread}  fastest {fastest:.4f}")
    every = [value for values in by_group.values() for value in values]
    for group, values in [*sorted(by_group.items()), ("all", every)]:
        mean, fastest = (geometric([value[i] for value in values]) for i in (0, 1))
        greatest = max((value[0] for value in values), default=math.nan)
        means = f"B/A {mean:.4f}, fastest {fastest:.4f}"
        print(f"{title}, {group}: {means}, {len(values)} cases, greatest B/A {greatest:.4f}")
    return [geometric([value[0] for value in values]) for values in [*by_group.values(), every] if values]


# ---- kernels


def objects(text: str) -> List[dict]:
    """One JSON object behind the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found


def program(given: str) -> str:
    path = Path(given)
    return str(path / "gemm-bench" if path.is_dir() else path)


class Kernels:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.programs = [program(given.a), program(given.b)]
        self.times: Times = {}
        self.library: Times = {}
        self.groups: Dict[str, str] = {}
        self.kernels: Dict[str, List[set]] = {}

    def run(self, side: int, shape: str) -> None:
        given = self.given
        words = [self.programs[side], "kernels", "--backend", given.backend, "--formats", given.formats]
        words += ["--shapes", shape, "--m", given.m, "--json", *(["--peer", "none"] if given.backend == "cpu" else [])]
        done = subprocess.run([*words, *given.options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(words)}: {done.stderr.strip()}")
        for row in objects(done.stdout):
            if "format" in row and "us" in row:
                self.note(side, row)

    def note(self, side: int, row: dict) -> None:
        types = "".join(f" {row[key]}" for key in ("x_type", "y_type") if key in row)
        case = f"{row['format']} {row['scale']} {row['n']}x{row['k']}{types} M {row['m']}"
        self.groups[case] = row["format"]
        add(self.times, case, side, row["us"])
        self.kernels.setdefault(case, [set(), set()])[side].add(row.get("kernel"))
        for rival in row.get("rivals", []):
            name = f"{case} {rival['name']}"
            self.groups[name] = rival["name"]
            add(self.library, name, side, rival["us"])
        if row.get("peer_us"):
            name = f"{case} {row['peer']}"
            self.groups[name] = row["peer"]
            add(self.library, name, side, row["peer_us"])

    def measure(self) -> List[float]:
        for shape in self.given.shapes.split(","):
            for _ in range(self.given.turns):
                for side in SIDES:
                    self.run(side, shape)
        if self.library:
            report("the library", self.library, self.groups)
        means = report("kernels", self.times, self.groups)
        for case, (a, b) in self.kernels.items():
            if a != b:
                print(f"{case}: A took {', '.join(map(str, a))}, B {', '.join(map(str, b))}")
        return means


# ---- calls


def measure_calls(given: argparse.Namespace) -> List[float]:
    times: Times = {}
    groups: Dict[str, str] = {}
    builds = [Path(side).resolve() for side in (given.a, given.b)]
    with Daemon(given.backend, "off", build=builds[0]) as a, Daemon(given.backend, "off", build=builds[1]) as b:
        for format in given.formats.split(","):
            for shape in given.shapes.split(","):
                n, _, k = shape.partition("x")
                names = [side.load(format, (int(n), int(k))) for side in (a, b)]
                for m in given.m.split(","):
                    words = ["--m", m, "--seconds", str(given.seconds), *given.options]
                    for side in SIDES * given.turns:
                        got = call_turn((a, b), side, ["--weight", names[side], *words])
                        for part in CALL_PARTS:
                            case = f"{names[side]} M {m} {part[:-3]}"
                            groups[case] = part[:-3]
                            add(times, case, side, got[part]["p50"])
    return report("calls", times, groups)


def call_turn(daemons: Tuple[Daemon, Daemon], side: int, words: List[str]) -> dict:
    """Asks the one daemon while the other is stopped."""
    for each, daemon in enumerate(daemons):
        daemon.stop(each != side)
    try:
        return daemons[side].ask("gemm-bench", "serve", *words)
    finally:
        for daemon in daemons:
            daemon.stop(False)


def main() -> int:
    words, options = sys.argv[1:], []
    if "--" in words:
        at = words.index("--")
        words, options = words[:at], words[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kernels", "calls"))
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--formats", default="int8,fp8,int2,int2a8,f16,bf16", metavar="LIST")
    parser.add_argument("--shapes", default="4096x4096,1536x384", metavar="NxK,...")
    parser.add_argument("--m", default="1,16,128", metavar="LIST")
    parser.add_argument("--turns", type=int, default=2, help="of A B B A for each shape")
    parser.add_argument("--seconds", type=float, default=1, help="calls: of each of the four")
    parser.add_argument("--most", type=float, default=math.inf, help="B/A that is allowed")
    given = parser.parse_args(words)
    given.options = options
    end_with_daemons()
    try:
        means = Kernels(given).measure() if given.what == "kernels" else measure_calls(given)
    except Failed as reason:
        print(f"ab: {reason}", file=sys.stderr)
        return 2
    return 1 if not means or max(means) > given.most else 0


if __name__ == "__main__":
    raise SystemExit(main())
