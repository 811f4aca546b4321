"""Products over experts: weights [E, n, k], of which a row of x takes those that it names by ids.

    layer = Plan(session, [Step(gate_up, "bf16", "silu", gated=True), Step(down, "bf16")])
    y = layer.run(x, ids, routing)       # x [m, k], ids [m, T] int32, routing [m, T] float32 -> y [m, n]
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ._core import Core
from ._library import ffi, lib
from .errors import InvalidError
from .product import Pending
from .session import Session
from .types import Activation, ElementType, Named, Priority, element_type, member, numpy_type
from .weight import Weight, allocate, as_rows, in_arena

__all__ = ["Plan", "Step", "matmul", "submit"]

_PRODUCT, _EXPERTS, _TICKET = (ffi.typeof(f"{name} *") for name in ("gemmd_product", "gemmd_experts", "uint64_t"))
_ALIGN = 16  # bytes; of tensors in the arena


class Step(NamedTuple):
    """Of a plan: v = x * W^T + bias in y_type; then act(v), or gated act(first half) * second half, in y_type again.
    `bias`, [E, n], is of float32, or of `bias_type` where numpy has none."""

    weight: Weight
    y_type: Named
    activation: Named = Activation.NONE
    gated: bool = False
    bias: Optional[np.ndarray] = None
    bias_type: Optional[Named] = None


class Plan:
    """Products over experts of which one's result is the next one's x; all weights have as many. Belongs to the session,
    and keeps its weights in use."""

    def __init__(self, session: Session, steps: Sequence[Step]):
        self._handle = None
        self._core = session._core
        self.weights: Tuple[Weight, ...] = tuple(step.weight for step in steps)
        all_steps, self._biases = ffi.new("gemmd_step[]", len(steps)), []  # in the arena, where the plan reads them
        for to, step in zip(all_steps, steps):
            step.weight._check_open()
            to.weight, to.gated = step.weight._handle, step.gated
            to.y_type = member(ElementType, step.y_type, "y_type")
            to.activation = member(Activation, step.activation, "activation")
            if step.bias is not None:
                self._add_bias(to, step)
        last = steps[-1]
        self.k = self.weights[0].k
        self.n = last.weight.n // 2 if last.gated else last.weight.n
        self.y_type = member(ElementType, last.y_type, "y_type")
        out = ffi.new("gemmd_plan **")
        with self._core as core:
            core.check(lib.gemmd_plan_create(core.session, all_steps, len(steps), out))
            self._handle = out[0]

    def _add_bias(self, to, step: Step) -> None:
        shape = step.weight.info.experts, step.weight.n
        if step.bias.shape != shape:
            raise InvalidError(f"bias must have shape {shape}, got {step.bias.shape}")
        to.bias_type = element_type(step.bias.dtype, step.bias_type, "bias")
        with self._core as core:
            there = allocate(core, shape, step.bias.dtype)
        there[:] = step.bias
        self._biases.append(there)
        to.bias = ffi.cast("const void *", _address(there))

    def run(self, x: np.ndarray, ids: np.ndarray, routing: Optional[np.ndarray] = None, **options) -> np.ndarray:
        """`options` are submit's."""
        return self.submit(x, ids, routing, **options).wait()

    def submit(self, x: np.ndarray, ids: np.ndarray, routing: Optional[np.ndarray] = None, **options) -> Pending:
        """As submit for one weight; y is of the last step's type."""
        send = lib.gemmd_experts_plan_submit
        return _submit(self._core, self, send, (self.k, self.n), (x, ids, routing), y_type=self.y_type, **options)

    def __del__(self) -> None:
        if self._handle is not None:
            self._core.drop(self._handle)


def matmul(weight: Weight, x: np.ndarray, ids: np.ndarray, routing: Optional[np.ndarray] = None, **options):
    """`options` are submit's."""
    return submit(weight, x, ids, routing, **options).wait()


def submit(
    weight: Weight, x: np.ndarray, ids: np.ndarray, routing: Optional[np.ndarray] = None, **options
) -> Pending:
    """Asks for a product over experts and returns at once.

    ids are int32 [..., T], -1 and what else is no expert skips; x is [..., k], or with `x_pairs` [..., T, k]. y is
    [..., n], the sum of the pairs' products by routing, f32 as ids (without it by 1), or with sum=False [..., T, n].
    `out`, `x_type`, `y_type`, `priority` and `deadline` are as of Weight.submit; without y_type y is of x's type.
    `Pending.skipped` says how many ids were none."""
    weight._check_open()
    send = lib.gemmd_experts_submit
    return _submit(weight._core, weight, send, (weight.k, weight.n), (x, ids, routing), **options)


