"""A weight that is open for products."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import numpy as np

from ._core import Block, Core
from ._library import ffi, lib
from .errors import InvalidError, OutOfMemoryError, WrongStateError
from .memory import CudaEvent, Rows
from .product import Pending
from .types import ElementType, Named, Priority, WeightInfo, element_type, member, numpy_type, weight_info

Result = Union[np.ndarray, Rows]
_PRODUCT, _TICKET, _POINTER = ffi.typeof("gemmd_product *"), ffi.typeof("uint64_t *"), ffi.typeof("void *")
_ALIGN = 16  # bytes; of tensors in the arena
_FLOATS = (ElementType.F32, ElementType.F16, ElementType.BF16)


def allocate(core: Core, shape: Tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array in the arena, contents undefined. The core's lock is held."""
    nbytes = dtype.itemsize
    for size in shape:
        nbytes *= size
    block = core.allocate(nbytes)
    if block is None:
        raise OutOfMemoryError(f"the arena has no room for {nbytes} bytes (arena_bytes of connect)")
    return np.asarray(block).view(dtype).reshape(shape)


def in_arena(array: np.ndarray, core: Core) -> bool:
    base = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, Block) and base.core is core


def as_rows(array: np.ndarray, columns: int, what: str) -> np.ndarray:
    """[..., columns] as [rows, columns]: a view where strides allow it, else a copy."""
    if array.ndim == 0 or array.shape[-1] != columns:
        raise InvalidError(f"{what} must have {columns} columns, got shape {array.shape}")
    return array.reshape(-1, columns)


