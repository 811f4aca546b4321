"""Linear layers of a PyTorch model served by gemmd.

    import gemmclient, gemmclient.torch
    session = gemmclient.connect()
    gemmclient.torch.replace_linear(model, "int8", ["encoder.*"], session=session)
    with torch.inference_mode():
        model(...)

The operator is torch.ops.gemmd.linear(x, weight, n); torch.compile takes it as it is. It computes no gradients and says
so. Weights are known to gemmd by a name that ends in a hash of their values, so that a second process, or the same one
after a restart, finds them there and sends nothing.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import threading
import weakref
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import nn

from .errors import InvalidError, NotFoundError, OutOfMemoryError, WrongStateError
from .product import Pending
from .session import Session
from .types import Format, Method, Named, Scale, member
from .weight import Weight

__all__ = ["GemmdLinear", "replace_linear"]

_TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_SLOT_BYTES = 4 << 20  # of rows of x, and of y, that are in flight at a time


class _Staging:
    """Two places in a session's arena for rows on their way in and out: while one is computed, the other is filled.

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


_staging: "weakref.WeakKeyDictionary[Session, _Staging]" = weakref.WeakKeyDictionary()
_staging_lock = threading.Lock()


def _staging_of(session: Session) -> _Staging:
    with _staging_lock:
        if session not in _staging:
            _staging[session] = _Staging(session)
        return _staging[session]


