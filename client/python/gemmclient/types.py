"""Names for what products and weights are made of, and what the daemon tells of them.

Wherever a type, format, scale, method or placement is asked for, its name in lower case does: "f32", "int8", "row".
numpy has no bf16 and no e4m3: such tensors are arrays of uint16 and uint8 whose type the call names, or arrays of
ml_dtypes' bfloat16 and float8_e4m3fn, which name it themselves.
"""

from __future__ import annotations

import builtins
import enum
import os
from dataclasses import dataclass, fields
from typing import Dict, List, Tuple, Type, TypeVar, Union

import numpy as np

from ._library import lib, text
from .errors import InvalidError

__all__ = [
    "Activation",
    "ElementType",
    "Format",
    "Scale",
    "Method",
    "Placement",
    "Priority",
    "WeightInfo",
    "ModelResult",
    "DeviceInfo",
    "DaemonInfo",
]


class ElementType(enum.IntEnum):
    """Of x, y, bias and scales."""

    F32 = lib.GEMMD_F32
    F16 = lib.GEMMD_F16
    BF16 = lib.GEMMD_BF16
    INT8 = lib.GEMMD_INT8
    E4M3 = lib.GEMMD_E4M3
    S32 = lib.GEMMD_S32


class Format(enum.IntEnum):
    """Of a weight."""

    INT8 = lib.GEMMD_FORMAT_INT8
    FP8 = lib.GEMMD_FORMAT_FP8
    INT2 = lib.GEMMD_FORMAT_INT2
    F16 = lib.GEMMD_FORMAT_F16
    BF16 = lib.GEMMD_FORMAT_BF16
    INT2A8 = lib.GEMMD_FORMAT_INT2A8  # rows of x are quantized to INT8, never silently
    INT4 = lib.GEMMD_FORMAT_INT4
    INT4A8 = lib.GEMMD_FORMAT_INT4A8  # as INT2A8
    MXFP4 = lib.GEMMD_FORMAT_MXFP4
    NVFP4 = lib.GEMMD_FORMAT_NVFP4


class Scale(enum.IntEnum):
    """DEFAULT: what the file has; INT8 and FP8: ROW, INT2, INT4 and their A8: GROUP, MXFP4: GROUP32, NVFP4:
    GROUP16_FACTORS; F16 and BF16 have none."""

    DEFAULT = lib.GEMMD_SCALE_DEFAULT
    ONE = lib.GEMMD_SCALE_ONE
    ROW = lib.GEMMD_SCALE_ROW
    BLOCK = lib.GEMMD_SCALE_BLOCK
    GROUP = lib.GEMMD_SCALE_GROUP
    GROUP64 = lib.GEMMD_SCALE_GROUP64
    GROUP32 = lib.GEMMD_SCALE_GROUP32
    ROW_BF16 = lib.GEMMD_SCALE_ROW_BF16
    GROUP_BF16 = lib.GEMMD_SCALE_GROUP_BF16
    GROUP64_BF16 = lib.GEMMD_SCALE_GROUP64_BF16
    GROUP32_BF16 = lib.GEMMD_SCALE_GROUP32_BF16
    ROW_ZEROS = lib.GEMMD_SCALE_ROW_ZEROS
    GROUP_ZEROS = lib.GEMMD_SCALE_GROUP_ZEROS
    GROUP64_ZEROS = lib.GEMMD_SCALE_GROUP64_ZEROS
    GROUP32_ZEROS = lib.GEMMD_SCALE_GROUP32_ZEROS
    ROW_BF16_ZEROS = lib.GEMMD_SCALE_ROW_BF16_ZEROS
    GROUP_BF16_ZEROS = lib.GEMMD_SCALE_GROUP_BF16_ZEROS
    GROUP64_BF16_ZEROS = lib.GEMMD_SCALE_GROUP64_BF16_ZEROS
    GROUP32_BF16_ZEROS = lib.GEMMD_SCALE_GROUP32_BF16_ZEROS
    ROW_ZEROS_F16 = lib.GEMMD_SCALE_ROW_ZEROS_F16
    GROUP_ZEROS_F16 = lib.GEMMD_SCALE_GROUP_ZEROS_F16
    GROUP64_ZEROS_F16 = lib.GEMMD_SCALE_GROUP64_ZEROS_F16
    GROUP32_ZEROS_F16 = lib.GEMMD_SCALE_GROUP32_ZEROS_F16
    ROW_BF16_ZEROS_F16 = lib.GEMMD_SCALE_ROW_BF16_ZEROS_F16
    GROUP_BF16_ZEROS_F16 = lib.GEMMD_SCALE_GROUP_BF16_ZEROS_F16
    GROUP64_BF16_ZEROS_F16 = lib.GEMMD_SCALE_GROUP64_BF16_ZEROS_F16
    GROUP32_BF16_ZEROS_F16 = lib.GEMMD_SCALE_GROUP32_BF16_ZEROS_F16
    GROUP16_FACTORS = lib.GEMMD_SCALE_GROUP16_FACTORS


