"""Weights that this process has open for torch, and the operator torch.ops.gemmd.linear(x, weight, n)."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np
import torch

from ..errors import InvalidError, OutOfMemoryError, TimedOutError, WrongStateError
from ..product import Pending
from ..session import Session
from ..weight import Weight
from .direct import Call, Layer, check_not_capturing
from .kernel import CallByKernel
from .places import HOST, TYPES, Mapped, Place, Staging, staging_of


class Served:
    """An open weight, and the bias that belongs to it."""

    def __init__(self, session: Session, name: str, bias: Optional[torch.Tensor], release: bool = False):
        """`release`: with the last layer of this session's that has the name, gemmd drops it."""
        weight = session.open(name)
        self.session, self.name, self.release = session, name, release
        self.n, self.k, self.info = weight.n, weight.k, weight.info
        self._kernel: Optional[str] = None
        self.given_bias = bias.detach() if bias is not None else None
        self._weight: Optional[Weight] = weight
        self._forget()

    def _forget(self) -> None:
        self._bias: Optional[np.ndarray] = None
        self._places: Dict[Tuple[torch.device, torch.dtype], Tuple[Staging, int, List[Place]]] = {}
        self._layers: Dict[torch.device, Optional[Layer]] = {}
        self._local = threading.local()

    def forked(self) -> None:
        """In a child nothing of the parent's session can be used."""
        self._weight, self.release = None, False
        self._forget()

    @property
    def weight(self) -> Weight:
        if self._weight is None:
            self.session = _session_of_child(self.session)
            self._weight = self.session.open(self.name)
        return self._weight

    @property
    def bias(self) -> Optional[np.ndarray]:
        """In the arena, for products by gemmd's worker."""
        if self._bias is None and self.given_bias is not None:
            self._bias = self.session.array(self.given_bias.float().cpu().numpy())
        return self._bias

    def layer(self, device: torch.device) -> Optional[Layer]:
        """The weight as products in this process have it; None where gemmd's worker computes them."""
        if device not in self._layers:
            check_not_capturing(device, f"{self.name} has to be borrowed for {device} before; call the layer once")
            self._layers[device] = self._borrow(device)
        return self._layers[device]

    def _borrow(self, device: torch.device) -> Optional[Layer]:
        name = self.weight.info.name  # in a child this is what finds the session
        return Layer.borrow(self.session, device, name, self.given_bias)

    @property
    def kernel(self) -> Optional[str]:
        """Of products in this process; None: the library's choice."""
        return self._kernel

    @kernel.setter
    def kernel(self, text: Optional[str]) -> None:
        if text != self._kernel:
            self._kernel, self._local = text, threading.local()

    def places(self, device: torch.device, dtype: torch.dtype) -> Tuple[Staging, int, List[Place]]:
        """Where rows of a tensor pass, how many fit at a time, and the places themselves."""
        found = self._places.get((device, dtype))
        if found is None:
            weight = self.weight
            staging = staging_of(self.session, device)
            if isinstance(staging, Mapped) and not staging.takes(weight):
                staging = staging_of(self.session, HOST)
            rows = staging.bytes // (max(self.n, self.k) * dtype.itemsize)
            if rows == 0:
                raise OutOfMemoryError(
                    f"a row of {max(self.n, self.k)} elements does not fit into the session's arena"
                )
            with torch.inference_mode(False):  # they are written to in any mode
                places = staging.places(weight, self.bias, dtype, rows)
            found = self._places[device, dtype] = (staging, rows, places)
        return found

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., k] of any device -> y [..., n] there."""
        try:
            call = self._local.calls[x.dtype, x.device]
        except (AttributeError, KeyError):
            call = self._call(x.dtype, x.device)
        return call(x)

    def _call(self, dtype: torch.dtype, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
        """This thread's."""
        if dtype not in TYPES:
            raise InvalidError(f"x must be float32, float16 or bfloat16, got {dtype}")
        if device.type not in ("cpu", "cuda"):
            raise InvalidError(f"x must be on the CPU or a CUDA device, got {device}")
        layer = self.layer(device)
        if layer is None:
            call: Callable[[torch.Tensor], torch.Tensor] = self.by_worker
        else:
            call = Call(layer, dtype) if self._kernel is None else CallByKernel(layer, dtype, self._kernel)
        if not hasattr(self._local, "calls"):
            self._local.calls = {}
        self._local.calls[dtype, device] = call
        return call

    def by_worker(self, x: torch.Tensor) -> torch.Tensor:
        """The same by gemmd's worker."""
        if not x.shape or x.shape[-1] != self.k:
            raise InvalidError(f"x must have {self.k} columns, got shape {tuple(x.shape)}")
        check_not_capturing(x.device, f"it cannot record products by {self.name}, which gemmd's worker computes")
        y = x.new_empty((*x.shape[:-1], self.n))
        staging, most, places = self.places(x.device, x.dtype)
        with staging.lock:
            staging.begin()
            _stream(places, most, x.reshape(-1, self.k), y.view(-1, self.n))
            staging.end()
        return y


