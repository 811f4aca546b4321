"""GemmdLinear, and what is saved of models that have such layers."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from typing import Callable, Dict, List, Optional, Tuple, Union

import numpy as np
import torch
from torch import nn

from .. import _safetensors
from ..errors import InvalidError, NotFoundError, UnsupportedError, WrongStateError
from ..session import Session
from ..types import Format, Method, Named, Scale, member
from .places import TYPES
from .served import Number, Served, linear, served
from .take import Taker, fingerprint

Path = Union[str, "os.PathLike[str]"]

_EXACT = {"f16": torch.float16, "bf16": torch.bfloat16}  # formats that keep the values they were made of
_CODES = {
    "int8": (torch.int8, "I8"), "fp8": (torch.float8_e4m3fn, "F8_E4M3"), "int4": (torch.uint16, "U16"),
    "int4a8": (torch.uint16, "U16"), "mxfp4": (torch.uint16, "U16"), "nvfp4": (torch.uint16, "U16"),
}  # fmt: skip
_SCALES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.uint8: "F8_E8M0",
    torch.float8_e4m3fn: "F8_E4M3",
}  # fmt: skip
_NO_WRITES = ("requires_grad_", "detach_", "share_memory_", "retains_grad_", "rename_")
_AUGMENTED = ("add__", "sub__", "mul__", "truediv__", "floordiv__", "mod__", "pow__", "and__", "or__", "xor__")
_EXPORT_BYTES = 1 << 20  # of rows in the arena at a time


class Shown(torch.Tensor):
    """A tensor on device "meta" in the place of one whose values are with gemmd. Writing into it, which torch takes and
    forgets, is refused."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = getattr(func, "__name__", "")
        writes = name == "__setitem__" or (name[:3] == "__i" and name[3:] in _AUGMENTED) or (
            name[-1:] == "_" and name[-2:] != "__" and name not in _NO_WRITES
        )  # fmt: skip
        if writes and args and isinstance(args[0], Shown):
            raise WrongStateError("values are with gemmd and cannot be changed there: change them before the layer is replaced")
        return super().__torch_function__(func, types, args, kwargs or {})