class Method(enum.IntEnum):
    """How to quantize. DEFAULT: as stored where the file is quantized, else ABSMAX, below 8 bits LEAST_SQUARES."""

    DEFAULT = lib.GEMMD_METHOD_DEFAULT
    ABSMAX = lib.GEMMD_METHOD_ABSMAX
    LEAST_SQUARES = lib.GEMMD_METHOD_LEAST_SQUARES
    TERNARY = lib.GEMMD_METHOD_TERNARY


class Placement(enum.IntEnum):
    SINGLE = lib.GEMMD_PLACEMENT_SINGLE
    REPLICAS = lib.GEMMD_PLACEMENT_REPLICAS
    SPLIT = lib.GEMMD_PLACEMENT_SPLIT


class Activation(enum.IntEnum):
    """Of a plan's step."""

    NONE = lib.GEMMD_ACTIVATION_NONE
    RELU = lib.GEMMD_RELU
    GELU = lib.GEMMD_GELU
    SILU = lib.GEMMD_SILU
    SWIGLU_CLAMPED = lib.GEMMD_SWIGLU_CLAMPED


class Priority(enum.IntEnum):
    """Urgent products go first, background ones last."""

    NORMAL = lib.GEMMD_PRIORITY_NORMAL
    URGENT = lib.GEMMD_PRIORITY_URGENT
    BACKGROUND = lib.GEMMD_PRIORITY_BACKGROUND


_Kind = TypeVar("_Kind", bound=enum.IntEnum)
Named = Union[str, int]


def member(kind: Type[_Kind], value: Named, what: str) -> _Kind:
    """The member that a name ("least-squares", "INT8") or a number stands for."""
    try:
        return kind[value.upper().replace("-", "_")] if isinstance(value, str) else kind(value)
    except (KeyError, ValueError):
        names = ", ".join(one.name.lower() for one in kind)
        raise InvalidError(f"{what} must be one of {names}, got {value!r}") from None


def encoded(value: str) -> bytes:
    """A text as the library takes it, for which a zero byte would be its end."""
    if "\0" in value:
        raise InvalidError(f"a name or pattern must have no zero byte, got {value!r}")
    return value.encode()


def encoded_path(value: Union[str, bytes, "os.PathLike[str]"]) -> bytes:
    """The same of a path, which may be any bytes."""
    path = os.fsencode(value)
    if b"\0" in path:
        raise InvalidError(f"a path must have no zero byte, got {path!r}")
    return path


_NUMPY: Dict[ElementType, np.dtype] = {
    ElementType.F32: np.dtype(np.float32),
    ElementType.F16: np.dtype(np.float16),
    ElementType.BF16: np.dtype(np.uint16),
    ElementType.INT8: np.dtype(np.int8),
    ElementType.E4M3: np.dtype(np.uint8),
    ElementType.S32: np.dtype(np.int32),
}

_BY_DTYPE = {dtype: kind for kind, dtype in _NUMPY.items() if dtype.kind != "u"}
# What ml_dtypes calls the types that numpy lacks.
_BY_NAME = {"bfloat16": ElementType.BF16, "float8_e4m3fn": ElementType.E4M3}


