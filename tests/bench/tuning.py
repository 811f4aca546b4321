#!/usr/bin/env python3
"""What tuning costs and gives, each against daemons of its own:

  load        p99 of calls at 30 % of the rate that can be had, tuning in the background and off: a daemon of each, in
              turns A B B A, the other one stopped meanwhile; their ratio with an interval that holds it in 95 of 100 runs
  twice       two searches, each anew: by how much the kernels differ that they choose
  exhaustive  the search against the whole product of parameters: both winners in one final, and the time that each took;
              two searches as in `twice`; what serves without tuning
  library     the fastest algorithm of a library against the first that it names; INT8, shapes of a 70B model
  sight       from the first request for a shape to its winner on an idle device

tuning.py [--backend cpu|cuda] [--seconds N] [--turns N] [PART...]      load, twice and sight without a PART; programs from $GEMMD_BUILD

A machine that does something else beside shows that, not the tuner. Random weights; needs no package of Python's.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from daemon import Daemon, Failed, Shape, attempt, end_with_daemons, pooled, quantile

# of weights, and rows of x; f16: K as in gradients of weights
Case = Tuple[str, Shape, int, str]  # format, shape, rows, type of y


def product(format: str, shapes: List[Shape], rows: List[int]) -> List[Case]:
    return [(format, shape, m, "bf16") for shape in shapes for m in rows]


SHAPES: Dict[str, List[Shape]] = {
    "cpu": [(1024, 1024), (1536, 384), (384, 1536), (2048, 512)],
    "cuda": [(4096, 4096), (8192, 1024), (1280, 8192), (2560, 2560)],
}
CASES: Dict[str, List[Case]] = {
    "cpu": product("int8", SHAPES["cpu"], [1, 8, 64])
    + product("fp8", SHAPES["cpu"], [1, 8, 64])
    + product("int2", SHAPES["cpu"], [1, 8, 64]),
    "cuda": product("int2", SHAPES["cuda"][:3], [1, 16, 64])
    + product("int2a8", SHAPES["cuda"][:3], [1, 16])
    + product("fp8", SHAPES["cuda"], [1, 16, 64])
    + [("f16", (n, 25088), n, y) for n in (128, 256) for y in ("f16", "f32")]
    + product("int8", SHAPES["cuda"], [1, 16, 64]),
}
LARGE = [(8192, 8192), (1280, 8192), (8192, 1024), (10240, 8192), (7168, 8192), (8192, 3584), (8192, 28672), (57344, 8192)]
LOAD_ROWS = "1:4,2:1,4:1,8:1,16:2,32:1,64:1"  # M:WEIGHT, of gemm-bench
LOAD_BAR = 1.10  # of p99, tuning on / off
RESAMPLES = 2000
LIMIT = 1.03  # two kernels that differ by no more are the same


def geometric_mean(values: List[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def time_of(result: dict, kernel: str) -> Optional[int]:
    """Of a kernel that a search has timed, ns."""
    for each in result["results"]:
        if each["kernel"] == kernel and each["ns"] > 0:
            return each["ns"]
    return None


def cases(daemon: Daemon):
    loaded: Dict[Tuple[str, Shape], str] = {}
    for format, shape, rows, y_type in CASES[daemon.backend]:
        if (format, shape) not in loaded:
            loaded[format, shape] = daemon.load(format, shape)
        yield loaded[format, shape], rows, y_type


def search_twice(daemon: Daemon, name: str, rows: int, y_type: str) -> Tuple[dict, dict, float]:
    """Two searches, each anew, and how far the kernels are apart: each against what wins at that moment, in one final."""
    first, second = daemon.tune(name, rows, y_type), daemon.tune(name, rows, y_type)
    if first["kernel"] == second["kernel"]:
        return first, second, 1.0
    part = []
    for kernel in (first["kernel"], second["kernel"]):
        result = daemon.tune(name, rows, y_type, "--kernel", kernel, anew=False)
        part.append((time_of(result, kernel) or math.inf) / time_of(result, result["kernel"]))
    return first, second, max(part) / min(part)


def say_twice(ratios: List[float]) -> None:
    same = sum(ratio <= LIMIT for ratio in ratios)
    print(f"twice: within 3 % in {same} of {len(ratios)} cases ({100 * same / len(ratios):.0f} %), worst {max(ratios):.3f}")


# ---- the parts


def p99(turns: List[Dict[float, int]]) -> float:
    return quantile(pooled(turns), 0.99)


def interval(on: List[Dict[float, int]], off: List[Dict[float, int]]) -> Tuple[float, float]:
    """Where the ratio of the pooled p99 lies, 95 %: a bootstrap (Efron) over turns, because the calls of a turn have
    what disturbs them in common."""
    source = random.Random(1)
    ratios = sorted(
        p99(source.choices(on, k=len(on))) / p99(source.choices(off, k=len(off))) for _ in range(RESAMPLES)
    )
    return ratios[RESAMPLES // 40], ratios[RESAMPLES - 1 - RESAMPLES // 40]


def verdict(low: float, high: float) -> str:
    if high <= LOAD_BAR:
        return f"at most {LOAD_BAR:.2f}"
    return f"more than {LOAD_BAR:.2f}" if low > LOAD_BAR else f"not told apart from {LOAD_BAR:.2f}: more --turns"


def part_load(backend: str, seconds: float, count: int) -> None:
    turns: Dict[str, List[Dict[float, int]]] = {"off": [], "background": []}
    # without quiet: bursts between requests are what is to be seen
    with Daemon(backend, "off") as off, Daemon(backend, "background", "--tune_quiet_ms", "3600000") as background:
        daemons = {"off": off, "background": background}
        for daemon in daemons.values():  # the same names in both
            names = ",".join(daemon.load(f, shape) for f in ("int8", "fp8") for shape in SHAPES[backend])
        call = ["--weight", names, "--m", LOAD_ROWS, "--x-type", "bf16", "--y-type", "bf16", "--warmup", "0.25", "--histogram"]
        background.stop(True)
        most = off.ask("gemm-bench", *call, "--seconds", "2")
        rate = max(1, int(0.3 * most["requests"] / most["seconds"]))
        for turn in range(count):
            mode = ("off", "background", "background", "off")[turn % 4]
            for other, daemon in daemons.items():
                daemon.stop(other != mode)
            got = daemons[mode].ask("gemm-bench", *call, "--seconds", str(seconds), "--rate", str(rate))
            turns[mode].append(dict(got["latency_us"]["buckets"]))
            print(f"{mode:<12}{got['requests']:>9} calls in {seconds:g} s, p99 {p99(turns[mode][-1:]):9.1f} us", flush=True)
        for daemon in daemons.values():
            daemon.stop(False)
        shapes = background.shapes()
    print(f"{'pooled':<12}{'calls':>9}{'p50':>9}{'p99':>9}{'p99.9':>9} us")
    for mode, each in turns.items():
        all_of = pooled(each)
        print(f"{mode:<12}{sum(all_of.values()):>9}" + "".join(f"{quantile(all_of, part):9.1f}" for part in (0.5, 0.99, 0.999)))
    low, high = interval(turns["background"], turns["off"])
    same = interval(turns["off"][0::2], turns["off"][1::2])
    tuned = sum(shape["state"] == "tuned" for shape in shapes)
    busy = sum(shape["tuning"] for shape in shapes)
    print(
        f"load: {rate} calls/s, p99 on / off {p99(turns['background']) / p99(turns['off']):.3f} (95 %: {low:.3f} to {high:.3f}), "
        f"{verdict(low, high)}; every other turn of off by the rest {same[0]:.3f} to {same[1]:.3f}; "
        f"tuned {tuned} of {len(shapes)} while on, {busy} at hand"
    )


def part_twice(backend: str) -> None:
    ratios = []
    with Daemon(backend, "off") as daemon:
        for name, rows, y_type in cases(daemon):
            first, second, ratio = search_twice(daemon, name, rows, y_type)
            ratios.append(ratio)
            both = [first["kernel"]] + [second["kernel"]] * (first["kernel"] != second["kernel"])
            print(f"{name:<20} {rows:>5} rows  {ratio:.3f}  {' | '.join(both)}", flush=True)
    say_twice(ratios)


def part_exhaustive(backend: str) -> None:
    quality, spent, ratios, gains = [], [], [], []
    print(f"{'weight':<20}{'rows':>5} {'y':<5}{'short us':>9}{'best us':>9}{'of best':>9}{'ms':>7}{'of time':>8}{'gain':>7}  kernels")
    with Daemon(backend, "off") as daemon:
        for name, rows, y_type in cases(daemon):
            # the first search loads the kernels that the others are about to time
            _first, short, ratio = search_twice(daemon, name, rows, y_type)
            whole = daemon.tune(name, rows, y_type, "--exhaustive", "--kernel", short["kernel"])
            ours, best = time_of(whole, short["kernel"]), time_of(whole, whole["kernel"])
            own = next(each["ns"] for each in whole["results"] if each["own"])
            if not ours or not best:
                raise Failed(f"{name}, {rows} rows: {short['kernel']} was not timed again: {whole['why']}")
            quality.append(best / ours)
            ratios.append(ratio)
            gains.append(own / ours)
            spent.append((short["spent_ns"], whole["spent_ns"]))
            kernels = "the same" if short["kernel"] == whole["kernel"] else f"{short['kernel']} | {whole['kernel']}"
            print(
                f"{name:<20}{rows:>5} {y_type:<5}{ours / 1e3:9.2f}{best / 1e3:9.2f}{quality[-1]:9.3f}"
                f"{short['spent_ns'] / 1e6:7.0f}{short['spent_ns'] / whole['spent_ns']:8.3f}{gains[-1]:7.3f}  "
                f"{kernels} ({whole['timed']} timed, {whole['wrong']} wrong)",
                flush=True,
            )
    share = [short / whole for short, whole in spent]
    print(
        f"exhaustive: {len(quality)} cases, of the best {geometric_mean(quality):.3f} (geometric mean), "
        f"worst {min(quality):.3f}, at least 0.98 in {sum(each >= 0.98 for each in quality)}; "
        f"of its time {geometric_mean(share):.3f} (all together {sum(s for s, _ in spent) / sum(w for _, w in spent):.3f}), "
        f"at most 0.10 in {sum(each <= 0.1 for each in share)}, worst {max(share):.3f}"
    )
    print(f"default / tuned: geometric mean {geometric_mean(gains):.3f}, worst {min(gains):.3f}")
    say_twice(ratios)


def part_library(backend: str) -> None:
    gains: Dict[int, List[float]] = {}
    with Daemon(backend, "off") as daemon:
        for shape in LARGE if backend == "cuda" else SHAPES["cpu"]:
            name = daemon.load_codes(shape)
            for rows in (1, 4, 16, 64):
                result = daemon.tune(name, rows, "bf16")
                if not result["library_first_ns"]:
                    raise Failed("there is no library")
                gains.setdefault(rows, []).append(result["library_first_ns"] / result["library_ns"])
            line = " ".join(f"{rows}: {each[-1]:.3f}" for rows, each in gains.items())
            print(f"{name:<20} first / best at rows {line}", flush=True)
            daemon.tool("gemmctl", "unload", name)
    every = [gain for each in gains.values() for gain in each]
    print(f"library: first / best {geometric_mean(every):.3f} (geometric mean of {len(every)}), worst {min(every):.3f}")


def part_sight(backend: str) -> None:
    seconds = []
    with Daemon(backend, "background") as daemon:
        for format in ("int8", "fp8"):
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
    parts = {
        "load": lambda backend: part_load(backend, given.seconds, given.turns),
        "twice": part_twice,
        "exhaustive": part_exhaustive,
        "library": part_library,
        "sight": part_sight,
    }
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--backend", choices=sorted(SHAPES), default="cpu")
    options.add_argument("--seconds", type=float, default=2, help="of load in each turn")
    options.add_argument("--turns", type=int, default=16, help="of load: 4 or more, better many short ones than few long")
    options.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(parts))
    given = options.parse_args()
    for part in given.parts or ["load", "twice", "sight"]:
        if part not in parts:
            options.error(f"there is no part {part}")
    if given.turns < 4:
        options.error(f"--turns must be 4 or more, got {given.turns}")
    end_with_daemons()
    for part in given.parts or ["load", "twice", "sight"]:
        if not attempt(part, parts[part], given.backend):
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