def _shown(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta").as_subclass(Shown)


class GemmdLinear(nn.Module):
    """nn.Linear whose weight is with gemmd. `weight` and `bias` have its shapes and types, and no values: their device
    is "meta", and writing to them WrongStateError.

    `release`: when the last layer of this session's that has the name is gone, gemmd drops the name."""

    def __init__(
        self,
        session: Session,
        name: str,
        bias: Optional[torch.Tensor] = None,
        dtype: torch.dtype = torch.float32,
        *,
        release: bool = False,
    ):
        """Opens the weight of that name. `bias` is [n]."""
        super().__init__()
        one = Served(session, name, bias, release)
        if bias is not None and tuple(bias.shape) != (one.n,):
            raise InvalidError(f"bias must have shape ({one.n},), got {tuple(bias.shape)}")
        self.name, self.format = name, one.info.format.name.lower()
        self.in_features, self.out_features = one.k, one.n
        self.weight = _shown(one.n, one.k, dtype=dtype)
        self.bias = _shown(one.n, dtype=bias.dtype) if bias is not None else None
        self._number = Number(one)
        self.number = self._number.value
        self._loaded = False  # into gemmd, for this layer

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
        release: bool = False,
        taker: Optional[Taker] = None,
    ) -> "GemmdLinear":
        """Serves a weight [n, k]. Its name in gemmd is `name`, the format and a hash of what it is made of. Of a CUDA
        tensor it is made on the GPU, by `taker` where several are to be, unless it must go through the host."""
        chosen = member(Format, format, "format")
        _check_values(weight)
        element = TYPES[weight.dtype]
        made_of = f"{chosen}/{int(member(Scale, scale, 'scale'))}/{int(member(Method, method, 'method'))}/{element}"
        on_gpu = weight.device.type == "cuda"
        digest = fingerprint(weight, made_of) if on_gpu else _digest(as_array(weight)[0], made_of)
        full = f"{name}.{chosen.name.lower()}.{digest}"

        def load() -> None:
            if on_gpu:
                with Taker(session) if taker is None else contextlib.nullcontext(taker) as one:
                    if one.take(weight, name=full, format=chosen, scale=scale, method=method):
                        return
            session.load_array(
                as_array(weight)[0], name=full, format=chosen, element=element, scale=scale, method=method
            )

        layer = cls._opened(session, full, load, bias, weight.dtype, release)
        if weight.device.type == "cuda":  # now, because it takes what a graph's capture does not allow
            served[layer.number].layer(weight.device)
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
        *,
        release: bool = False,
    ) -> "GemmdLinear":
        """Serves weights of a file or a folder that `gemmctl quantize` has made, or of TriRun's layers, of which "up.weight"
        is up.B with up.s. Named as from_weight does."""
        chosen = member(Format, format, "format")
        layer = tensor[: -len("weight")]
        path = _safetensors.file_of(path, (tensor, f"{layer}B"))
        file = _safetensors.Reader(path)
        if tensor not in file and tensor.endswith("weight") and f"{layer}B" in file:
            tensor, scales = f"{layer}B", f"{layer}s"
        else:
            scales = f"{tensor}_scale"
        digest = hashlib.blake2b(file.data(tensor), digest_size=8)
        digest.update(file.data(scales))
        full = f"{name}.{chosen.name.lower()}.{digest.hexdigest()}"

        def load() -> None:
            session.load(path, tensor=tensor, name=full, format=chosen)

        return cls._opened(session, full, load, bias, dtype, release)

    @classmethod
    def from_codes(
        cls,
        codes: torch.Tensor,
        scales: torch.Tensor,
        bias: Optional[torch.Tensor],
        session: Session,
        name: str,
        format: Named,
        dtype: torch.dtype = torch.float32,
        *,
        zeros: Optional[torch.Tensor] = None,
        factors: Optional[torch.Tensor] = None,
        scale: Named = Scale.DEFAULT,
        release: bool = False,
    ) -> "GemmdLinear":
        """Serves a weight that is quantized already: codes [n, k] of int8 or float8_e4m3fn with scales, one, [n], or
        [n/128, k/128] of blocks; or of 4 bits, uint16 [n, k/4], the first in the lowest bits, with scales [n, groups] of
        float16 or bfloat16 and `zeros`, uint8 or float16 of that shape (int4, int4a8), or of uint8, e8m0 (mxfp4), or of
        float8_e4m3fn with `factors`, float32 [n], by which a row's scales are to be multiplied (nvfp4). `scale`: that
        the scales must be; without, what their shape says. Named as from_weight does."""
        chosen = member(Format, format, "format")
        wanted, kind = _CODES.get(chosen.name.lower(), (None, ""))
        if codes.dtype != wanted:
            raise InvalidError(f"codes of {codes.dtype} are not those of {chosen.name.lower()}")
        if kind != "U16":
            scales = scales.float()
        if scales.ndim == 1 and scales.numel() == codes.shape[0] and scales.numel() > 1:
            scales = scales[:, None]
        tensors = {"weight": (kind, *_bytes(codes)), "scale": (_SCALES[scales.dtype], *_bytes(scales))}
        if zeros is not None:
            tensors["weight_zero"] = ("F16" if zeros.dtype == torch.float16 else "U8", *_bytes(zeros))
        if factors is not None:
            tensors["weight_factor"] = ("F32", *_bytes(factors))
        digest = hashlib.blake2b(digest_size=8, person=b"codes", salt=_salt(tuple(codes.shape)))
        for _, _, data in tensors.values():
            digest.update(data)
        full = f"{name}.{chosen.name.lower()}.{digest.hexdigest()}"

        def load() -> None:
            with os.fdopen(os.memfd_create("gemmclient", os.MFD_CLOEXEC), "wb") as file:
                _safetensors.write(file, tensors)
                file.flush()
                session.load(file, tensor="weight", scale_tensor="scale", name=full, format=chosen, scale=scale)

        return cls._opened(session, full, load, bias, dtype, release)

    @classmethod
    def _opened(
        cls,
        session: Session,
        name: str,
        load: Callable[[], None],
        bias: Optional[torch.Tensor],
        dtype: torch.dtype,
        release: bool,
    ) -> "GemmdLinear":
        try:
            session.stat(name)
            loaded = False
        except NotFoundError:
            load()
            loaded = True
        try:
            layer = cls(session, name, bias, dtype, release=release)
        except BaseException:
            if loaded:
                session.unload(name)
            raise
        layer._loaded = loaded
        return layer

    @property
    def kernel(self) -> Optional[str]:
        """Which kernel computes this layer's products in this process, as gemmctl prints it, e.g. "tile block_m=64"; None:
        the library's choice, which is also taken, with one warning, for rows that the kernel cannot compute. Set it
        before a CUDA graph is captured, and call the layer once with as many rows."""
        return served[self.number].kernel

    @kernel.setter
    def kernel(self, text: Optional[str]) -> None:
        served[self.number].kernel = text

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return linear(input, self.number, self.out_features)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> "GemmdLinear":
        """to(dtype), half() and so on change what is shown; to(device) borrows the weight there. Values stay."""
        shown = fn(torch.empty(0, dtype=self.weight.dtype))
        self.weight = self.weight.to(shown.dtype)
        if self.bias is not None:
            self.bias = self.bias.to(fn(torch.empty(0, dtype=self.bias.dtype)).dtype)
        if shown.device.type == "cuda":
            served[self.number].layer(shown.device)
        return self

    def extra_repr(self) -> str:
        return f"{self.name}, in_features={self.in_features}, out_features={self.out_features}, format={self.format}"

    # ---- copies

    def __getstate__(self) -> object:
        raise WrongStateError("a GemmdLinear belongs to the process that opened it; copy the model before replacing")

    def _save_to_state_dict(self, destination: Dict[str, object], prefix: str, keep_vars: bool) -> None:
        saving: Optional[_Saving] = getattr(_here, "saving", None)
        if saving is None:
            raise WrongStateError(
                f"{prefix}weight is with gemmd and would be left out; gemmclient.torch.state_dict(model, weights=True) "
                "fetches F16 and BF16 weights back, without weights=True it leaves gemmd's weights out"
            )
        if saving.weights:
            destination[f"{prefix}weight"] = saving.fetched(self, prefix)
        given = served[self.number].given_bias
        if given is not None and self.bias is not None:
            destination[f"{prefix}bias"] = given.to(self.bias.dtype)


    def _load_from_state_dict(self, state_dict: Dict[str, object], prefix: str, *rest: object) -> None:
        errors: List[str] = rest[-1]  # type: ignore[assignment]
        errors += [
            f"{prefix}{name} is with gemmd and cannot be changed there: load values before the layer is replaced"
            for name in ("weight", "bias")
            if f"{prefix}{name}" in state_dict
        ]


