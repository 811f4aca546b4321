"""Which configuration is fastest for an INT8 product of one size, on this machine, in this process."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from .config import Choice, KernelConfig, candidates

_numbers = itertools.count(1)


class Size(NamedTuple):
    m: int
    n: int
    k: int


class Timed(NamedTuple):
    choice: Choice
    name: str
    seconds: Tuple[float, ...]  # of a product, median: with a scale a row; with one for all where that was asked for

    @property
    def mean(self) -> float:
        return sum(self.seconds) / len(self.seconds)


class Outcome(NamedTuple):
    choice: Choice
    text: str


def rank(timed: Sequence[Timed]) -> List[Timed]:
    """The fastest first; of equals the one that was asked for first."""
    return sorted(timed, key=lambda one: one.mean)


def report(size: Size, timed: Sequence[Timed], refused: Sequence[str], most: int = 3) -> str:
    """The `most` fastest, as text."""
    lines = [f"m={size.m} n={size.n} k={size.k}"]
    for place, one in enumerate(rank(timed)[:most], 1):
        times = ", ".join(f"{seconds * 1e3:.3f} ms" for seconds in one.seconds)
        tops = 2 * size.m * size.n * size.k / one.mean / 1e12
        lines.append(f"{place}. {one.name}: {times}, {tops:.2f} TOPS")
    if refused:
        lines.append(f"not possible here: {len(refused)}, the first because {refused[0]}")
    return "\n".join(lines)


def run(
    manual: KernelConfig,
    size: Size,
    *,
    warmup: int,
    iterations: int,
    include_scalar: bool,
    device: object,
    address: Optional[str] = None,
) -> Outcome:
    """Never raises for what gemmd or the device refuses: then the manual values stand, and the text says why."""
    try:
        return _search(manual, size, warmup, iterations, include_scalar, device, address)
    except Exception as error:  # whatever stops a measurement, the graph goes on
        return Outcome(Choice(manual), f"microbench failed, the manual values are used: {error}")


def _search(
    manual: KernelConfig,
    size: Size,
    warmup: int,
    iterations: int,
    include_scalar: bool,
    device: object,
    address: Optional[str],
) -> Outcome:
    from gemmclient._torch.session import session_here

    session = session_here("comfyui", address)
    backend = session.status().backend
    choices = [Choice(config) for config in candidates(manual, backend)] + [Choice(None)]
    timed: List[List[float]] = [[] for _ in choices]
    refused: List[str] = []
    for scale in ("row", "one") if include_scalar else ("row",):
        with _Product(session, size, scale, device) as product:
            for number, choice in enumerate(choices):
                why = product.refusal(choice.text(backend))
                if why is None:
                    timed[number].append(product.time(choice.text(backend), warmup, iterations))
                elif why not in refused:
                    refused.append(why)
    scales = 2 if include_scalar else 1
    rows = [
        Timed(choice, choice.text(backend) or "gemmd's own choice", tuple(seconds))
        for choice, seconds in zip(choices, timed)
        if len(seconds) == scales
    ]
    if len(rows) < 2:  # the own choice is always among them
        raise RuntimeError(refused[0] if refused else "nothing could be timed")
    return Outcome(rank(rows)[0].choice, report(size, rows, refused))


class _Product:
    """x [m, k] by a weight of random values, which gemmd has for as long as this lives."""

    def __init__(self, session, size: Size, scale: str, device):
        import torch
        from gemmclient.torch import GemmdLinear

        self.torch, self.device = torch, torch.device(device)
        dtype = torch.float16 if self.device.type == "cuda" else torch.float32
        name = f"comfyui/microbench.{os.getpid()}.{next(_numbers)}"
        weight = torch.randn(size.n, size.k, dtype=torch.float16)
        self.layer = GemmdLinear.from_weight(weight, None, session, name, "int8", scale=scale, release=True)
        self.x = torch.randn(size.m, size.k, dtype=dtype, device=self.device)

    def __enter__(self) -> "_Product":
        from gemmclient._torch.served import served

        self.borrowed = served[self.layer.number].layer(self.x.device)
        if self.borrowed is None:
            raise RuntimeError("gemmd does not lend its weights to this process (option direct)")
        return self

    def __exit__(self, *_: object) -> None:
        del self.layer, self.borrowed

    def refusal(self, text: Optional[str]) -> Optional[str]:
        """Why the kernel cannot compute this; None: it can."""
        if text is None:
            return None
        kind = "f16" if self.x.dtype == self.torch.float16 else "f32"
        try:
            self.borrowed.weight.kernel(text, min(len(self.x), self.borrowed.where.direct.rows_most), kind, kind)
        except Exception as error:
            return str(error)
        return None

    def time(self, text: Optional[str], warmup: int, iterations: int) -> float:
        self.layer.kernel = text
        with self.torch.inference_mode():
            for _ in range(warmup):
                self.layer(self.x)
            clock = self._gpu if self.device.type == "cuda" else self._cpu
            return statistics.median(clock(lambda: self.layer(self.x)) for _ in range(iterations))

    def _gpu(self, product: Callable[[], object]) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        product()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    @staticmethod
    def _cpu(product: Callable[[], object]) -> float:
        begin = time.perf_counter()
        product()
        return time.perf_counter() - begin