def _stream(places: List[Place], most: int, x: torch.Tensor, y: torch.Tensor) -> None:
    flying: List[Tuple[Pending, Place, torch.Tensor]] = []
    try:
        for number, begin in enumerate(range(0, x.shape[0], most)):
            if len(flying) == len(places):
                _land(*flying.pop(0))
            rows, place = min(most, x.shape[0] - begin), places[number % len(places)]
            place.x[:rows].copy_(x[begin : begin + rows])
            flying.append((place.submit(rows), place, y[begin : begin + rows]))
        while flying:
            _land(*flying.pop(0))
    finally:
        for pending, _, _ in flying:  # what is left after an error must not write into the next one's rows
            pending.settle()


def _land(pending: Pending, place: Place, to: torch.Tensor) -> None:
    try:
        pending.wait()
    except TimedOutError:  # more was queued ahead of x than gemmd waits for
        if place.later is None:
            raise
        place.later(len(to)).wait()
    to.copy_(place.y[: len(to)])


# ---- what is open, by number

served: Dict[int, Served] = {}
_numbers = itertools.count(1)


class Number:
    """Stands for a weight in `served`, which keeps it as long as this lives."""

    def __init__(self, one: Served):
        self.value = next(_numbers)
        served[self.value] = one
        weakref.finalize(self, _let_go, self.value)


def _let_go(number: int) -> None:
    # Perhaps inside a call of the session's: it is only noted there.
    one = served.pop(number, None)
    if one is None or not one.release:
        return
    if not any(other.name == one.name and other.session is one.session for other in list(served.values())):
        one.session._core.drop_name(one.name)


_children: Dict[Session, Session] = {}
_children_lock = threading.Lock()


def _session_of_child(session: Session) -> Session:
    """In a forked process, in the place of its parent's."""
    with _children_lock:
        if session not in _children:
            _children[session] = session._again()
        return _children[session]


def _forked() -> None:
    global _children_lock
    _children_lock = threading.Lock()  # another thread of the parent may have held it
    _children.clear()
    for one in list(served.values()):
        one.forked()


os.register_at_fork(after_in_child=_forked)


# ---- the operator

operators = torch.library.Library("gemmd", "DEF")
operators.define("linear(Tensor x, int weight, int n) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


def _linear(x: torch.Tensor, weight: int, n: int) -> torch.Tensor:
    one = served.get(weight)
    if one is None:
        raise WrongStateError(f"number {weight} names no weight that this process has open")
    return one.product(x)


def _fake(x: torch.Tensor, weight: int, n: int) -> torch.Tensor:
    return _fake_columns(x, n)


def _fake_columns(x: torch.Tensor, columns: int) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], columns))


# An operator, too, so that torch.compile can trace a backward() that nobody calls.
operators.define("no_gradient(Tensor y, int k) -> Tensor")


def _no_gradient(y: torch.Tensor, k: int) -> torch.Tensor:
    raise RuntimeError(
        "gemmd computes products for inference and no gradients: keep layers that gradients go through out of what is "
        "replaced"
    )


def _keep_columns(ctx: object, inputs: Tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.columns = [one.shape[-1] if isinstance(one, torch.Tensor) else 0 for one in inputs]


def _backward(ctx: object, gradient: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
    return tuple(
        torch.ops.gemmd.no_gradient(gradient, columns) if needed else None
        for columns, needed in zip(ctx.columns, ctx.needs_input_grad)
    )


def register_no_gradient(operator: str) -> None:
    """Whose inputs have as many rows as its output."""
    torch.library.register_autograd(operator, _backward, setup_context=_keep_columns, lib=operators)


def _autocast(device: str, key: torch._C.DispatchKey) -> Callable[[torch.Tensor, int, int], torch.Tensor]:
    """x is cast as nn.Linear's is; y is of that type."""
    keys = torch._C.DispatchKeySet(key)

    def linear(x: torch.Tensor, weight: int, n: int) -> torch.Tensor:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if x.is_floating_point() and x.dtype != torch.float64:
                x = x.to(torch.get_autocast_dtype(device))
            return torch.ops.gemmd.linear(x, weight, n)

    return linear


for _device in ("CPU", "CUDA"):
    operators.impl("linear", _linear, _device)
    operators.impl("no_gradient", _no_gradient, _device)
    _key = f"Autocast{_device}"
    operators.impl("linear", _autocast(_device.lower(), getattr(torch._C.DispatchKey, _key)), _key)
torch.library.register_fake("gemmd::linear", _fake, lib=operators)
torch.library.register_fake("gemmd::no_gradient", _fake_columns, lib=operators)
register_no_gradient("gemmd::linear")


def linear(x: torch.Tensor, number: int, n: int) -> torch.Tensor:
    """The operator; without torch's dispatcher where nothing of it has a part."""
    if (
        torch.compiler.is_compiling()
        or type(x) is not torch.Tensor
        or x.requires_grad
        or x.is_meta
        or torch._C._is_any_autocast_enabled()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    ):
        return torch.ops.gemmd.linear(x, number, n)
    return served[number].product(x)

