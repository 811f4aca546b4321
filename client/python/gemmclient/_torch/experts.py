"""Layers of experts of a PyTorch model served by gemmd, and the operator torch.ops.gemmd.experts."""

from __future__ import annotations

import fnmatch
import hashlib
import threading
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import nn

from .. import experts as _experts
from ..direct import DirectPlan
from ..errors import GemmdError, InvalidError, NotFoundError, WrongStateError
from ..session import Session
from ..types import Activation, Format, Method, Named, Scale, member
from .direct import Here, Layer, check_not_capturing
from .module import as_array
from .places import TYPES
from .served import Number, Served, operators, register_no_gradient, served

_ROWS_AT_ONCE = 16  # chunks are multiples of it, so that each begins at a multiple of 16 bytes
_WORKER_BYTES = 4 << 20  # of x and y that pass through the arena at a time
Biases = Tuple[Optional[torch.Tensor], Optional[torch.Tensor]]  # [E, 2F] and [E, k]
_NO_BIASES: Biases = (None, None)


class GemmdExperts(nn.Module):
    """What transformers calls experts: forward(hidden_states [m, k], top_k_index [m, T], top_k_weights [m, T]) gives
    [m, k], the sum over T of the weights times down(act(gate) * up). The weights are with gemmd.

    `release`: when the last layer of this session's that has the names is gone, gemmd drops them."""

    def __init__(
        self,
        session: Session,
        gate_up: str,
        down: str,
        activation: Named,
        *,
        biases: Biases = _NO_BIASES,
        release: bool = False,
    ):
        """Opens the weights of those names, [E, 2F, k] and [E, k, F]."""
        super().__init__()
        one = ServedExperts(session, gate_up, down, member(Activation, activation, "activation"), biases, release)
        self.names, self.num_experts = (gate_up, down), one.count
        self.hidden_dim, self.intermediate_dim = one.k, one.down.k
        self.format = one.up.info.format.name.lower()
        self._number = Number(one)
        self.number = self._number.value

    @classmethod
    def from_weights(
        cls,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        activation: Named,
        session: Session,
        name: str,
        format: Named,
        *,
        scale: Named = Scale.DEFAULT,
        method: Named = Method.DEFAULT,
        biases: Biases = _NO_BIASES,
        release: bool = False,
    ) -> "GemmdExperts":
        """Serves gate and up [E, 2F, k] and down [E, k, F]. Their names in gemmd are `name`, what they are, the format and
        a hash of their values."""
        made: List[str] = []
        names = []
        try:
            for what, weight in (("gate_up", gate_up), ("down", down)):
                full, loaded = _load(session, f"{name}.{what}", weight, format, scale, method)
                names.append(full)
                made += [full] if loaded else []
            layer = cls(session, names[0], names[1], activation, biases=biases, release=release)
        except BaseException:
            for full in made:
                session.unload(full)
            raise
        layer._loaded = made
        return layer

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        return torch.ops.gemmd.experts(hidden_states, top_k_index, top_k_weights, self.number)

    def __getstate__(self) -> object:
        raise WrongStateError("a GemmdExperts belongs to the process that opened it; copy the model before replacing")

    def _save_to_state_dict(self, destination: Dict[str, object], prefix: str, keep_vars: bool) -> None:
        raise WrongStateError(f"the experts of {prefix[:-1]} are with gemmd; save the model before replacing")

    def extra_repr(self) -> str:
        return (
            f"{self.names[0]}, {self.names[1]}, num_experts={self.num_experts}, hidden_dim={self.hidden_dim}, "
            f"intermediate_dim={self.intermediate_dim}, format={self.format}"
        )


def _load(
    session: Session, name: str, weight: torch.Tensor, format: Named, scale: Named, method: Named
) -> Tuple[str, bool]:
    """The name in gemmd, and whether it came to be here."""
    chosen = member(Format, format, "format")
    values, element = as_array(weight)
    made_of = f"{int(chosen)}/{int(member(Scale, scale, 'scale'))}/{int(member(Method, method, 'method'))}/{element}"
    digest = hashlib.blake2b(values.data, digest_size=8, person=made_of.encode()[:16])
    digest.update(repr(values.shape).encode())
    full = f"{name}.{chosen.name.lower()}.{digest.hexdigest()}"
    try:
        session.stat(full)
        return full, False
    except NotFoundError:
        session.load_array(values, name=full, format=chosen, element=element, scale=scale, method=method)
        return full, True


