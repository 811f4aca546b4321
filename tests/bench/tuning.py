#!/usr/bin/env python3
"""What tuning costs and gives, each against daemons of its own:

  load        p99 of calls at 30 % of the rate that can be had, tuning in the background and off: a daemon of each, in
              turns A B B A, the other one stopped meanwhile; their ratio with an interval that holds it in 95 of 100 runs
  twice       two searches, each anew: by how much the kernels differ that they choose
  exhaustive  the search against the whole product of parameters: both winners in one final, and the time that each took;
              two searches as in `twice`; what serves without tuning
  library     the fastest algorithm of a library against the first that it names; INT8, shapes of a 70B model
  mix         an engine's mix at 50 % of the rate that can be had: batches of 1 to 64 rows that change every second, prefill
              now and then, four weights: after how long 90 % of the products of shapes whose default loses by 3 % or more
              run by a winner (or by what takes 3 % more at most); p99 as in `load`, tuning off in every fifth turn. No
              second passes without requests, so what waits for quiet stays out, and is counted
  sight       from the first request for a shape to its winner on an idle device

tuning.py [--backend cpu|cuda] [--seconds N] [--turns N] [--seed N] [--cases FROM:TO] [--save FILE]
          [--option --NAME=VALUE] [PART...]
                    load, twice and sight without a PART; programs from $GEMMD_BUILD

A machine that does something else beside shows that, not the tuner. Random weights; needs no package of Python's.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
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
# decode: batches; prefill: its rows, and one in so many products; weights: of a layer of an 8B model
MIX_BATCHES = [1, 2, 4, 8, 16, 32, 48, 64]
MIX = {
    "cpu": ("int8", SHAPES["cpu"], 128, 40),
    "cuda": ("fp8", [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)], 512, 40),
}
MIX_BAR = 1.05  # of p99, tuning on / off
MIX_OFF = 4  # turns with tuning for one without
MIX_WARM = 0.1  # seconds of a turn that are not timed: a daemon that was stopped wakes


def geometric_mean(values: List[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def time_of(result: dict, kernel: str) -> Optional[int]:
    """Of a kernel that a search has timed, ns."""
    for each in result["results"]:
        if each["kernel"] == kernel and each["ns"] > 0:
            return each["ns"]
    return None


def cases(daemon: Daemon, part: slice = slice(None)):
    loaded: Dict[Tuple[str, Shape], str] = {}
    for format, shape, rows, y_type in CASES[daemon.backend][part]:
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


def verdict(low: float, high: float, bar: float = LOAD_BAR) -> str:
    if high <= bar:
        return f"at most {bar:.2f}"
    return f"more than {bar:.2f}" if low > bar else f"not told apart from {bar:.2f}: more --turns"


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
    say_pooled(turns)
    low, high = interval(turns["background"], turns["off"])
    same = interval(turns["off"][0::2], turns["off"][1::2])
    tuned = sum(shape["state"] == "tuned" for shape in shapes)
    busy = sum(shape["tuning"] for shape in shapes)
    print(
        f"load: {rate} calls/s, p99 on / off {p99(turns['background']) / p99(turns['off']):.3f} (95 %: {low:.3f} to {high:.3f}), "
        f"{verdict(low, high)}; every other turn of off by the rest {same[0]:.3f} to {same[1]:.3f}; "
        f"tuned {tuned} of {len(shapes)} while on, {busy} at hand"
    )


class Seen:
    """A shape of the mix: its calls and the kernel that served it (none: the default) as of each second."""

    def __init__(self, shape: str) -> None:
        self.shape = shape
        self.calls: List[int] = []
        self.kernels: List[str] = []
        self.gain = 1.0  # the default's time by the winner's
        self.good: Dict[str, bool] = {}  # whether a kernel is as good as the winner

    def judge(self, daemon: Daemon) -> None:
        """Looks for the winner now that nobody asks, what a library has among them."""
        match = re.match(r"(\w+)-row-(\d+)x(\d+)-.*-m(\d+)$", self.shape)
        if match is None:
            raise Failed(f"{self.shape} is no shape of the mix")
        name, rows = f"{match[1]}.{match[2]}x{match[3]}", int(match[4])
        last = self.kernels[-1]
        for kernel in dict.fromkeys([last, *filter(None, self.kernels)]):
            extra = ["--kernel", kernel] if kernel else []
            result = daemon.tune(name, rows, "bf16", *extra, anew=False)
            best = time_of(result, result["kernel"])
            own = next(each["ns"] for each in result["results"] if each["own"])
            if not best or not own:
                raise Failed(f"{self.shape}: nothing was timed")
            self.good[kernel] = (time_of(result, kernel) or math.inf) / best <= LIMIT
            self.gain = own / best if kernel == last else self.gain
        self.good[""] = self.gain < LIMIT

    def second(self) -> Optional[int]:
        """From which on a winner served; None: it does not."""
        first = len(self.kernels)
        while first > 0 and self.good.get(self.kernels[first - 1], False):
            first -= 1
        return first if first < len(self.kernels) else None


def note_seen(seen: Dict[str, Seen], daemon: Daemon, second: int) -> None:
    for each in daemon.shapes():
        if each["calls"] == 0:
            continue
        shape = seen.setdefault(each["shape"], Seen(each["shape"]))
        missing = second - len(shape.calls)
        shape.calls += [0] * missing + [each["calls"]]
        shape.kernels += [""] * missing + [each["kernel"] if each["serves"] else ""]


def say_seen(seen: Dict[str, Seen], ends: List[float]) -> None:
    """`ends`: of turns with tuning, s that the daemon has run."""
    losing = [shape for shape in seen.values() if shape.gain >= LIMIT]
    calls = sum(shape.calls[-1] for shape in losing) or 1
    print(f"{'shape whose default loses':<44}{'by':>7}{'calls':>9}  winner after s")
    for shape in sorted(losing, key=lambda each: -each.calls[-1]):
        when = shape.second()
        print(f"{shape.shape:<44}{shape.gain:7.3f}{shape.calls[-1]:>9}  {'not yet' if when is None else f'{ends[when]:.1f}'}")
    part = [sum(shape.calls[-1] for shape in losing if (shape.second() or 0) <= at and shape.second() is not None) / calls
            for at in range(len(ends))]
    reached = next((end for at, end in enumerate(ends) if part[at] >= 0.9), None)
    print(
        f"mix: {len(seen)} shapes, the default loses by 3 % or more in {len(losing)}; 90 % of their products run by a winner "
        + (f"after {reached:.1f} s" if reached else f"not within {ends[-1]:.1f} s ({100 * part[-1]:.0f} %)")
    )


def mix_turns(count: int, seed: int) -> List[Tuple[str, int]]:
    """What is on, and the batch: all batches equally often with tuning and without, in an order of chance."""
    source = random.Random(seed)

    def batches(turns: int) -> List[int]:
        every = MIX_BATCHES * math.ceil(turns / len(MIX_BATCHES))
        return [batch for at in range(0, turns, len(MIX_BATCHES)) for batch in source.sample(every[:8], 8)]

    off = batches(math.ceil(count / MIX_OFF))
    turns = []
    for at, batch in enumerate(batches(count)):
        if at % MIX_OFF == MIX_OFF // 2:
            turns.append(("off", off[at // MIX_OFF]))
        turns.append(("background", batch))
    return turns


def say_pooled(turns: Dict[str, List[Dict[float, int]]]) -> None:
    print(f"{'pooled':<12}{'calls':>9}{'p50':>9}{'p99':>9}{'p99.9':>9} us")
    for mode, each in turns.items():
        all_of = pooled(each)
        print(f"{mode:<12}{sum(all_of.values()):>9}" + "".join(f"{quantile(all_of, part):9.1f}" for part in (0.5, 0.99, 0.999)))


class Mix:
    """Two daemons with the same weights, of which one tunes, and what they have been asked."""

    def __init__(self, off: Daemon, background: Daemon, seconds: float) -> None:
        self.daemons = {"off": off, "background": background}
        self.seconds = seconds
        format, shapes, self.prefill, self.decodes = MIX[off.backend]
        for daemon in self.daemons.values():
            names = ",".join(daemon.load(format, shape) for shape in shapes)
        self.call = ["--weight", names, "--x-type", "bf16", "--y-type", "bf16", "--histogram", "--clients", "2"]
        self.turns: Dict[str, List[Dict[float, int]]] = {"off": [], "background": []}
        self.seen: Dict[str, Seen] = {}
        self.ends: List[float] = []  # of turns with tuning, s that its daemon has run
        self.rates = {batch: self.rate("off", batch) for batch in MIX_BATCHES}
        begin = time.monotonic()
        for batch in MIX_BATCHES:  # both have loaded what a first product of its kind loads; the tuner begins here
            self.rate("background", batch)
        self.warm = time.monotonic() - begin

    def only(self, mode: str) -> Daemon:
        for other, daemon in self.daemons.items():
            daemon.stop(other != mode)
        return self.daemons[mode]

    def rows(self, batch: int) -> List[str]:
        return ["--m", f"{batch}:{self.decodes},{self.prefill}:1"]

    def rate(self, mode: str, batch: int) -> int:
        most = self.only(mode).ask("gemm-bench", *self.call, *self.rows(batch), "--seconds", "0.3", "--warmup", "0.1")
        return max(1, int(0.5 * most["requests"] / most["seconds"]))

    def turn(self, mode: str, batch: int) -> None:
        daemon, rate = self.only(mode), self.rates[batch]
        begin = time.monotonic()
        words = ["--seconds", f"{self.seconds - MIX_WARM:g}", "--warmup", str(MIX_WARM), "--rate", str(rate)]
        got = daemon.ask("gemm-bench", *self.call, *self.rows(batch), *words)
        turns = self.turns[mode]
        turns.append(dict(got["latency_us"]["buckets"]))
        if mode == "background":
            note_seen(self.seen, daemon, len(turns) - 1)
            self.ends.append((self.ends[-1] if self.ends else self.warm) + time.monotonic() - begin)
        found = sum(bool(shape.kernels[-1]) for shape in self.seen.values())
        print(f"{mode:<12}{batch:>3} rows {rate:>7} calls/s, p99 {p99(turns[-1:]):9.1f} us, {found} shapes by a kernel found", flush=True)

    def judge(self) -> int:
        """Of all shapes; returns how many wait."""
        waiting = sum(shape["state"] == "seen" for shape in self.only("background").shapes())
        off = self.only("off")
        for shape in self.seen.values():
            shape.judge(off)  # where a second without requests is quiet
            print(f"{shape.shape:<44}{shape.gain:7.3f}  {shape.kernels[-1]}", flush=True)
        self.daemons["background"].stop(False)
        return waiting


def part_mix(backend: str, count: int, seconds: float, seed: int, options: List[str], save: Optional[str]) -> None:
    begin = time.monotonic()
    # without quiet: a daemon that was stopped has not had a second of it
    with Daemon(backend, "off") as off, Daemon(backend, "background", "--tune_quiet_ms", "3600000", *options) as background:
        mix = Mix(off, background, seconds)
        print(f"ready after {time.monotonic() - begin:.1f} s", flush=True)
        for mode, batch in mix_turns(count, seed):
            mix.turn(mode, batch)
        say_pooled(mix.turns)
        low, high = interval(mix.turns["background"], mix.turns["off"])
        ratio = p99(mix.turns["background"]) / p99(mix.turns["off"])
        print(f"p99 on / off {ratio:.3f} (95 %: {low:.3f} to {high:.3f}), {verdict(low, high, MIX_BAR)}", flush=True)
        waiting = mix.judge()
    print(f"{waiting} shapes wait")
    say_seen(mix.seen, mix.ends)
    if save:
        histograms = {mode: sorted(pooled(each).items()) for mode, each in mix.turns.items()}
        Path(save).write_text(json.dumps({"latency_us": histograms, "rates": mix.rates}), encoding="utf-8")


def part_twice(backend: str) -> None:
    ratios = []
    with Daemon(backend, "off") as daemon:
        for name, rows, y_type in cases(daemon):
            first, second, ratio = search_twice(daemon, name, rows, y_type)
            ratios.append(ratio)
            both = [first["kernel"]] + [second["kernel"]] * (first["kernel"] != second["kernel"])
            print(f"{name:<20} {rows:>5} rows  {ratio:.3f}  {' | '.join(both)}", flush=True)
    say_twice(ratios)


def part_exhaustive(backend: str, part: slice) -> None:
    quality, spent, ratios, gains = [], [], [], []
    print(f"{'weight':<20}{'rows':>5} {'y':<5}{'short us':>9}{'best us':>9}{'of best':>9}{'ms':>7}{'of time':>8}{'gain':>7}  kernels")
    with Daemon(backend, "off") as daemon:
        for name, rows, y_type in cases(daemon, part):
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
        "exhaustive": lambda backend: part_exhaustive(backend, part_of),
        "mix": lambda backend: part_mix(backend, given.turns, given.seconds, given.seed, given.option, given.save),
        "library": part_library,
        "sight": part_sight,
    }
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--backend", choices=sorted(SHAPES), default="cpu")
    options.add_argument("--seconds", type=float, default=2, help="of load and mix in each turn")
    options.add_argument("--turns", type=int, default=16, help="of load and mix: 4 or more, better many short ones than few long")
    options.add_argument("--seed", type=int, default=1, help="of mix: the order of its batches")
    options.add_argument("--cases", default=":", metavar="FROM:TO", help="of exhaustive, as Python counts; all of them if not given")
    options.add_argument("--option", action="append", default=[], metavar="WORDS", help="of the daemon of mix that tunes, as --option=--tune_share=5")
    options.add_argument("--save", metavar="FILE", help="of mix: histograms of latencies, as JSON")
    options.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(parts))
    given = options.parse_args()
    for part in given.parts or ["load", "twice", "sight"]:
        if part not in parts:
            options.error(f"there is no part {part}")
    if given.turns < 4:
        options.error(f"--turns must be 4 or more, got {given.turns}")
    try:
        part_of = slice(*(int(word) if word else None for word in given.cases.split(":")))
    except (TypeError, ValueError):
        options.error(f"--cases takes FROM:TO, got {given.cases}")
    end_with_daemons()
    for part in given.parts or ["load", "twice", "sight"]:
        if not attempt(part, parts[part], given.backend):
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
