"""Products of two tensors, neither of which is a weight: as in the gradients of weights."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy as np

from ._core import Core
from ._library import ffi, lib
from .errors import InvalidError
from .product import Pending
from .types import ElementType, Named, element_type, numpy_type
from .weight import allocate, in_arena

_HALVES = (ElementType.F16, ElementType.BF16)
_ALIGN = 16  # bytes; of tensors in the arena


class _Placed(NamedTuple):
    array: np.ndarray  # keeps it
    address: int
    stride: int  # bytes from line to line
    turned: bool  # it lies by columns
    step: int  # bytes from product to product


def _lies(array: np.ndarray) -> Optional[bool]:
    """Whether the library can read it by columns (True) or by rows (False) where it is; None: neither."""
    rows, columns = array.shape[-2:]
    down, across = array.strides[-2:]
    size = array.itemsize
    if (columns == 1 or across == size) and (rows == 1 or down >= columns * size):
        return False
    if (rows == 1 or down == size) and (columns == 1 or across >= rows * size):
        return True
    return None


def _place(core: Core, array: np.ndarray) -> _Placed:
    """Where it lies in the arena; else a copy there, by columns where it lies so."""
    turned = _lies(array)
    steps_fit = array.ndim == 2 or array.shape[0] == 1 or array.strides[0] > 0
    address = array.__array_interface__["data"][0]
    if turned is None or not steps_fit or not in_arena(array, core) or address % _ALIGN != 0:
        turned = bool(turned)
        source = array.swapaxes(-1, -2) if turned else array
        copy = allocate(core, source.shape, source.dtype)
        copy[...] = source
        array = copy.swapaxes(-1, -2) if turned else copy
        address = array.__array_interface__["data"][0]
    lines, each = (array.shape[-1], array.shape[-2]) if turned else array.shape[-2:]
    stride = array.strides[-1 if turned else -2] if lines > 1 else each * array.itemsize
    step = array.strides[0] if array.ndim == 3 and array.shape[0] > 1 else 0
    return _Placed(array, address, stride, turned, step)


def _check(x: np.ndarray, w: np.ndarray) -> Tuple[int, ...]:
    """The shape of y."""
    if x.ndim not in (2, 3) or w.ndim != x.ndim:
        raise InvalidError(f"x and w must both have two dimensions, or three in a batch, got {x.shape} and {w.shape}")
    if x.shape[-1] != w.shape[-1] or x.shape[:-2] != w.shape[:-2]:
        raise InvalidError(f"x [.., m, k] and w [.., n, k] are asked for, got {x.shape} and {w.shape}")
    return (*x.shape[:-1], w.shape[-2])


def submit(
    core: Core,
    x: np.ndarray,
    w: np.ndarray,
    *,
    out: Optional[np.ndarray],
    add: bool,
    x_type: Optional[Named],
    y_type: Optional[Named],
    device: int,
) -> Pending:
    """Session.submit_tensors; the core's lock is held."""
    shape = _check(x, w)
    kind = element_type(x.dtype, x_type, "x")
    if kind not in _HALVES or element_type(w.dtype, x_type, "w") is not kind:
        raise InvalidError(f"x and w must be of one type, f16 or bf16, got {x.dtype} and {w.dtype}")
    if out is None:
        if add:
            raise InvalidError("add needs out, to which is added")
        out = allocate(core, shape, numpy_type(y_type if y_type is not None else ElementType.F32))
    if out.shape != shape or not in_arena(out, core) or _lies(out) is not False:
        raise InvalidError(f"out must have shape {shape} and contiguous rows, and lie in the session's arena")
    y = _place(core, out)
    if y.array is not out:
        raise InvalidError("out must begin at a multiple of 16 bytes")
    at_x, at_w = _place(core, x), _place(core, w)
    product, tensor = ffi.new("gemmd_product *"), ffi.new("gemmd_tensor *")
    product.m = shape[-2]
    product.x, product.x_type, product.x_stride = ffi.cast("void *", at_x.address), kind, at_x.stride
    product.y, product.y_stride = ffi.cast("void *", y.address), y.stride
    product.y_type = element_type(out.dtype, y_type, "y")
    tensor.data, tensor.stride, tensor.device = ffi.cast("void *", at_w.address), at_w.stride, device
    tensor.n, tensor.k = w.shape[-2:]
    tensor.turned, tensor.x_turned, tensor.add = at_w.turned, at_x.turned, add
    if x.ndim == 3:
        tensor.batch = x.shape[0]
        tensor.batch_stride, tensor.x_batch_stride, tensor.y_batch_stride = at_w.step, at_x.step, y.step
    ticket = ffi.new("uint64_t *")
    status = lib.gemmd_tensors_submit(core.session, tensor, product, ticket)
    if status == lib.GEMMD_BUSY:  # perhaps only because nobody has taken what is finished
        core.collect()
        status = lib.gemmd_tensors_submit(core.session, tensor, product, ticket)
    core.check(status)
    return Pending(core, None, ticket[0], out, (at_x, at_w, y))