class ServedExperts:
    """Two open weights, and the layer that they are."""

    def __init__(
        self, session: Session, up: str, down: str, activation: Activation, biases: Biases, release: bool
    ):
        self.up, self.down = Served(session, up, None, release), Served(session, down, None, release)
        self.activation, self.name, self.release = activation, up, False  # each of the two releases its own
        self.session = session
        self.count, self.k = self.up.info.experts, self.up.k
        if (self.down.info.experts, self.down.n) != (self.count, self.k) or self.up.n != 2 * self.down.k:
            raise InvalidError(
                f"{up} is [{self.count}, {self.up.n}, {self.k}], {down} [{self.down.info.experts}, {self.down.n}, "
                f"{self.down.k}]: [E, 2F, k] and [E, k, F] are asked for"
            )
        for bias, n in zip(biases, (self.up.n, self.down.n)):
            if bias is not None and (tuple(bias.shape) != (self.count, n) or bias.dtype not in TYPES):
                raise InvalidError(f"a bias must be [{self.count}, {n}], got {tuple(bias.shape)} of {bias.dtype}")
        self.biases = tuple(bias if bias is None else bias.detach().clone() for bias in biases)
        self._numbers = Number(self.up), Number(self.down)
        self._forget()

    def _forget(self) -> None:
        self._calls: Dict[Tuple[torch.dtype, torch.device], Callable] = {}
        self._lock = threading.Lock()

    def forked(self) -> None:
        """In a child nothing of the parent's session can be used; the two find one of their own."""
        self._forget()

    def product(self, x: torch.Tensor, ids: torch.Tensor, routing: torch.Tensor) -> torch.Tensor:
        """x [..., k], ids and routing [m, T] -> y as x."""
        top = ids.shape[-1]
        if not x.shape or x.shape[-1] != self.k:
            raise InvalidError(f"x must have {self.k} columns, got shape {tuple(x.shape)}")
        if ids.shape != routing.shape or ids.numel() // max(top, 1) != x.numel() // self.k:
            raise InvalidError(
                f"ids and routing must be [m, T], got {tuple(ids.shape)} and {tuple(routing.shape)} for {tuple(x.shape)}"
            )
        call = self._calls.get((x.dtype, x.device)) or self._call(x.dtype, x.device)
        rows = x.reshape(-1, self.k).contiguous()
        y = torch.empty_like(rows)
        if rows.shape[0] > 0:
            call(rows, ids.reshape(-1, top).to(torch.int32).contiguous(), routing.reshape(-1, top).float().contiguous(), y)
        return y.view(x.shape)

    def _call(self, dtype: torch.dtype, device: torch.device) -> Callable:
        if dtype not in TYPES:
            raise InvalidError(f"x must be float32, float16 or bfloat16, got {dtype}")
        with self._lock:
            layers = self.up.layer(device), self.down.layer(device)
            up, down = layers
            call = _Direct(up, down, self, dtype) if up is not None and down is not None else _Worker(self, dtype)
            self._calls[dtype, device] = call
            return call


