"""Linear layers of a PyTorch model served by gemmd.

    import gemmclient, gemmclient.torch
    session = gemmclient.connect()
    gemmclient.torch.replace_linear(model, "int8", ["encoder.*"], session=session)
    with torch.inference_mode():
        model(...)

Where gemmd lends its weights to this user (its option `direct`), products are computed in this process, on the tensor's
device and the current stream: nothing is copied, and CUDA graphs record them. Else gemmd's worker computes them, and a warning says
why.

The operator is torch.ops.gemmd.linear(x, weight, n); torch.compile takes it as it is. It computes no gradients and says
so. Weights are known to gemmd by a name that ends in a hash of their values, so that a second process, or the same one
after a restart, finds them there and sends nothing.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import itertools
import os
import weakref
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import nn

from . import _safetensors
from ._torch_direct import Layer, lane
from ._torch_places import HOST, TYPES, Mapped, Place, Staging, staging_of
from .errors import InvalidError, NotFoundError, OutOfMemoryError, TimedOutError, WrongStateError
from .product import Pending
from .session import Session
from .types import Format, Method, Named, Scale, member
from .weight import Weight

__all__ = ["GemmdLinear", "lane", "record_inputs", "replace_linear"]

Path = Union[str, "os.PathLike[str]"]


class _Served:
    """An open weight, and the bias that belongs to it."""

    def __init__(self, session: Session, weight: Weight, bias: Optional[torch.Tensor]):
        self.session = session
        self.weight = weight
        self.given_bias = bias.detach() if bias is not None else None
        self._bias: Optional[np.ndarray] = None
        self._places: Dict[Tuple[torch.device, torch.dtype], Tuple[Staging, int, List[Place]]] = {}
        self._layers: Dict[torch.device, Optional[Layer]] = {}

    @property
    def bias(self) -> Optional[np.ndarray]:
        """In the arena, for products by gemmd's worker."""
        if self._bias is None and self.given_bias is not None:
            self._bias = self.session.array(self.given_bias.float().cpu().numpy())
        return self._bias

    def layer(self, device: torch.device) -> Optional[Layer]:
        """The weight as products in this process have it; None where gemmd's worker computes them."""
        if device not in self._layers:
            self._layers[device] = Layer.borrow(self.session, device, self.weight.info.name, self.given_bias)
        return self._layers[device]

    def staging(self, device: torch.device) -> Staging:
        return staging_of(self.session, device)

    def places(self, device: torch.device, dtype: torch.dtype) -> Tuple[Staging, int, List[Place]]:
        """Where rows of a tensor pass, how many fit at a time, and the places themselves."""
        found = self._places.get((device, dtype))
        if found is None:
            staging = self.staging(device)
            if isinstance(staging, Mapped) and not staging.takes(self.weight):
                staging = self.staging(HOST)
            rows = staging.bytes // (max(self.weight.n, self.weight.k) * dtype.itemsize)
            if rows == 0:
                raise OutOfMemoryError(
                    f"a row of {max(self.weight.n, self.weight.k)} elements does not fit into the session's arena"
                )
            with torch.inference_mode(False):  # they are written to in any mode
                places = staging.places(self.weight, self.bias, dtype, rows)
            found = self._places[device, dtype] = (staging, rows, places)
        return found

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., k] of any device -> y [..., n] there."""
        if x.dtype not in TYPES:
            raise InvalidError(f"x must be float32, float16 or bfloat16, got {x.dtype}")
        k, n = self.weight.k, self.weight.n
        if x.shape[-1] != k:
            raise InvalidError(f"x must have {k} columns, got shape {tuple(x.shape)}")
        x_rows = x.reshape(-1, k)
        layer = self.layer(x.device)
        if layer is not None:
            return layer.product(x)
        y = torch.empty(x.shape[:-1] + (n,), dtype=x.dtype, device=x.device)
        staging, most, places = self.places(x.device, x.dtype)
        with staging.lock:
            staging.begin()
            _stream(places, most, x_rows, y.view(-1, n))
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
        layer = cls(session, full, bias, weight.dtype)
        if weight.device.type == "cuda":  # now, because it takes what a graph's capture does not allow
            _served[layer.number].layer(weight.device)
        return layer

    @classmethod
    def from_file(
        cls,
        path: Path,
        tensor: str,
        bias: Optional[torch.Tensor],
        session: Session,
        name: str,
        format: Named,
        dtype: torch.dtype = torch.float32,
    ) -> "GemmdLinear":
        """Serves 2-bit weights of a file that `gemmctl quantize` has made. Named as from_weight does."""
        chosen = member(Format, format, "format")
        file = _safetensors.Reader(path)
        digest = hashlib.blake2b(file.data(tensor), digest_size=8)
        digest.update(file.data(f"{tensor}_scale"))
        full = f"{name}.{chosen.name.lower()}.{digest.hexdigest()}"
        try:
            session.stat(full)
        except NotFoundError:
            session.load(path, tensor=tensor, name=full, format=chosen)
        return cls(session, full, bias, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.gemmd.linear(x, self.number, self.out_features)

    def extra_repr(self) -> str:
        return f"{self.name}, in_features={self.in_features}, out_features={self.out_features}, format={self.format}"

    def __getstate__(self) -> object:
        raise WrongStateError("a GemmdLinear belongs to the process that opened it; copy the model before replacing")


def _array(weight: torch.Tensor) -> Tuple[np.ndarray, str]:
    values = weight.detach().cpu().contiguous()
    if values.dtype not in TYPES:
        raise InvalidError(f"a weight must be float32, float16 or bfloat16, got {values.dtype}")
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16), "bf16"
    return values.numpy(), TYPES[values.dtype]


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
    quantized: Optional[Path] = None,
) -> List[str]:
    """Puts a GemmdLinear in the place of each nn.Linear whose path in the model matches one of the fnmatch(3)
    patterns. Returns the paths. The values that the model held are freed with their last other reference.

    `quantized`: a file that `gemmctl quantize` has made, from which the weights are taken as "<path>.weight"; `format`
    is then int2 or int2a8, and `scale` and `method` are the file's."""
    made: Dict[nn.Linear, GemmdLinear] = {}
    paths = []
    for path, parent, child, linear in _matching(model, patterns):
        if linear not in made:
            name, bias = f"{prefix}/{path}", linear.bias
            if quantized is None:
                layer = GemmdLinear.from_weight(
                    linear.weight, bias, session, name, format, scale=scale, method=method
                )
            else:
                dtype = linear.weight.dtype
                layer = GemmdLinear.from_file(quantized, f"{path}.weight", bias, session, name, format, dtype)
                if layer.weight.shape != linear.weight.shape:
                    shapes = f"{tuple(layer.weight.shape)}, the model's {tuple(linear.weight.shape)}"
                    raise InvalidError(f"{quantized}: {path}.weight is {shapes}")
            made[linear] = layer
        setattr(parent, child, made[linear])
        paths.append(path)
    return paths


