"""Which kernel computes, as a graph sets it; and which ones the microbench compares."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, NamedTuple, Optional

KERNEL = "gemmd.kernel"  # the attachment of a ComfyUI model that has its Choice
CPU_BLOCK_M_MOST = 512  # of gemmd's CPU kernels


class Range(NamedTuple):
    least: int
    most: int
    step: int
    default: int


# as `gemmctl tune` takes them
PARAMETERS: Dict[str, Range] = {
    "block_m": Range(16, 512, 16, 128),
    "block_n": Range(16, 512, 16, 128),
    "block_k": Range(16, 512, 16, 64),
    "group_size_m": Range(1, 64, 1, 8),
    "num_warps": Range(1, 16, 1, 4),
    "num_stages": Range(1, 8, 1, 4),
}


@dataclasses.dataclass(frozen=True)
class KernelConfig:
    """Tiles of y, and how a GPU computes one."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 64
    group_size_m: int = 8
    num_warps: int = 4
    num_stages: int = 4

    def text(self, backend: str) -> str:
        """As gemmd names the kernel. Those of the CPU backend have rows of x in common with it, and nothing else."""
        if backend == "cpu":
            return f"cpu block_m={min(self.block_m, CPU_BLOCK_M_MOST)}"
        return "tile " + " ".join(f"{name}={value}" for name, value in dataclasses.asdict(self).items())


def candidates(manual: KernelConfig, backend: str) -> List[KernelConfig]:
    """What the microbench compares with the manual values, which come first: none is there twice as `backend` names
    them."""
    sizes = [(64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128)]
    if backend == "cpu":
        others = [dataclasses.replace(manual, block_m=rows) for rows in (16, 32, 64, 128, 256, 512)]
    else:
        others = [
            KernelConfig(m, n, k, manual.group_size_m, 8 if m * n > 128 * 64 else 4, stages)
            for m, n in sizes
            for k, stages in ((64, 3), (64, 4), (128, 3))
        ]
    named: Dict[str, KernelConfig] = {}
    for one in [manual, *others]:
        named.setdefault(one.text(backend), one)
    return list(named.values())


class Choice(NamedTuple):
    """What a model's layers compute with. `config` None: gemmd's own choice."""

    config: Optional[KernelConfig]

    def text(self, backend: str) -> Optional[str]:
        return self.config.text(backend) if self.config is not None else None
