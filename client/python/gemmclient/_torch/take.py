"""Weights of CUDA tensors on their way to gemmd: copied on the GPU into memory that both see, and made from there."""

from __future__ import annotations

import hashlib
from typing import Dict, Optional

import torch

from ..errors import BadDescriptorError, BusyError, OutOfMemoryError, TooLargeError, UnsupportedError
from ..memory import CudaMemory
from ..session import Session
from ..types import Format, Named
from .places import TYPES

_EXACT = {Format.F16: torch.float16, Format.BF16: torch.bfloat16}
_LEAST_BYTES = 64 << 20  # of shared memory, so that it is not made anew for each larger weight
_WORDS = 1 << 22  # of a fingerprint at a time


class Taker:
    """Takes weights over, one after the other. Ends with its memory: a context."""

    def __init__(self, session: Session):
        self._session = session
        self._memory: Dict[torch.device, Optional[CudaMemory]] = {}

    def __enter__(self) -> "Taker":
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.clear()

    def take(self, weight: torch.Tensor, *, name: str, format: Format, scale: Named, method: Named) -> bool:
        """False where it has to go through the host: gemmd has another GPU, no memory to share, or makes no such weight
        of such numbers there."""
        values = weight.detach().to(_EXACT.get(format, weight.dtype))
        bytes = values.numel() * values.itemsize
        memory = self._shared(weight.device, bytes) if bytes > 0 else None
        if memory is None:
            return False
        rows = memory.rows(0, values.shape[0], values.shape[1], TYPES[values.dtype])
        torch.as_tensor(rows, device=weight.device).view(values.dtype).copy_(values)
        torch.cuda.current_stream(weight.device).synchronize()
        try:
            self._session.take(rows, name=name, format=format, scale=scale, method=method)
        except UnsupportedError:
            return False
        return True

    def _shared(self, device: torch.device, bytes: int) -> Optional[CudaMemory]:
        known = self._memory.get(device)
        if known is None and device in self._memory or known is not None and known.nbytes >= bytes:
            return known
        self._memory.pop(device, None)  # before there is a larger one
        known = None
        self._memory[device] = _memory_of(self._session, device, max(bytes, _LEAST_BYTES))
        return self._memory[device]


def _memory_of(session: Session, device: torch.device, bytes: int) -> Optional[CudaMemory]:
    for number in range(len(session.status().devices)):
        try:
            with torch.cuda.device(device):
                return CudaMemory(session, bytes, device=number, ordinal=device.index)
        except BadDescriptorError:  # another one
            continue
        except (UnsupportedError, OutOfMemoryError, TooLargeError, BusyError):
            return None
    return None


def fingerprint(weight: torch.Tensor, made_of: str) -> str:
    """Of the values on their GPU, 16 digits: a sum over all words of a mixture of each with its place. It tells weights
    apart that differ by accident; what a weight is to gemmd is its own hash of what it was made to."""
    values = weight.detach().contiguous().view(-1)
    rest = -values.numel() * values.itemsize % 8 // values.itemsize
    words = torch.cat([values, values.new_zeros(rest)]).view(torch.int64) if rest else values.view(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=weight.device)
    for begin in range(0, words.numel(), _WORDS):
        piece = words[begin : begin + _WORDS]
        places = torch.arange(begin + 1, begin + 1 + piece.numel(), dtype=torch.int64, device=weight.device)
        total += _mix(_mix(places) ^ piece).sum()
    digest = hashlib.blake2b(f"{made_of}/{tuple(weight.shape)}/{total.item()}".encode(), digest_size=8)
    return digest.hexdigest()


def _mix(words: torch.Tensor) -> torch.Tensor:
    """Of 64 bits: multiplications by odd numbers, wrapping, with shifts between (as splitmix64's)."""
    words = words * -7046029254386353131
    words = (words ^ (words >> 30)) * -4658895280553007687
    words = (words ^ (words >> 27)) * -7723592293110705685
    return words ^ (words >> 31)
