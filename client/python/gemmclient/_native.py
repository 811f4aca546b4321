"""What a wheel carries beside the package: libraries and programs in its folder `native`. A package that was installed
from the sources has no such folder, and what the system has is used."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

_FOLDER = Path(__file__).with_name("native")


def library(name: str) -> str:
    """Its path in the wheel, else its name as the system's loader takes it."""
    carried = _FOLDER / name
    return str(carried) if carried.exists() else name


def _become(program: str) -> NoReturn:
    path = str(_FOLDER / program)
    os.execv(path, [path, *sys.argv[1:]])


def gemmd() -> NoReturn:
    _become("gemmd")


def gemmctl() -> NoReturn:
    _become("gemmctl")
