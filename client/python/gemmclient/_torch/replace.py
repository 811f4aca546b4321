"""Which layers of a model are replaced, and how: all of them or none."""

from __future__ import annotations

import contextlib
import fnmatch
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Type, Union

import torch
from torch import nn
from torch.nn.utils import parametrize

from ..errors import GemmdError, InvalidError
from ..session import Session
from ..types import Method, Named, Scale
from .checkpoint import is_checkpoint, load_layers, real_layers
from .hqq import hqq_codes, is_hqq
from .module import GemmdLinear, Path
from .take import Taker

Classes = Optional[Sequence[Type[nn.Linear]]]
Predicate = Optional[Callable[[str, nn.Linear], bool]]

_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
)  # fmt: skip


class Found(NamedTuple):
    path: str  # "" where the model is itself the layer
    parent: Optional[nn.Module]
    child: str  # name in the parent
    linear: nn.Linear


def replace_linear(
    model: nn.Module,
    format: Named,
    patterns: Union[str, Sequence[str]] = ("*",),
    *,
    session: Session,
    prefix: str = "torch",
    scale: Named = Scale.DEFAULT,
    method: Named = Method.DEFAULT,
    quantized: Optional[Path] = None,
    classes: Classes = None,
    predicate: Predicate = None,
    release: bool = False,
) -> List[str]:
    """Puts a GemmdLinear in the place of each nn.Linear whose path in the model matches one of the fnmatch(3)
    patterns. Returns the paths; that of a model that is one nn.Linear, which becomes a GemmdLinear, is "". A pattern
    that matches no layer is InvalidError. Layers that HQQ has quantized (HQQLinear, 4 bits along axis 1) are replaced
    alike, as int4 or int4a8 with the codes, scales and zero points that they have. Forward hooks go on. The values that
    the model held are freed with their last other reference.

    All or none: where a layer is refused, by gemmd or because its weight is parametrized, the error names it, the model
    is as it was, and what was loaded for it is unloaded.

    `classes`: those that are replaced, exactly, without their subclasses; None: nn.Linear. What a subclass computes
    beside x * W^T + bias is lost. `predicate(path, layer)`: asked of each layer whose path matches; without `classes`
    of subclasses of nn.Linear, too.

    `quantized`: a file or a folder that `gemmctl quantize` has made, from which the weights are taken as "<path>.weight",
    or a file of TriRun's layers (trirun_to_safetensors.py makes it of a checkpoint), "<path>.B" and "<path>.s", or the
    folder of a checkpoint that is quantized (GPTQ, AWQ, compressed-tensors: deploy/WEIGHTS.md), whose "<path>.weight"
    gemmd loads; `format` is then what it holds (int2a8 for 2 bits, int4a8 for 4, too), and `scale` and `method` are the
    file's. Of a checkpoint the layers' own weights are not looked at, and may be None.

    `release`: gemmd drops the names when the model is gone, while the session is open. Another process that opened them
    keeps what it has."""
    found = matching(model, patterns, classes, predicate)
    made: Dict[nn.Linear, GemmdLinear] = {}
    names, loaded = _names_in(quantized, found, session, prefix, format)
    try:
        with Taker(session) as taker:
            for one in found:
                if one.linear not in made:
                    with _named(one.path):
                        _check(one)
                        if one.path in names:
                            made[one.linear] = _opened(one, names[one.path], model, session, release)
                            continue
                        name = f"{prefix}/{one.path}" if one.path else prefix
                        made[one.linear] = _made(one, name, taker, session, format, scale, method, quantized, release)
    except BaseException:
        for name in loaded | {layer.name for layer in made.values() if layer._loaded}:
            with contextlib.suppress(GemmdError):
                session.unload(name)
        raise
    for linear, layer in made.items():
        _take_over(linear, layer)
    for one in found:
        if one.parent is None:
            _become(one.linear, made[one.linear])
        else:
            setattr(one.parent, one.child, made[one.linear])
    return [one.path for one in found]


def _names_in(
    quantized: Optional[Path], found: List[Found], session: Session, prefix: str, format: Named
) -> Tuple[Dict[str, str], Set[str]]:
    """The names of the layers' weights where `quantized` is a checkpoint, and those that were loaded for it."""
    if quantized is None or not is_checkpoint(quantized):
        return {}, set()
    real = real_layers(quantized)
    for one in found:
        with _named(one.path):
            _check(one)
            if one.path in real:
                raise InvalidError(f"{quantized} has its weight as numbers; leave it out")
    names, loaded = load_layers(quantized, [one.path for one in found], session, prefix, format)
    return names, set(names.values()) if loaded else set()


def _opened(one: Found, name: str, model: nn.Module, session: Session, release: bool) -> GemmdLinear:
    linear = one.linear
    like = linear.weight.dtype if linear.weight is not None else getattr(model, "dtype", torch.get_default_dtype())
    layer = GemmdLinear(session, name, linear.bias, like, release=release)
    shape = (linear.out_features, linear.in_features)
    if layer.weight.shape != shape:
        raise InvalidError(f"{name} is {tuple(layer.weight.shape)}, the model's {shape}")
    return layer


