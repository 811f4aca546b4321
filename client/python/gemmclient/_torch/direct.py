"""Products of torch tensors in this process, on its device and the current stream, by weights that gemmd lends.

Lanes: each stream that computes has one of its own, and while a CUDA graph is captured the capturing stream's. Graphs
of one lane must not be replayed side by side: `lane(number)` names another one for what is captured within."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
import weakref
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from .._library import ffi, lib
from ..direct import Direct, DirectWeight
from ..errors import GemmdError, InvalidError, PermissionDeniedError, WrongStateError, error_for
from ..session import Session
from ..types import ElementType

STREAM_LANES = 4  # that streams take by themselves
NAMED_LANES = 4  # beside these, for `lane`
ROWS_MOST = 4096  # of a product; more rows go some at a time
PAIRS_MOST = 8 * ROWS_MOST  # of a product over experts; likewise

TYPES_HERE = {
    torch.float32: ElementType.F32,
    torch.float16: ElementType.F16,
    torch.bfloat16: ElementType.BF16,
}
_ALIGN = 16  # bytes; of x, y and bias
_X, _Y, _M, _X_STRIDE = (
    ffi.offsetof("gemmd_direct_product", field) // 8 for field in ("x", "y", "m", "x_stride")
)
_named = threading.local()
capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing


@contextlib.contextmanager
def lane(number: int) -> Iterator[None]:
    """Within it this thread's products take a lane of that number, 0..3, whatever the stream: for CUDA graphs that are
    replayed side by side, each captured within a lane of its own. Lanes that are named are no stream's."""
    if not 0 <= number < NAMED_LANES:
        raise InvalidError(f"lane must be 0..{NAMED_LANES - 1}, got {number}")
    before = getattr(_named, "lane", None)
    _named.lane = STREAM_LANES + number
    try:
        yield
    finally:
        _named.lane = before


class Streams:
    """Which lane a stream of a device has. With more streams than lanes the one that was not used for longest gives its
    lane up, and the next one waits on the device for what it has queued. While a graph is being captured nothing
    outside it can be waited for, so that lanes that captures have are kept."""

    def __init__(self, device: torch.device):
        self.device = device
        self._lock = threading.Lock()
        self._lanes: Dict[int, int] = {}  # by stream, the one that was used last at the end
        self._captured: Set[int] = set()
        self._last: Optional[Tuple[int, int]] = None

    def lane(self, stream: int) -> int:
        named = getattr(_named, "lane", None)
        if named is not None:
            return named
        last = self._last
        if last is not None and last[0] == stream and (last[1] in self._captured or not capturing()):
            return last[1]
        with self._lock:
            lane = self._lanes.pop(stream, None)
            if lane is None:
                lane = self._take()
            if capturing():
                self._captured.add(lane)
            self._lanes[stream] = lane
            self._last = (stream, lane)
            return lane

    def _take(self) -> int:
        if len(self._lanes) < STREAM_LANES:
            return next(number for number in range(STREAM_LANES) if number not in self._lanes.values())
        given_up = next((one for one, lane in self._lanes.items() if lane not in self._captured), None)
        if given_up is None or capturing():
            raise InvalidError(
                f"all {STREAM_LANES} lanes of streams are taken; capture on fewer streams, "
                "or within gemmclient.torch.lane(number)"
            )
        torch.cuda.current_stream(self.device).wait_stream(torch.cuda.ExternalStream(given_up, self.device))
        return self._lanes.pop(given_up)


class Here:
    """A device of this process that a session's weights are borrowed for."""

    def __init__(self, session: Session, device: torch.device):
        self.device = device
        self.cuda = device.type == "cuda"
        if self.cuda:
            torch.cuda.init()
            lanes, ordinal, threads = STREAM_LANES + NAMED_LANES, device.index, 0
        else:
            lanes, ordinal, threads = 1, -1, torch.get_num_threads()
        self.direct = Direct(session, ordinal=ordinal, lanes=lanes, rows_most=ROWS_MOST, threads=threads, pairs_most=PAIRS_MOST)
        self.streams = Streams(device) if self.cuda else None
        self.told: Set[type] = set()  # kinds of errors that a warning has told
        self._process = os.getpid()
        self._retired: List[DirectWeight] = []

    def retire(self, weight: DirectWeight) -> None:
        """Before a weight is given back, what is queued by it has to end. That is waited for, except during a capture,
        which a wait would break: then with the next weight."""
        if not self.cuda or os.getpid() != self._process:
            return
        self._retired.append(weight)
        if not capturing():
            torch.cuda.synchronize(self.device)
            self._retired.clear()


_here: "weakref.WeakKeyDictionary[Session, Dict[torch.device, Optional[Here]]]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forked)


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


def borrow(session: Session, device: torch.device, name: str) -> Optional[Tuple[Here, DirectWeight]]:
    """None where products by it have to go through gemmd's worker. The first weight to which that happens for a reason
    of its kind is told of in a warning; a session that may not borrow does not ask again."""
    where = here(session, device)
    if where is None:
        return None
    try:
        return where, where.direct.borrow(name)
    except PermissionDeniedError as error:
        with _lock:
            if _here[session][device] is where:
                _here[session][device] = None
                _warn(device, error)
    except GemmdError as error:
        if type(error) not in where.told:
            where.told.add(type(error))
            _warn(name, error)
    return None