def _matching(model: nn.Module, patterns: Sequence[str]) -> List[Tuple[str, nn.Module, str, nn.Linear]]:
    """Path, parent, name in it, layer."""
    return [one for one in _linears(model) if any(fnmatch.fnmatchcase(one[0], pattern) for pattern in patterns)]


def _linears(model: nn.Module) -> Iterator[Tuple[str, nn.Module, str, nn.Linear]]:
    for parent_path, parent in model.named_modules():
        for child, module in parent._modules.items():
            if type(module) is nn.Linear:
                yield (f"{parent_path}.{child}" if parent_path else child), parent, child, module


# ---- what GPTQ is calibrated with


@contextlib.contextmanager
def record_inputs(
    model: nn.Module, file: Path, patterns: Sequence[str] = ("*",), *, rows: int = 8192
) -> Iterator[None]:
    """Within `with`, the first `rows` rows that each nn.Linear whose path matches sees are kept; at its end they are
    written to `file`, a safetensors file, as "<path>.weight": `gemmctl quantize --calibration` takes it. What is no
    input in service, such as padding, should not be in the batches."""
    seen: Dict[str, List[torch.Tensor]] = {}
    hooks = []
    for path, _, _, linear in _matching(model, patterns):
        kept = seen.setdefault(f"{path}.weight", [])
        hooks.append(linear.register_forward_pre_hook(_keeper(kept, rows)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    tensors = {}
    for name, kept in seen.items():
        if not kept:
            raise WrongStateError(f"nothing went through the layer of {name}")
        values, element = _array(torch.cat(kept))
        tensors[name] = (element.upper(), values.shape, values.data)
    with open(file, "wb") as out:
        _safetensors.write(out, tensors)


def _keeper(kept: List[torch.Tensor], rows: int):
    def keep(_: nn.Module, inputs: Tuple[torch.Tensor, ...]) -> None:
        room = rows - sum(len(one) for one in kept)
        if room > 0:
            x = inputs[0].detach()
            kept.append(x.reshape(-1, x.shape[-1])[:room].cpu().clone())

    return keep
