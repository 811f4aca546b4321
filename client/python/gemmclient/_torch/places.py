"""Where rows of tensors pass on their way to gemmd and back: two places in memory that both see, of which one is filled
while the rows of the other are computed. In a session's arena for CPU tensors, on the GPU for CUDA tensors."""

from __future__ import annotations

import threading
import weakref
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch

from ..errors import BadDescriptorError, OutOfMemoryError, PermissionDeniedError, UnsupportedError
from ..memory import CudaEvent, CudaMemory, Memory, Rows
from ..product import Pending
from ..session import Session
from ..types import Format
from ..weight import Weight

TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_SLOT_BYTES = 4 << 20  # of rows of x, and of y, that are in flight at a time
_GPU_SLOT_BYTES = 16 << 20  # the same in memory of a GPU


class Place:
    """Room for rows on their way in and out, as torch sees it, and how gemmd is asked for the product, with x copied or
    its copy queued; `later`, where that may be, asks once that has ended."""

    def __init__(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        submit: Callable[[int], Pending],
        later: Optional[Callable[[int], Pending]] = None,
    ):
        self.x, self.y, self.submit, self.later = x, y, submit, later


class Arena:
    """Two places in a session's arena: while the rows of one are computed, the other is filled.

    Tensors are copied in and out rather than left in the arena, so that its size bounds nothing but the rows in flight,
    and what a model keeps of its activations outlives the session."""

    def __init__(self, session: Session):
        self.lock = threading.Lock()
        size = _SLOT_BYTES
        while True:
            try:
                session.empty(8 * size, np.uint8)  # twice of what is taken: biases and others' tensors want room, too
                break
            except OutOfMemoryError:
                if size <= 4096:
                    raise
                size //= 2
        self.slots = [(session.empty(size, np.uint8), session.empty(size, np.uint8)) for _ in range(2)]
        self.bytes = size

    def places(self, weight: Weight, bias: Optional[np.ndarray], dtype: torch.dtype, rows: int) -> List[Place]:
        return [self._place(slot, weight, bias, dtype, rows) for slot in self.slots]

    def _place(self, slot, weight: Weight, bias: Optional[np.ndarray], dtype: torch.dtype, rows: int) -> Place:
        kind, size = TYPES[dtype], dtype.itemsize
        number = np.float32 if dtype == torch.float32 else np.float16 if dtype == torch.float16 else np.uint16
        x = slot[0][: rows * weight.k * size].view(number).reshape(rows, weight.k)
        y = slot[1][: rows * weight.n * size].view(number).reshape(rows, weight.n)

        def submit(count: int) -> Pending:
            return weight.submit(x[:count], out=y[:count], bias=bias, x_type=kind, y_type=kind)

        return Place(_as_torch(x, dtype), _as_torch(y, dtype), submit)

    def begin(self) -> None:
        """Before the first copy of a product."""

    def end(self) -> None:
        """After the last copy of a product."""


class Mapped:
    """The same in memory that torch's device and gemmd share, so that nothing passes through the host. Copies are
    queued on the caller's stream; gemmd begins when they have ended, by an event of each place, or is asked then."""

    def __init__(self, memory: Memory, device: torch.device, events: Sequence[CudaEvent] = ()):
        self.lock = threading.Lock()
        self.memory, self.device, self.events = memory, device, events
        self.bytes = memory.nbytes // 4 // 4096 * 4096
        self.copied: Optional[torch.cuda.Event] = None  # the last y, by whatever stream

    def places(self, weight: Weight, bias: Optional[np.ndarray], dtype: torch.dtype, rows: int) -> List[Place]:
        return [self._place(slot, weight, bias, dtype, rows) for slot in range(2)]

    def _place(self, slot: int, weight: Weight, bias: Optional[np.ndarray], dtype: torch.dtype, rows: int) -> Place:
        at = slot * 2 * self.bytes

        def tensors(count: int) -> Tuple[Rows, Rows]:
            kind = TYPES[dtype]
            return (
                self.memory.rows(at, count, weight.k, kind),
                self.memory.rows(at + self.bytes, count, weight.n, kind),
            )

        def submit(count: int) -> Pending:
            if not self.events:
                return later(count)
            event = self.events[slot]
            event.record(torch.cuda.current_stream(self.device).cuda_stream)
            return weight.submit_rows(*tensors(count), bias=bias, after=event)

        def later(count: int) -> Pending:
            if self.memory.on_gpu:
                torch.cuda.current_stream(self.device).synchronize()
            return weight.submit_rows(*tensors(count), bias=bias)

        x, y = (self._as_torch(place).view(dtype) for place in tensors(rows))
        return Place(x, y, submit, later)

    def _as_torch(self, place: Rows) -> torch.Tensor:
        return torch.as_tensor(place if self.memory.on_gpu else np.asarray(place), device=self.device)

    def takes(self, weight: Weight) -> bool:
        """Whether gemmd has the weight where this memory is. Asked by a product of one row of whatever lies there."""
        kind = "bf16" if weight.info.format is Format.BF16 else "f16"
        try:
            weight.submit_rows(
                self.memory.rows(0, 1, weight.k, kind), self.memory.rows(self.bytes, 1, weight.n, kind)
            ).settle()
        except UnsupportedError:
            return False
        return True

    def begin(self) -> None:
        if self.copied is not None:
            torch.cuda.current_stream(self.device).wait_event(self.copied)

    def end(self) -> None:
        if self.memory.on_gpu:
            self.copied = self.copied or torch.cuda.Event()
            self.copied.record(torch.cuda.current_stream(self.device))


Staging = Union[Arena, Mapped]
_staging: "weakref.WeakKeyDictionary[Session, Dict[torch.device, Staging]]" = weakref.WeakKeyDictionary()
_staging_lock = threading.Lock()
HOST = torch.device("cpu")


def staging_of(session: Session, device: torch.device) -> Staging:
    with _staging_lock:
        places = _staging.setdefault(session, {})
        if device not in places:
            places[device] = Arena(session) if device == HOST else _shared_with(session, device) or places[HOST]
        return places[device]


def _shared_with(session: Session, device: torch.device) -> Optional[Mapped]:
    """Memory of the GPU; None where gemmd does not have that GPU, or libgemmclient-cuda is not there."""
    for number in range(len(session.status().devices)):
        try:
            memory = CudaMemory(session, 4 * _GPU_SLOT_BYTES, device=number, ordinal=device.index)
        except BadDescriptorError:  # another one
            continue
        except UnsupportedError:
            return None
        return Mapped(memory, device, _events(session, device, number))
    return None


def _events(session: Session, device: torch.device, number: int) -> List[CudaEvent]:
    """One a place; none where gemmd runs as another user."""
    try:
        with torch.cuda.device(device):
            return [CudaEvent(session, device=number) for _ in range(2)]
    except PermissionDeniedError:
        return []


def _as_torch(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array.view(np.int16) if dtype == torch.bfloat16 else array).view(dtype)