def _made(
    one: Found,
    name: str,
    taker: Taker,
    session: Session,
    format: Named,
    scale: Named,
    method: Named,
    quantized: Optional[Path],
    release: bool,
) -> GemmdLinear:
    if is_hqq(one.linear):
        return _of_hqq(one, name, session, format, quantized, release)
    weight, bias = one.linear.weight, one.linear.bias
    if quantized is None:
        return GemmdLinear.from_weight(
            weight, bias, session, name, format, scale=scale, method=method, release=release, taker=taker
        )
    tensor = tensor_name(one.path)
    layer = GemmdLinear.from_file(quantized, tensor, bias, session, name, format, weight.dtype, release=release)
    if layer.weight.shape != weight.shape:
        if layer._loaded:
            session.unload(layer.name)
        raise InvalidError(f"{quantized}: {tensor} is {tuple(layer.weight.shape)}, the model's {tuple(weight.shape)}")
    return layer


def _of_hqq(
    one: Found, name: str, session: Session, format: Named, quantized: Optional[Path], release: bool
) -> GemmdLinear:
    if quantized is not None:
        raise InvalidError("HQQ has quantized it already")
    codes, scales, zeros, scale = hqq_codes(one.linear)
    return GemmdLinear.from_codes(
        codes, scales, one.linear.bias, session, name, format, one.linear.compute_dtype,
        zeros=zeros, scale=scale, release=release,
    )  # fmt: skip


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except GemmdError as error:
        raise type(error)(f"{path or 'the model'}: {error}") from error


def _check(one: Found) -> None:
    """What computes something else than x * W^T + bias, or has no weight of its own, is refused."""
    linear = one.linear
    if is_hqq(linear):
        return
    if parametrize.is_parametrized(linear):
        names = ", ".join(linear.parametrizations)
        remedy = "torch.nn.utils.parametrize.remove_parametrizations makes it plain"
        raise InvalidError(f"its {names} is parametrized; {remedy}")
    if "weight" not in linear._parameters:
        raise InvalidError("its weight is computed from others (weight_norm, pruning); remove that first")
    if isinstance(linear.weight, nn.parameter.UninitializedTensorMixin):
        raise InvalidError("its weight has no shape yet; call the model once first")
    if "forward" in linear.__dict__:
        raise InvalidError("its forward has been replaced by another function; remove that first")
    if isinstance(one.parent, nn.MultiheadAttention):
        raise InvalidError("nn.MultiheadAttention reads this weight by itself; leave it out")


def _take_over(linear: nn.Linear, layer: GemmdLinear) -> None:
    """The hooks themselves, so that the handles that remove them still do; and the mode."""
    for name in _HOOKS:
        setattr(layer, name, getattr(linear, name))
    layer.training = linear.training


def _become(linear: nn.Linear, layer: GemmdLinear) -> None:
    linear.__class__ = GemmdLinear  # type: ignore[assignment]
    linear.__dict__.clear()
    linear.__dict__.update(layer.__dict__)


def tensor_name(path: str) -> str:
    return f"{path}.weight" if path else "weight"


def matching(
    model: nn.Module, patterns: Union[str, Sequence[str]], classes: Classes = None, predicate: Predicate = None
) -> List[Found]:
    """The layers that are asked for, all patterns together."""
    patterns = [patterns] if isinstance(patterns, str) else patterns
    found, used, others = [], set(), 0
    for one in _linears(model):
        matched = {pattern for pattern in patterns if fnmatch.fnmatchcase(one.path, pattern)}
        if matched and _chosen(one, classes, predicate):
            found.append(one)
            used |= matched
        elif matched:
            others += 1
    for pattern in patterns:
        if pattern not in used:
            beside = f"; of other classes, or refused by the predicate, are {others}" if others else ""
            raise InvalidError(f"pattern {pattern!r} matches no layer of the model{beside}")
    return found


def _chosen(one: Found, classes: Classes, predicate: Predicate) -> bool:
    kind = type(one.linear)
    if parametrize.is_parametrized(one.linear):  # torch makes a class for each
        kind = kind.__bases__[0]
    if classes is None and predicate is None:
        return kind is nn.Linear or is_hqq(one.linear)
    return (classes is None or kind in classes) and (predicate is None or bool(predicate(one.path, one.linear)))


def _linears(model: nn.Module) -> Iterator[Found]:
    if isinstance(model, nn.Linear):
        yield Found("", None, "", model)
    for parent_path, parent in model.named_modules():
        for child, module in parent._modules.items():
            if isinstance(module, nn.Linear) or (module is not None and is_hqq(module)):
                yield Found(f"{parent_path}.{child}" if parent_path else child, parent, child, module)
