"""Products of torch tensors in this process: on the tensor's device and the current stream, on weights that gemmd lends.

Lanes: each stream that computes has one of its own, and while a CUDA graph is captured the capturing stream's. Graphs
of one lane must not be replayed side by side: `lane(number)` names another one for what is captured within."""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from typing import Dict, Iterator, List, Optional, Tuple

import torch

from .direct import Direct, DirectWeight
from .errors import GemmdError, InvalidError
from .session import Session
from .types import ElementType

LANES = 8
ROWS_MOST = 4096  # of a product; more rows go some at a time

_TYPES = {
    torch.float32: ElementType.F32,
    torch.float16: ElementType.F16,
    torch.bfloat16: ElementType.BF16,
}
_ALIGN = 16  # bytes; of x, y and bias
_named = threading.local()


@contextlib.contextmanager
def lane(number: int) -> Iterator[None]:
    """Within it this thread's products take that lane, 0..LANES-1, whatever the stream."""
    if not 0 <= number < LANES:
        raise InvalidError(f"lane must be 0..{LANES - 1}, got {number}")
    before = getattr(_named, "lane", None)
    _named.lane = number
    try:
        yield
    finally:
        _named.lane = before


class Streams:
    """Which lane a stream of a device has. With more streams than lanes the one that was not used for longest gives its
    lane up, and the next one waits on the device for what it has queued. While a graph is being captured nothing outside
    it can be waited for, so that lanes that captures have are kept."""

    def __init__(self, device: torch.device):
        self.device = device
        self._lock = threading.Lock()
        self._lanes: Dict[int, int] = {}  # by stream, the one that was used last at the end
        self._captured: set = set()

    def lane(self, stream: int) -> int:
        named = getattr(_named, "lane", None)
        if named is not None:
            return named
        with self._lock:
            lane = self._lanes.pop(stream, None)
            if lane is None:
                lane = self._take(stream)
            self._lanes[stream] = lane
            return lane

    def _take(self, stream: int) -> int:
        capturing = torch.cuda.is_current_stream_capturing()
        if len(self._lanes) < LANES:
            lane = len(self._lanes)
        else:
            given_up = next((one for one, lane in self._lanes.items() if lane not in self._captured), None)
            if given_up is None or capturing:
                raise InvalidError(
                    f"all {LANES} lanes are taken; capture on fewer streams, or within gemmclient.torch.lane(number)"
                )
            lane = self._lanes.pop(given_up)
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).wait_stream(torch.cuda.ExternalStream(given_up, self.device))
        if capturing:
            self._captured.add(lane)
        return lane


class Here:
    """A device of this process that a session's weights are borrowed for."""

    def __init__(self, session: Session, device: torch.device):
        self.device = device
        self.cuda = device.type == "cuda"
        if self.cuda:
            torch.cuda.init()
        lanes = LANES if self.cuda else 1
        self.direct = Direct(
            session, ordinal=device.index if self.cuda else -1, lanes=lanes, rows_most=ROWS_MOST
        )
        self.streams = Streams(device) if self.cuda else None


_here: "weakref.WeakKeyDictionary[Session, Dict[torch.device, Optional[Here]]]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def here(session: Session, device: torch.device) -> Optional[Here]:
    """None where products have to go through gemmd's worker: tensors on the host where gemmd serves on GPUs, and the
    reverse; else with one warning that says why."""
    with _lock:
        devices = _here.setdefault(session, {})
        if device not in devices:
            devices[device] = None
            try:
                if (session.status().backend == "cuda") == (device.type == "cuda"):
                    devices[device] = Here(session, device)
            except GemmdError as error:
                _warn(device, error)
        return devices[device]


def _warn(what: object, error: GemmdError) -> None:
    warnings.warn(f"gemmclient.torch: {what}: products go through gemmd's worker: {error}", stacklevel=4)


class Layer:
    """A borrowed weight, with its bias [n] on the same device."""

    def __init__(self, where: Here, weight: DirectWeight, bias: Optional[torch.Tensor]):
        self.where, self.weight = where, weight
        self.bias = bias.detach().to(where.device).contiguous() if bias is not None else None
        self._products: Dict[torch.dtype, Tuple] = {}
        self._local = threading.local()

    @classmethod
    def borrow(
        cls, session: Session, device: torch.device, name: str, bias: Optional[torch.Tensor]
    ) -> Optional["Layer"]:
        where = here(session, device)
        if where is None:
            return None
        try:
            return cls(where, where.direct.borrow(name), bias)
        except GemmdError as error:
            _warn(name, error)
            return None

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., k] -> y [..., n] of x's type, queued on the current stream."""
        weight, kind = self.weight, _TYPES[x.dtype]
        y = torch.empty(x.shape[:-1] + (weight.n,), dtype=x.dtype, device=x.device)
        rows = _rows(x, weight.k)
        m = rows.shape[0]
        if m == 0:
            return y
        stream = torch._C._cuda_getCurrentRawStream(x.device.index) if self.where.cuda else 0
        lane = self.where.streams.lane(stream) if self.where.streams is not None else 0
        bias = self.bias
        size, most = x.element_size(), self.where.direct.rows_most
        x_stride = rows.stride(0) * size
        for begin in range(0, m, most):
            weight.launch(
                min(most, m - begin),
                rows.data_ptr() + begin * x_stride,
                kind,
                y.data_ptr() + begin * weight.n * size,
                kind,
                stream=stream,
                bias=bias.data_ptr() if bias is not None else 0,
                bias_type=_TYPES[bias.dtype] if bias is not None else None,
                x_stride=x_stride if m > 1 else 0,
                lane=lane,
            )
        return y


def _rows(x: torch.Tensor, k: int) -> torch.Tensor:
    """[..., k] as rows that a product reads where they lie; a copy where it cannot."""
    rows = x.reshape(-1, k)
    if rows.stride(1) != 1 or rows.data_ptr() % _ALIGN or rows.stride(0) * rows.element_size() % _ALIGN:
        rows = rows.contiguous()
        if rows.data_ptr() % _ALIGN:
            rows = rows.clone(memory_format=torch.contiguous_format)
    return rows