class _Saving:
    def __init__(self, weights: bool):
        self.weights = weights
        self._fetched: Dict[int, torch.Tensor] = {}  # layers in several places are saved as one tensor

    def fetched(self, layer: GemmdLinear, prefix: str) -> torch.Tensor:
        if layer.number not in self._fetched:
            self._fetched[layer.number] = _fetch(layer, prefix)
        return self._fetched[layer.number]


_here = threading.local()


def state_dict(model: nn.Module, *, weights: bool = False) -> Dict[str, object]:
    """model.state_dict() with the biases of layers that are with gemmd and, where `weights`, their weights: as F16 or
    BF16, which gemmd has them in, on the CPU; every other format raises UnsupportedError, because the values that it
    was made of are not with gemmd. Negative zeros come back as zeros.

    model.save_pretrained(folder, state_dict=gemmclient.torch.state_dict(model, weights=True)) saves such a model."""
    _here.saving = _Saving(weights)
    try:
        return model.state_dict()
    finally:
        del _here.saving


def restore_linear(model: nn.Module, dtype: Optional[torch.dtype] = None) -> None:
    """Puts an nn.Linear of `dtype`, else the layer's, in the place of each GemmdLinear, with its weight from gemmd: all, or
    none where a format does not keep the values that it was made of (UnsupportedError)."""
    found = {path: module for path, module in model.named_modules() if isinstance(module, GemmdLinear)}
    restored = {}
    for path, layer in found.items():
        linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        given = served[layer.number].given_bias
        linear.weight = nn.Parameter(_fetch(layer, f"{path}.").to(dtype or layer.weight.dtype), requires_grad=False)
        if given is not None:
            linear.bias = nn.Parameter(given.to(dtype or layer.bias.dtype), requires_grad=False)
        restored[path] = linear
    for path, linear in restored.items():
        model.set_submodule(path, linear)


def _fetch(layer: GemmdLinear, prefix: str) -> torch.Tensor:
    """W [n, k] by products with unit rows: x = row i of the identity gives column i, and zeros added to it."""
    if layer.format not in _EXACT:
        raise UnsupportedError(
            f"{prefix}weight is with gemmd as {layer.format.upper()}, from which the values that it was made of cannot "
            "be had back; save the model before replacing, or leave gemmd's weights out"
        )
    dtype, weight = _EXACT[layer.format], served[layer.number].weight
    fetched = torch.empty(weight.n, weight.k, dtype=dtype)
    most = max(1, _EXPORT_BYTES // (dtype.itemsize * max(weight.n, weight.k)))
    for begin in range(0, weight.k, most):
        count = min(most, weight.k - begin)
        rows = torch.zeros(count, weight.k, dtype=dtype)
        rows[torch.arange(count), begin + torch.arange(count)] = 1
        values, kind = as_array(rows)
        columns = weight.matmul(values, x_type=kind, y_type=kind)
        fetched[:, begin : begin + count] = torch.from_numpy(columns.view(np.int16)).view(dtype).T
    if not torch.isfinite(fetched).all():
        raise UnsupportedError(f"{prefix}weight has infinities or NaN, which cannot be fetched back")
    return fetched


def _bytes(tensor: torch.Tensor) -> Tuple[Tuple[int, ...], memoryview]:
    """Its shape, and what it holds, on the host."""
    return tuple(tensor.shape), tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data


def _check_values(weight: torch.Tensor) -> None:
    if weight.dtype not in TYPES:
        raise InvalidError(f"a weight must be float32, float16 or bfloat16, got {weight.dtype}")
    if weight.is_meta:
        raise InvalidError('a weight must have values, got one on device "meta"')


def as_array(weight: torch.Tensor) -> Tuple[np.ndarray, str]:
    """On the host, and the name of its type."""
    _check_values(weight)
    values = weight.detach().cpu().contiguous()
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16), "bf16"
    return values.numpy(), TYPES[values.dtype]


def _digest(values: np.ndarray, made_of: str) -> str:
    return hashlib.blake2b(
        values.data, digest_size=8, person=made_of.encode()[:16], salt=_salt(values.shape)
    ).hexdigest()


def _salt(shape: Tuple[int, ...]) -> bytes:
    return b"".join(size.to_bytes(8, "little") for size in shape)