def numpy_type(named: object) -> np.dtype:
    """The numpy dtype of an element type's name, or of whatever numpy takes for a dtype."""
    if isinstance(named, ElementType):
        return _NUMPY[named]
    if isinstance(named, str) and named.upper() in ElementType.__members__:
        return _NUMPY[ElementType[named.upper()]]
    return np.dtype(named)  # type: ignore[call-overload]


def element_type(dtype: np.dtype, named: Union[Named, None], what: str) -> ElementType:
    """What an array of `dtype` holds: what the caller has `named` it, where sizes agree, else what its dtype says."""
    if not dtype.isnative:
        raise InvalidError(f"{what} must be in this machine's byte order, got dtype {dtype}")
    if named is None:
        found = _BY_DTYPE.get(dtype) or _BY_NAME.get(dtype.name)
        if found is None:
            named_by = "element" if what == "weight" else f"{what}_type"
            raise InvalidError(f"{what} has dtype {dtype}, which does not say its type; name it ({named_by})")
        return found
    found = member(ElementType, named, f"{what}_type")
    if dtype.itemsize != _NUMPY[found].itemsize:
        raise InvalidError(f"{what} of type {found.name.lower()} cannot be an array of {dtype}")
    return found


@dataclass(frozen=True)
class WeightInfo:
    name: str
    n: int
    k: int
    format: Format
    scale: Scale
    bytes: int  # that it takes on the device
    references: int  # names that stand for this content
    owner: int  # user id
    devices: int  # that hold a part or a copy
    hash: builtins.bytes  # of the content
    shared: bool  # after a load: equal content was there already, nothing was stored
    borrows: int = 0  # of processes that map it to compute with it themselves
    experts: int = 0  # it is [experts, n, k]; 0: [n, k]
    input: int = 0  # what is done to x: of enum gemmd_input


@dataclass(frozen=True)
class ModelResult:
    names: List[str]  # that were loaded
    failed: List[Tuple[str, str]]  # names that were not, with the reason
    shared: int  # of the names, with content that was there already
    dropped: int  # names behind the prefix that went
    bytes: int  # on devices


@dataclass(frozen=True)
class DeviceInfo:
    name: str
    state: str  # "starting", "ready", "asleep", "failed"
    pid: int
    restarts: int
    memory_total: int
    memory_slabs: int
    memory_used: int
    memory_lent: int  # of the slabs: whose descriptors clients were given
    memory_copies: int  # beside the slabs: weights in an order that a library wants
    memory_working: int  # beside the slabs: what products under way need
    requests: int
    products: int  # that the device computed, each for one request or several
    rows: int
    failures: int
    device_ns: int


@dataclass(frozen=True)
class DaemonInfo:
    server: str
    backend: str
    backend_reason: str
    pid: int
    sessions: int
    names: int
    weights: int
    uptime_ms: int
    weight_bytes: int
    arena_bytes: int
    devices: List[DeviceInfo]


def weight_info(info) -> WeightInfo:
    return WeightInfo(
        name=text(info.name),
        n=info.n,
        k=info.k,
        format=Format(info.format),
        scale=Scale(info.scale),
        bytes=info.bytes,
        references=info.references,
        owner=info.owner,
        devices=info.devices,
        hash=builtins.bytes(info.hash),
        shared=info.shared,
        borrows=info.borrows,
        experts=info.experts,
        input=info.input,
    )


def _device_info(info) -> DeviceInfo:
    names = [field.name for field in fields(DeviceInfo) if field.name not in ("name", "state")]
    numbers = {name: getattr(info, name) for name in names}
    return DeviceInfo(name=text(info.name), state=text(info.state), **numbers)


def daemon_info(info) -> DaemonInfo:
    return DaemonInfo(
        server=text(info.server),
        backend=text(info.backend),
        backend_reason=text(info.backend_reason),
        pid=info.pid,
        sessions=info.sessions,
        names=info.names,
        weights=info.weights,
        uptime_ms=info.uptime_ms,
        weight_bytes=info.weight_bytes,
        arena_bytes=info.arena_bytes,
        devices=[_device_info(info.device[i]) for i in range(info.devices)],
    )