class _Direct:
    """In this process, on the current stream."""

    def __init__(self, up: Layer, down: Layer, of: ServedExperts, dtype: torch.dtype):
        self.where: Here = up.where
        self.layers = up, down
        kind = TYPES[dtype]
        device = self.where.device
        self.biases = [bias if bias is None else bias.to(device).contiguous() for bias in of.biases]  # the plan's
        there = [(0, kind) if bias is None else (bias.data_ptr(), TYPES[bias.dtype]) for bias in self.biases]
        self.plan = DirectPlan(
            [(up.weight, kind, of.activation, True, *there[0]), (down.weight, kind, Activation.NONE, False, *there[1])]
        )
        self.kind = kind

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, routing: torch.Tensor, y: torch.Tensor) -> None:
        where, top = self.where, ids.shape[1]
        stream = torch._C._cuda_getCurrentRawStream(where.device.index) if where.streams is not None else 0
        lane = where.streams.lane(stream) if where.streams is not None else 0
        most = min(where.direct.rows_most, where.direct.pairs_most // top)
        if most < x.shape[0]:
            most = most // _ROWS_AT_ONCE * _ROWS_AT_ONCE
        if most < 1:
            raise InvalidError(f"ids of {top} experts a row are more than {where.direct.pairs_most} pairs at a time")
        for begin in range(0, x.shape[0], most):
            rows = slice(begin, begin + most)
            self.plan.launch(
                len(x[rows]), x[rows].data_ptr(), self.kind, y[rows].data_ptr(), self.kind,
                ids=ids[rows].data_ptr(), routing=routing[rows].data_ptr(), top=top, stream=stream, lane=lane,
            )  # fmt: skip


class _Worker:
    """By gemmd's worker, through the session's arena."""

    def __init__(self, of: ServedExperts, dtype: torch.dtype):
        kind = TYPES[dtype]
        up, down = of.up.weight, of.down.weight
        biases = [bias if bias is None else bias.float().cpu().numpy() for bias in of.biases]
        self.plan = _experts.Plan(
            of.up.session,
            [
                _experts.Step(up, kind, of.activation, True, biases[0]),
                _experts.Step(down, kind, Activation.NONE, False, biases[1]),
            ],
        )
        self.kind, self.dtype = kind, dtype
        self.rows = max(1, _WORKER_BYTES // (of.k * dtype.itemsize))

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, routing: torch.Tensor, y: torch.Tensor) -> None:
        check_not_capturing(x.device, "it cannot record products that gemmd's worker computes")
        for begin in range(0, x.shape[0], self.rows):
            rows = slice(begin, begin + self.rows)
            values, _ = as_array(x[rows])
            there = self.plan.run(values, ids[rows].cpu().numpy(), routing[rows].cpu().numpy(), x_type=self.kind)
            if self.dtype == torch.bfloat16:
                y[rows] = torch.from_numpy(there.view(np.int16)).view(torch.bfloat16)
            else:
                y[rows] = torch.from_numpy(there)


# ---- the operator


def _product(x: torch.Tensor, ids: torch.Tensor, routing: torch.Tensor, experts: int) -> torch.Tensor:
    one = served.get(experts)
    if one is None:
        raise WrongStateError(f"number {experts} names no experts that this process has open")
    return one.product(x, ids, routing)


operators.define(
    "experts(Tensor x, Tensor ids, Tensor routing, int experts) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)
for _device in ("CPU", "CUDA"):
    operators.impl("experts", _product, _device)
torch.library.register_fake("gemmd::experts", lambda x, ids, routing, experts: torch.empty_like(x), lib=operators)
register_no_gradient("gemmd::experts")


# ---- in models


class Found(NamedTuple):
    path: str
    parent: nn.Module
    child: str
    module: nn.Module


_ACTIVATIONS = {
    "SiLU": "silu", "SiLUActivation": "silu", "GELU": "gelu", "GELUActivation": "gelu", "ReLU": "relu",
}  # fmt: skip


def replace_experts(
    model: nn.Module,
    format: Named,
    patterns: Union[str, Sequence[str]] = ("*",),
    *,
    session: Session,
    prefix: str = "torch",
    scale: Named = Scale.DEFAULT,
    method: Named = Method.DEFAULT,
    release: bool = False,
) -> List[str]:
    """Puts a GemmdExperts in the place of each module of experts whose path in the model matches one of the fnmatch(3)
    patterns: those of transformers 5 with `gate_up_proj` [E, 2F, k], `down_proj` [E, k, F] and `act_fn` (Qwen3-MoE,
    Mixtral, and what is built alike), and gpt-oss', with biases and its clamped SwiGLU. Returns the paths; a pattern that
    matches none is InvalidError.

    All or none: where one is refused, by gemmd or because it computes something else, the error names it, the model is
    as it was, and what was loaded for it is unloaded. `release` as of replace_linear."""
    found = _matching(model, [patterns] if isinstance(patterns, str) else patterns)
    made: List[GemmdExperts] = []
    try:
        for one in found:
            try:
                weights = _gpt_oss(one.module) if _is_gpt_oss(one.module) else _usual(one.module)
                made.append(
                    GemmdExperts.from_weights(
                        weights.gate_up, weights.down, weights.activation, session, f"{prefix}/{one.path}", format,
                        scale=scale, method=method, biases=weights.biases, release=release,
                    )
                )  # fmt: skip
            except GemmdError as error:
                raise type(error)(f"{one.path}: {error}") from error
    except BaseException:
        for name in {name for layer in made for name in layer._loaded}:
            try:
                session.unload(name)
            except GemmdError:
                pass
        raise
    for one, layer in zip(found, made):
        layer.training = one.module.training
        setattr(one.parent, one.child, layer)
    return [one.path for one in found]


def _matching(model: nn.Module, patterns: Sequence[str]) -> List[Found]:
    found, used = [], set()
    for parent_path, parent in model.named_modules():
        for child, module in parent._modules.items():
            path = f"{parent_path}.{child}" if parent_path else child
            if not _is_experts(module):
                continue
            matched = {pattern for pattern in patterns if fnmatch.fnmatchcase(path, pattern)}
            used |= matched
            if matched:
                found.append(Found(path, parent, child, module))
    for pattern in patterns:
        if pattern not in used:
            raise InvalidError(f"pattern {pattern!r} matches no experts of the model")
    return found


def _is_experts(module: Optional[nn.Module]) -> bool:
    weights = getattr(module, "gate_up_proj", None), getattr(module, "down_proj", None)
    return all(isinstance(one, torch.Tensor) and one.dim() == 3 for one in weights)


class Weights(NamedTuple):
    gate_up: torch.Tensor  # [E, 2F, k], the gate's rows first
    down: torch.Tensor  # [E, k, F]
    activation: str
    biases: Biases = _NO_BIASES


def _is_gpt_oss(module: nn.Module) -> bool:
    return all(hasattr(module, name) for name in ("alpha", "limit", "gate_up_proj_bias", "down_proj_bias"))


def _gpt_oss(module: nn.Module) -> Weights:
    """Its weights are transposed, [E, k, 2F] and [E, F, k], and columns of gate and up alternate."""
    if (module.alpha, module.limit) != (1.702, 7.0) or module.gate_up_proj.shape[:2] != module.down_proj.shape[::2]:
        raise InvalidError(f"its SwiGLU has alpha {module.alpha} and limit {module.limit}; 1.702 and 7 are taken")

    def apart(columns: torch.Tensor) -> torch.Tensor:
        return torch.cat((columns[..., ::2], columns[..., 1::2]), -1)

    with torch.no_grad():
        gate_up = apart(module.gate_up_proj).transpose(1, 2).contiguous()
        down = module.down_proj.transpose(1, 2).contiguous()
        return Weights(gate_up, down, "swiglu_clamped", (apart(module.gate_up_proj_bias), module.down_proj_bias))


def _usual(module: nn.Module) -> Weights:
    """What computes something else than down(act(gate) * up) is refused."""
    gate_up, down = module.gate_up_proj, module.down_proj
    experts, double, hidden = gate_up.shape
    if getattr(module, "is_transposed", False) or down.shape != (experts, hidden, double // 2):
        raise InvalidError(
            f"its weights are {tuple(gate_up.shape)} and {tuple(down.shape)}: [E, 2F, k] and [E, k, F] are taken"
        )
    if getattr(module, "has_bias", False) or any(hasattr(module, f"{name}_bias") for name in ("gate_up_proj", "down_proj")):
        raise InvalidError("its experts have biases")
    if not getattr(module, "is_concatenated", True) or getattr(module, "has_post_expert_norm", False):
        raise InvalidError("its rows of gate and up alternate, or a norm follows")
    gate = getattr(type(module), "_apply_gate", None)
    if gate is not None and gate.__name__ != "_default_apply_gate":
        raise InvalidError("it has a gate of its own")
    activation = _ACTIVATIONS.get(type(getattr(module, "act_fn", None)).__name__)
    if activation is None or getattr(module.act_fn, "approximate", "none") != "none":
        raise InvalidError(f"its activation is {getattr(module, 'act_fn', None)}; SiLU, GELU (erf) and ReLU are taken")
    return Weights(gate_up, down, activation)
