"""Layers that HQQ (github.com/mobiusml/hqq, transformers' HqqConfig) has quantized: codes of 4 bits with zero points that
are real numbers, W = (code - zero) * scale."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from ..errors import InvalidError, UnsupportedError

_GROUPS = {128: "group", 64: "group64", 32: "group32"}


class Codes(NamedTuple):
    """As GemmdLinear.from_codes takes them."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    scale: str


def is_hqq(module: nn.Module) -> bool:
    return type(module).__name__ == "HQQLinear" and isinstance(getattr(module, "meta", None), dict)


def hqq_codes(layer: nn.Module) -> Codes:
    """UnsupportedError where it has other than 4 bits in groups along K, or numbers that f16 does not hold."""
    meta, packed = layer.meta, layer.W_q.data
    if meta["nbits"] != 4 or meta["axis"] != 1 or meta["packing"] != "4bit_u8":
        raise UnsupportedError(
            f"HQQ's {meta['nbits']} bits along axis {meta['axis']}, packed as {meta['packing']}; 4bit_u8 along axis 1 is taken"
        )
    if meta.get("quant_scale") or meta.get("quant_zero"):
        raise UnsupportedError("HQQ's scales or zero points are quantized themselves")
    if meta.get("view_as_float"):
        packed = packed.view(torch.uint8)
    n, k = (int(size) for size in meta["shape"])
    group = int(meta["group_size"] or k)
    width = next((width for width in _GROUPS if group % width == 0 and group < k), k)
    if (group != k and width == k) or k % 4 != 0 or k % group != 0:
        raise UnsupportedError(f"groups of {group} of {k}; a multiple of 32 is taken, or one a row")
    codes = torch.cat([packed >> 4, packed & 15]).reshape(n, k)
    words = (codes[:, 0::2] | codes[:, 1::2] << 4).contiguous().view(torch.uint16)
    scales, zeros = (
        meta[name].reshape(n, k // group).repeat_interleave(group // width, dim=1) for name in ("scale", "zero")
    )
    bf16 = scales.dtype == torch.bfloat16
    kind = "row" if width == k else _GROUPS[width]
    scales = scales.contiguous() if bf16 else _half(scales, "scales")
    return Codes(words, scales, _half(zeros, "zero points"), f"{kind}{'_bf16' if bf16 else ''}_zeros_f16")


def _half(values: torch.Tensor, what: str) -> torch.Tensor:
    half = values.to(torch.float16).contiguous()
    if not torch.equal(half.double(), values.double()):
        raise InvalidError(f"HQQ's {what} are {values.dtype} and none of float16")
    return half
