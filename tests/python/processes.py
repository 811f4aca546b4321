"""What processes take of the machine, with their children."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Iterable, List


def descendants(pid: int) -> List[int]:
    """And the process itself."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def memory_bytes(roots: Iterable[int]) -> int:
    """Of these processes and their children together: pages that several of them map count once (PSS), code and files
    that are mapped do not count."""
    total = 0
    for pid in {one for root in roots for one in descendants(root)}:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1]) << 10
    return total


def cpu_seconds(roots: Iterable[int]) -> float:
    """Of those that live, since they began."""
    ticks = 0
    for pid in {one for root in roots for one in descendants(root)}:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