class _Served:
    """An open weight, and the bias that belongs to it."""

    def __init__(self, session: Session, weight: Weight, bias: Optional[torch.Tensor]):
        self.session = session
        self.weight = weight
        self.staging = _staging_of(session)
        self.bias = session.array(bias.detach().float().cpu().numpy()) if bias is not None else None
        self._views: Dict[torch.dtype, Tuple[int, List[Tuple]]] = {}

    def views(self, dtype: torch.dtype) -> Tuple[int, List[Tuple]]:
        """How many rows fit into a slot, and each slot as numpy and torch see it: x, x, y, y."""
        found = self._views.get(dtype)
        if found is None:
            size, n, k = dtype.itemsize, self.weight.n, self.weight.k
            rows = self.staging.bytes // (max(n, k) * size)
            if rows == 0:
                raise OutOfMemoryError(f"a row of {max(n, k)} elements does not fit into the session's arena")
            number = np.float32 if dtype == torch.float32 else np.float16 if dtype == torch.float16 else np.uint16
            slots = []
            with torch.inference_mode(False):  # they are written to in any mode
                for x_bytes, y_bytes in self.staging.slots:
                    x = x_bytes[: rows * k * size].view(number).reshape(rows, k)
                    y = y_bytes[: rows * n * size].view(number).reshape(rows, n)
                    slots.append((x, _as_torch(x, dtype), y, _as_torch(y, dtype)))
            found = self._views[dtype] = (rows, slots)
        return found

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., k] of any device -> y [..., n] there."""
        if x.dtype not in _TYPES:
            raise InvalidError(f"x must be float32, float16 or bfloat16, got {x.dtype}")
        k, n = self.weight.k, self.weight.n
        if x.shape[-1] != k:
            raise InvalidError(f"x must have {k} columns, got shape {tuple(x.shape)}")
        x_rows = x.reshape(-1, k)
        y = torch.empty(x.shape[:-1] + (n,), dtype=x.dtype, device=x.device)
        y_rows = y.view(-1, n)
        with self.staging.lock:
            self._stream(x_rows, y_rows)
        return y

    def _stream(self, x: torch.Tensor, y: torch.Tensor) -> None:
        most, slots = self.views(x.dtype)
        kind = _TYPES[x.dtype]
        flying: List[Tuple[Pending, torch.Tensor, torch.Tensor]] = []
        try:
            for number, begin in enumerate(range(0, x.shape[0], most)):
                if len(flying) == len(slots):
                    _land(*flying.pop(0))
                rows = min(most, x.shape[0] - begin)
                x_array, x_slot, y_array, y_slot = slots[number % len(slots)]
                x_slot[:rows].copy_(x[begin : begin + rows])
                pending = self.weight.submit(
                    x_array[:rows], out=y_array[:rows], bias=self.bias, x_type=kind, y_type=kind
                )
                flying.append((pending, y_slot[:rows], y[begin : begin + rows]))
            while flying:
                _land(*flying.pop(0))
        finally:
            for pending, _, _ in flying:  # what is left after an error must not write into the next one's rows
                pending.settle()


def _as_torch(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array.view(np.int16) if dtype == torch.bfloat16 else array).view(dtype)


def _land(pending: Pending, place: torch.Tensor, to: torch.Tensor) -> None:
    pending.wait()
    to.copy_(place)


# ---- the operator

_served: Dict[int, _Served] = {}
_numbers = itertools.count(1)

_library = torch.library.Library("gemmd", "DEF")
_library.define("linear(Tensor x, int weight, int n) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


def _linear(x: torch.Tensor, weight: int, n: int) -> torch.Tensor:
    served = _served.get(weight)
    if served is None:
        raise WrongStateError(f"number {weight} names no weight that this process has open")
    return served.product(x)


def _fake(x: torch.Tensor, weight: int, n: int) -> torch.Tensor:
    return x.new_empty(x.shape[:-1] + (n,))


def _no_gradient(ctx: object, inputs: object, output: object) -> None:
    raise RuntimeError(
        "gemmd computes products for inference and no gradients: call the model in torch.inference_mode() or "
        "torch.no_grad(), or keep this layer out of replace_linear"
    )


_library.impl("linear", _linear, "CPU")
_library.impl("linear", _linear, "CUDA")
torch.library.register_fake("gemmd::linear", _fake, lib=_library)
torch.library.register_autograd("gemmd::linear", lambda *_: None, setup_context=_no_gradient, lib=_library)


# ---- modules


class GemmdLinear(nn.Module):
    """nn.Linear whose weight is with gemmd. `weight` has its shape and type, and no values (device "meta")."""

    def __init__(
        self, session: Session, name: str, bias: Optional[torch.Tensor] = None, dtype: torch.dtype = torch.float32
    ):
        """Opens the weight of that name. `bias` is [n]."""
        super().__init__()
        weight = session.open(name)
        if bias is not None and tuple(bias.shape) != (weight.n,):
            raise InvalidError(f"bias must have shape ({weight.n},), got {tuple(bias.shape)}")
        self.name, self.format = name, weight.info.format.name.lower()
        self.in_features, self.out_features = weight.k, weight.n
        self.weight = torch.empty(weight.n, weight.k, dtype=dtype, device="meta")
        self.bias = torch.empty(weight.n, dtype=dtype, device="meta") if bias is not None else None
        self.number = next(_numbers)
        _served[self.number] = _Served(session, weight, bias)
        weakref.finalize(self, _served.pop, self.number, None)

    @classmethod
    def from_weight(
        cls,
        weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        session: Session,
        name: str,
        format: Named,
        *,
        scale: Named = Scale.DEFAULT,
        method: Named = Method.DEFAULT,
    ) -> "GemmdLinear":
        """Serves a weight [n, k]. Its name in gemmd is `name`, the format and a hash of what it is made of."""
        chosen = member(Format, format, "format")
        values, element = _array(weight)
        made_of = f"{chosen}/{int(member(Scale, scale, 'scale'))}/{int(member(Method, method, 'method'))}/{element}"
        digest = hashlib.blake2b(values.data, digest_size=8, person=made_of.encode()[:16], salt=_salt(values.shape))
        full = f"{name}.{chosen.name.lower()}.{digest.hexdigest()}"
        try:
            session.stat(full)
        except NotFoundError:
            session.load_array(values, name=full, format=chosen, element=element, scale=scale, method=method)
        return cls(session, full, bias, weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.gemmd.linear(x, self.number, self.out_features)

    def extra_repr(self) -> str:
        return f"{self.name}, in_features={self.in_features}, out_features={self.out_features}, format={self.format}"

    def __getstate__(self) -> object:
        raise WrongStateError("a GemmdLinear belongs to the process that opened it; copy the model before replacing")


def _array(weight: torch.Tensor) -> Tuple[np.ndarray, str]:
    values = weight.detach().cpu().contiguous()
    if values.dtype not in _TYPES:
        raise InvalidError(f"a weight must be float32, float16 or bfloat16, got {values.dtype}")
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16), "bf16"
    return values.numpy(), _TYPES[values.dtype]


def _salt(shape: Tuple[int, ...]) -> bytes:
    return b"".join(size.to_bytes(8, "little") for size in shape)


def replace_linear(
    model: nn.Module,
    format: Named,
    patterns: Sequence[str] = ("*",),
    *,
    session: Session,
    prefix: str = "torch",
    scale: Named = Scale.DEFAULT,
    method: Named = Method.DEFAULT,
) -> List[str]:
    """Puts a GemmdLinear in the place of each nn.Linear whose path in the model matches one of the fnmatch(3)
    patterns. Returns the paths. The values that the model held are freed with their last other reference."""
    made: Dict[nn.Linear, GemmdLinear] = {}
    paths = []
    for path, parent, child, linear in list(_linears(model)):
        if not any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            continue
        if linear not in made:
            made[linear] = GemmdLinear.from_weight(
                linear.weight, linear.bias, session, f"{prefix}/{path}", format, scale=scale, method=method
            )
        setattr(parent, child, made[linear])
        paths.append(path)
    return paths


def _linears(model: nn.Module) -> Iterator[Tuple[str, nn.Module, str, nn.Linear]]:
    for parent_path, parent in model.named_modules():
        for child, module in parent._modules.items():
            if type(module) is nn.Linear:
                yield (f"{parent_path}.{child}" if parent_path else child), parent, child, module