def _submit(
    core: Core,
    holder,
    send,
    sizes: Tuple[int, int],
    tensors: Tuple[np.ndarray, np.ndarray, Optional[np.ndarray]],
    *,
    x_pairs: bool = False,
    sum: bool = True,
    out: Optional[np.ndarray] = None,
    x_type: Optional[Named] = None,
    y_type: Optional[Named] = None,
    priority: Named = Priority.NORMAL,
    deadline: float = 0.0,
) -> Pending:
    (k, n), (x, ids, routing) = sizes, tensors
    _check(x, ids, routing, x_pairs)
    x_kind = element_type(x.dtype, x_type, "x")
    if out is not None:
        y_kind = element_type(out.dtype, y_type, "y")
    else:
        y_kind = member(ElementType, y_type, "y_type") if y_type is not None else x_kind
    with core:
        rows = _staged(core, as_rows(x, k, "x"))
        ids_there = _staged(core, ids.reshape(-1, ids.shape[-1]))
        routing_there = _staged(core, routing.reshape(-1, ids.shape[-1])) if routing is not None else None
        shape = ids.shape[:-1] + (n,) if sum else ids.shape + (n,)
        y = _output(core, out, shape, x, y_kind)
        product, experts, ticket = ffi.new(_PRODUCT), ffi.new(_EXPERTS), ffi.new(_TICKET)
        product.m = ids_there.shape[0]
        product.x, product.x_type = _pointer(rows), x_kind
        product.y, product.y_type = _pointer(y), y_kind
        product.priority = member(Priority, priority, "priority")
        product.deadline_us = -int(-deadline * 1e6 // 1)
        experts.ids = ffi.cast("const int32_t *", _pointer(ids_there))
        if routing_there is not None:
            experts.routing = ffi.cast("const float *", _pointer(routing_there))
        experts.top, experts.x_pairs, experts.sum = ids.shape[-1], x_pairs, sum
        status = send(holder._handle, product, experts, ticket)
        if status == lib.GEMMD_BUSY:  # perhaps only because nobody has taken what is finished
            core.collect()
            status = send(holder._handle, product, experts, ticket)
        core.check(status)
        return Pending(core, holder, ticket[0], y, (rows, ids_there, routing_there))


def _check(x: np.ndarray, ids: np.ndarray, routing: Optional[np.ndarray], x_pairs: bool) -> None:
    if ids.dtype != np.int32 or ids.ndim < 1 or ids.size == 0:
        raise InvalidError(f"ids must be int32 [..., T], got {ids.dtype} {ids.shape}")
    lead = ids.shape if x_pairs else ids.shape[:-1]
    if x.shape[:-1] != lead:
        raise InvalidError(f"x must have shape {lead + ('k',)} with ids {ids.shape}, got {x.shape}")
    if routing is not None and (routing.dtype != np.float32 or routing.shape != ids.shape):
        raise InvalidError(f"routing must be float32 of shape {ids.shape}, got {routing.dtype} {routing.shape}")


def _staged(core: Core, array: np.ndarray) -> np.ndarray:
    """The array itself where the daemon can read it in place, else its copy in the arena."""
    if in_arena(array, core) and array.flags.c_contiguous and _address(array) % _ALIGN == 0:
        return array
    copy = allocate(core, array.shape, array.dtype)
    copy[...] = array
    return copy


def _output(core: Core, out: Optional[np.ndarray], shape: Tuple[int, ...], x: np.ndarray, kind: ElementType):
    if out is None:
        same = kind is ElementType.BF16 and x.dtype.name == "bfloat16"
        return allocate(core, shape, x.dtype if same else numpy_type(kind))
    if out.shape != shape:
        raise InvalidError(f"out must have shape {shape}, got {out.shape}")
    if not in_arena(out, core) or not out.flags.c_contiguous:
        raise InvalidError("out must lie dense in the session's arena (Session.empty)")
    return out


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _pointer(array: np.ndarray):
    return ffi.cast("void *", _address(array))
