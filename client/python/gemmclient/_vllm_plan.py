"""Which tensors of a checkpoint make up the linear layers of a model, and what gemmd calls the weights: names alone, no
values. A fused layer (qkv_proj) is made of several modules of the checkpoint (q_proj, k_proj, v_proj)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from .errors import NotFoundError

__all__ = ["Layer", "Load", "Plan", "literal", "plan", "prefix_of"]

_WEIGHT = "weight"
# Of a module whose weight is with gemmd, what the engine reads by itself: biases, and scales of its own KV cache.
_ENGINES = ("bias", "q_scale", "k_scale", "v_scale", "kv_scale", "q_zero_point", "k_zero_point", "v_zero_point")


@dataclass(frozen=True)
class Layer:
    """As the engine has it: rank `rank` of `ranks` takes its part of the rows, or of the columns, of W [n, k]."""

    path: str  # "model.layers.0.self_attn.qkv_proj"
    parts: Tuple[str, ...]  # the modules it is made of, in order; one of the layer's own name where it is not fused
    by_columns: bool = False
    rank: int = 0
    ranks: int = 1


@dataclass
class Load:
    """Arguments of one Session.load_model."""

    prefix: str
    rank: int
    ranks: int  # 0: not split
    patterns: List[str]
    fuse: List[str]
    columns: List[str]


@dataclass
class Plan:
    names: Dict[str, str]  # a layer's path -> its weight's name in gemmd
    loads: List[Load]  # by which they come there
    taken: Callable[[str], bool]  # whether a tensor of the checkpoint is gemmd's, and the engine does not read it


def plan(
    layers: Iterable[Layer], tensors: Sequence[str], prefix: str, rename: Callable[[str], Optional[str]]
) -> Plan:
    """`tensors`: the checkpoint's names; `rename`: what the engine calls one of them, None: it ignores it. Parts of
    ranks are named `prefix`rank0of2.<the tensor>; what is not split has no rank in its name."""
    modules = _modules(tensors, rename)
    names: Dict[str, str] = {}
    loads: Dict[Tuple[int, int], Load] = {}
    ours = set()
    for layer in layers:
        parent, _, own = layer.path.rpartition(".")
        found = [modules.get(f"{parent}.{part}" if parent else part) for part in layer.parts]
        if None in found:
            missing = layer.parts[found.index(None)]
            raise NotFoundError(f"{layer.path}: the checkpoint has no weight of {missing}")
        ours.update(found)
        split = layer.ranks > 1
        load = loads.setdefault((layer.rank, layer.ranks) if split else (0, 0), _load_of(layer, prefix, split))
        weight = f"{found[0].rpartition('.')[0]}.{own}" if len(found) > 1 else found[0]
        weight = f"{weight.lstrip('.')}.{_WEIGHT}"
        names[layer.path] = load.prefix + weight
        load.patterns += [literal(f"{module}.{_WEIGHT}") for module in found]
        if len(found) > 1:
            fuse = ",".join(module.rpartition(".")[2] for module in found) + f"={own}"
            if fuse not in load.fuse:
                load.fuse.append(fuse)
        if split and layer.by_columns:
            load.columns.append(literal(weight))
    for load in loads.values():
        if not load.columns:  # without any, the library has a choice of its own
            load.columns.append("")
    return Plan(names, list(loads.values()), lambda name: _is_of(name, ours))


def _load_of(layer: Layer, prefix: str, split: bool) -> Load:
    if not split:
        return Load(prefix, 0, 0, [], [], [])
    return Load(f"{prefix}rank{layer.rank}of{layer.ranks}.", layer.rank, layer.ranks, [], [], [])


def _modules(tensors: Sequence[str], rename: Callable[[str], Optional[str]]) -> Dict[str, str]:
    """What the engine calls a module -> what the checkpoint calls it."""
    modules = {}
    for name in tensors:
        renamed = rename(name)
        if renamed is not None:
            modules[renamed.rpartition(".")[0]] = name.rpartition(".")[0]
    return modules


def _is_of(name: str, modules) -> bool:
    module, _, tensor = name.rpartition(".")
    return module in modules and tensor not in _ENGINES


def literal(name: str) -> str:
    """As an fnmatch(3) pattern."""
    return "".join(f"[{one}]" if one in "*?[" else one for one in name)


def prefix_of(files: Sequence[str], label: str, format: str, engine: str = "vllm") -> str:
    """For weights that no name was chosen for: from where the files lie, their sizes and times of change, and what
    becomes of them. A file that is replaced makes another name; the same content by another name is stored once."""
    digest = hashlib.blake2b(format.encode(), digest_size=8)
    for file in sorted(map(os.path.realpath, files)):
        seen = os.stat(file)
        digest.update(f"{file}\0{seen.st_size}\0{seen.st_mtime_ns}\0".encode(errors="surrogateescape"))
    label = "".join(one if one.isascii() and (one.isalnum() or one in "-_.") else "-" for one in label)
    return f"{engine}/{label[:64]}-{digest.hexdigest()}/"