class Weight:
    """From Session.open. Closed by `with`, by close(), or with its session."""

    def __init__(self, core: Core, handle):
        self._core = core
        self._handle = handle
        self.info: WeightInfo = weight_info(lib.gemmd_weight_get_info(handle))

    @property
    def n(self) -> int:
        return self.info.n

    @property
    def k(self) -> int:
        return self.info.k

    def matmul(self, x: np.ndarray, **options) -> np.ndarray:
        """y = x * W^T, [..., k] -> [..., n]. `options` are submit's."""
        return self.submit(x, **options).wait()

    def submit(
        self,
        x: np.ndarray,
        *,
        out: Optional[np.ndarray] = None,
        bias: Optional[np.ndarray] = None,
        x_scale: Optional[np.ndarray] = None,
        x_type: Optional[Named] = None,
        y_type: Optional[Named] = None,
        bias_type: Optional[Named] = None,
        priority: Named = Priority.NORMAL,
        deadline: float = 0.0,
    ) -> Pending:
        """Asks for y = x * W^T (+ bias) and returns at once.

        x is [..., k], bias [n], x_scale [rows] or [rows, ceil(k / 128)] (for int8 and e4m3 x). What lies in this
        session's arena (Session.empty) is used where it is; anything else is copied there once. `out`, where given, is
        [..., n] in the arena; else y is a new array in it. y's type is `y_type`, else out's, else x's where that is a
        float, else s32 for int8 x without x_scale and f32 for the rest. What has not begun `deadline` seconds from now
        ends with TimedOutError; 0: none.
        """
        with self._core as core:
            self._check_open()
            rows = as_rows(x, self.k, "x")
            x_kind = element_type(x.dtype, x_type, "x")
            y_kind = self._y_type(x_kind, out, x_scale, y_type)
            bias_kind = element_type(bias.dtype, bias_type, "bias") if bias is not None else 0
            if bias is not None and bias.shape != (self.n,):
                raise InvalidError(f"bias must have shape ({self.n},), got {bias.shape}")
            if x_scale is not None and x_scale.dtype != np.float32:
                raise InvalidError(f"x_scale must be float32, got {x_scale.dtype}")
            y, whole = self._output(core, x, out, y_kind)
            rows = self._staged(core, rows)
            product = ffi.new(_PRODUCT)
            product.m = rows.shape[0]
            product.x, product.x_type, product.x_stride = _pointer(rows), x_kind, _row_stride(rows)
            product.y, product.y_type, product.y_stride = _pointer(y), y_kind, _row_stride(y)
            if bias is not None:
                bias = self._staged(core, bias)
                product.bias, product.bias_type = _pointer(bias), bias_kind
            if x_scale is not None:
                x_scale = self._staged(core, x_scale)
                product.x_scale = ffi.cast("const float *", _pointer(x_scale))
            product.priority = member(Priority, priority, "priority")
            product.deadline_us = _microseconds(deadline)
            return self._send(core, product, (rows, y, bias, x_scale), whole)

    def submit_rows(
        self,
        x: Rows,
        out: Rows,
        *,
        bias: Optional[np.ndarray] = None,
        after: Optional[CudaEvent] = None,
        priority: Named = Priority.NORMAL,
        deadline: float = 0.0,
    ) -> Pending:
        """The same for x [m, k] and y [m, n] in memory of this process's own (gemmclient.memory), where gemmd reads and
        writes them. x must be complete, and nothing reads y any more: what does on a GPU has ended, or ends before `after`
        comes; where that takes longer than gemmd's event_timeout_ms, TimedOutError. wait() gives `out`. `bias` is [n],
        f32, in the arena or copied there."""
        if x.shape[1] != self.k or out.shape != (x.shape[0], self.n):
            raise InvalidError(f"x [m, {self.k}] and y [m, {self.n}] are asked for, got {x.shape} and {out.shape}")
        if bias is not None and (bias.shape != (self.n,) or bias.dtype != np.float32):
            raise InvalidError(f"bias must be float32 of shape ({self.n},), got {bias.dtype} {bias.shape}")
        with self._core as core:
            self._check_open()
            product = ffi.new(_PRODUCT)
            product.m = x.shape[0]
            product.x, product.x_type = ffi.cast(_POINTER, x.address), x.type
            product.y, product.y_type = ffi.cast(_POINTER, out.address), out.type
            if bias is not None:
                bias = self._staged(core, bias)
                product.bias, product.bias_type = _pointer(bias), ElementType.F32
            if after is not None:
                product.after = after.shared
            product.priority = member(Priority, priority, "priority")
            product.deadline_us = _microseconds(deadline)
            return self._send(core, product, (x, out, bias, after), out)

    def _check_open(self) -> None:
        if self._handle is None:
            raise WrongStateError(f"weight {self.info.name} is closed")

    def _y_type(self, x_type: ElementType, out, x_scale, named: Optional[Named]) -> ElementType:
        if out is not None:
            return element_type(out.dtype, named, "y")
        if named is not None:
            return element_type(numpy_type(named), named if isinstance(named, (str, int)) else None, "y")
        if x_type in _FLOATS:
            return x_type
        return ElementType.S32 if x_type is ElementType.INT8 and x_scale is None else ElementType.F32

    def _output(self, core: Core, x: np.ndarray, out: Optional[np.ndarray], kind: ElementType):
        """y as rows, and as the caller gets it."""
        if out is None:
            # ml_dtypes' bfloat16 in, the same out: numpy calls both by one name.
            dtype = x.dtype if kind is ElementType.BF16 and x.dtype.name == "bfloat16" else numpy_type(kind)
            out = allocate(core, x.shape[:-1] + (self.n,), dtype)
            return out.reshape(-1, self.n), out
        if not in_arena(out, core):
            raise InvalidError("out must lie in the session's arena (Session.empty)")
        if out.shape != x.shape[:-1] + (self.n,):
            raise InvalidError(f"out must have shape {x.shape[:-1] + (self.n,)}, got {out.shape}")
        rows = out.reshape(-1, self.n)
        if not np.may_share_memory(rows, out) or not _dense_rows(rows):
            raise InvalidError("out must have rows that are contiguous and evenly apart")
        return rows, out

    def _staged(self, core: Core, array: np.ndarray) -> np.ndarray:
        """The array itself where the daemon can read it in place, else its copy in the arena."""
        if in_arena(array, core) and _dense_rows(array) and _address(array) % _ALIGN == 0:
            return array
        copy = allocate(core, array.shape, array.dtype)
        copy[...] = array
        return copy

    def _send(self, core: Core, product, tensors: Tuple, whole: Result) -> Pending:
        ticket = ffi.new(_TICKET)
        status = lib.gemmd_submit(self._handle, product, ticket)
        if status == lib.GEMMD_BUSY:  # perhaps only because nobody has taken what is finished
            core.collect()
            status = lib.gemmd_submit(self._handle, product, ticket)
        core.check(status)
        return Pending(core, self, ticket[0], whole, tensors)

    def close(self) -> None:
        """Gives the handle back, after the products that use it."""
        for pending in [one for one in list(self._core.pending.values()) if one.weight is self]:
            pending.settle()
        handle, self._handle = self._handle, None
        if handle is not None:
            self._core.drop(handle)

    def __del__(self) -> None:
        # Products in flight hold their weight, so that none uses it now.
        if self._handle is not None:
            self._core.drop(self._handle)

    def __enter__(self) -> "Weight":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gemmclient.Weight {self.info.name!r} {self.n}x{self.k} {self.info.format.name.lower()}>"


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _pointer(array: np.ndarray):
    return ffi.cast(_POINTER, _address(array))


def _microseconds(seconds: float) -> int:
    """0 stays 0, which means none; anything above is at least one."""
    if not 0 <= seconds < 4000:
        raise InvalidError(f"deadline must be 0..4000 s, got {seconds}")
    return -int(-seconds * 1e6 // 1)


def _row_stride(array: np.ndarray) -> int:
    """0 lets the library say what is dense."""
    return array.strides[0] if array.ndim == 2 and array.shape[0] > 1 else 0


def _dense_rows(array: np.ndarray) -> bool:
    """Contiguous rows, one after the other at even distance, the way the library takes them."""
    if array.ndim != 2 or array.shape[0] < 2:
        return array.flags.c_contiguous
    return (array.shape[1] < 2 or array.strides[1] == array.itemsize) and array.strides[0] >= array.nbytes // len(array)