def _warn(what: object, error: GemmdError) -> None:
    warnings.warn(f"gemmclient.torch: {what}: products go through gemmd's worker: {error}", stacklevel=2)


class Layer:
    """A borrowed weight, with its bias [n] on the same device."""

    def __init__(self, where: Here, weight: DirectWeight, bias: Optional[torch.Tensor]):
        self.where, self.weight = where, weight
        self.bias = None
        if bias is not None:
            dtype = bias.dtype if bias.dtype in TYPES_HERE else torch.float32
            with torch.inference_mode(False):
                self.bias = bias.detach().to(where.device, dtype, copy=True).contiguous()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.where.retire(self.weight)

    @classmethod
    def borrow(
        cls, session: Session, device: torch.device, name: str, bias: Optional[torch.Tensor]
    ) -> Optional["Layer"]:
        borrowed = borrow(session, device, name)
        return cls(*borrowed, bias) if borrowed is not None else None


def tune(layers: Sequence["Layer"], dtype: torch.dtype, rows: Sequence[int], budget_ms: int) -> int:
    """Kernels for each shape among the layers, with all that this process has of the shape. What is queued ends first;
    the lane is the last of those that are named."""
    found, seen = 0, set()
    for layer in layers:
        info, where = layer.weight.info, layer.where
        bias_type = TYPES_HERE[layer.bias.dtype] if layer.bias is not None else None
        shape = (where.device, info.n, info.k, info.format, info.scale, bias_type)
        if shape in seen:
            continue
        seen.add(shape)
        check_not_capturing(where.device, "kernels are looked for before")
        if where.cuda:
            torch.cuda.synchronize(where.device)
        found += layer.weight.tune(
            [min(m, where.direct.rows_most) for m in rows], TYPES_HERE[dtype], TYPES_HERE[dtype], bias_type,
            budget_ms=budget_ms, lane=where.direct.lanes - 1,
        )  # fmt: skip
    return found


class Call:
    """x [..., k] -> y [..., n] of x's type, queued on the current stream. For x of one type on one device, and one
    thread: what does not change from call to call is set once."""

    def __init__(self, layer: Layer, dtype: torch.dtype):
        self.layer = layer
        weight, bias = layer.weight, layer.bias
        self.n, self.k, self.size = weight.n, weight.k, dtype.itemsize
        self.most = layer.where.direct.rows_most
        self.streams = layer.where.streams
        self.index = layer.where.device.index
        self.matmul, self.handle = weight._library.gemmd_direct_matmul, weight._handle
        self.product = product = ffi.new("gemmd_direct_product *")
        product.bytes = ffi.sizeof("gemmd_direct_product")
        product.x_type = product.y_type = TYPES_HERE[dtype]
        if bias is not None:
            product.bias, product.bias_type = ffi.cast("void *", bias.data_ptr()), TYPES_HERE[bias.dtype]
        self.words = ffi.cast("uint64_t *", product)  # addresses are set as numbers: a cast each costs more
        self.stream, self.stream_pointer = 0, ffi.NULL

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        shape, k, words = x.shape, self.k, self.words
        if not shape or shape[-1] != k:
            raise InvalidError(f"x must have {k} columns, got shape {tuple(shape)}")
        y = x.new_empty((*shape[:-1], self.n))
        if x.is_contiguous() and not x.data_ptr() % _ALIGN:
            rows, x_stride, m = x, k * self.size, x.numel() // k
        else:
            rows = _rows(x, k)
            m, x_stride = rows.shape[0], rows.stride(0) * self.size
        if self.streams is not None:
            stream = torch._C._cuda_getCurrentRawStream(self.index)
            self.product.lane = self.streams.lane(stream)
            if stream != self.stream:
                self.stream, self.stream_pointer = stream, ffi.cast("void *", stream)
        words[_X], words[_Y], words[_M] = rows.data_ptr(), y.data_ptr(), m
        words[_X_STRIDE] = x_stride if m > 1 else 0
        if m > self.most:
            self._pieces(m, x_stride)
        elif m > 0:
            self._queue()
        return y

    def _queue(self) -> None:
        status = self.matmul(self.handle, self.product, self.stream_pointer)
        if status != lib.GEMMD_OK:
            sentence = ffi.string(self.layer.weight._library.gemmd_direct_error()).decode("utf-8", "replace")
            raise error_for(status, sentence)

    def _pieces(self, m: int, x_stride: int) -> None:
        words, y_stride = self.words, self.n * self.size
        x, y = words[_X], words[_Y]
        for begin in range(0, m, self.most):
            rows = min(self.most, m - begin)
            words[_X], words[_Y], words[_M] = x + begin * x_stride, y + begin * y_stride, rows
            words[_X_STRIDE] = x_stride if rows > 1 else 0
            self._queue()


def _rows(x: torch.Tensor, k: int) -> torch.Tensor:
    """[..., k] as rows that a product reads where they lie; a copy where it cannot."""
    rows = x.reshape(-1, k)
    apart = rows.shape[0] < 2 or rows.stride(0) >= k
    if rows.stride(1) == 1 and apart and not rows.data_ptr() % _ALIGN:
        return rows
    return rows.clone(memory_format=torch.contiguous_format)


def check_not_capturing(device: torch.device, what: str) -> None:
    if device.type == "cuda" and capturing():
        raise WrongStateError(f"a CUDA graph is being captured: {what}")
