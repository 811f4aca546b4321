"""gemmd as a kernel of vLLM's for checkpoints that are quantized already: INT8 and FP8 codes go to gemmd as they are,
with their scales, and vLLM's own quantization stays what loads them.

Registered behind vLLM's kernels, so that it is taken where vLLM has none for the machine; with GEMMD_VLLM_KERNELS=first
before them. What its products are not is refused, and vLLM goes on to its next kernel: static scales of x (gemmd
quantizes x row by row), zero points of x, blocks other than 128x128. Codes of 4 bits: _vllm_kernels4.py."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from vllm.model_executor.kernels import linear as kernels
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
    FP8ScaledMMLinearLayerConfig,
    Int8ScaledMMLinearKernel,
    Int8ScaledMMLinearLayerConfig,
)
from vllm.platforms import current_platform

from ._torch.session import session_here
from .torch import GemmdLinear

__all__ = ["KERNELS", "Answer", "ByGemmd", "GemmdFp8Kernel", "GemmdInt8Kernel", "register"]

_BLOCK = 128
Answer = Tuple[bool, Optional[str]]


class ByGemmd:
    """What all kernels have: the layer's codes go to gemmd, and its memory here is freed."""

    @classmethod
    def is_supported(cls, compute_capability: Optional[int] = None) -> Answer:
        return True, None

    def _take(
        self, layer: torch.nn.Module, parameters: Sequence[Optional[str]], codes: torch.Tensor, scales: torch.Tensor,
        format: str, **options: Any,
    ) -> None:  # fmt: skip
        """`parameters`: of the layer, whose memory is freed; the others are GemmdLinear.from_codes'."""
        name = f"vllm/{getattr(layer, 'prefix', None) or 'linear'}"
        layer.gemmd = GemmdLinear.from_codes(codes, scales, None, session_here("vllm"), name, format, **options)
        for parameter in parameters:
            if parameter is not None and getattr(layer, parameter, None) is not None:
                empty = torch.empty(0, dtype=getattr(layer, parameter).dtype, device=codes.device)
                setattr(layer, parameter, torch.nn.Parameter(empty, requires_grad=False))

    def apply_weights(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        y = layer.gemmd(x)
        return y if bias is None else y + bias


class GemmdInt8Kernel(ByGemmd, Int8ScaledMMLinearKernel):
    @classmethod
    def can_implement(cls, c: Int8ScaledMMLinearLayerConfig) -> Answer:
        if c.is_static_input_scheme:
            return False, "gemmd quantizes x by itself, row by row"
        return c.input_symmetric, None if c.input_symmetric else "gemmd has no zero points"

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        codes, scales = self._get_layer_params(layer)[:2]
        scales = scales.reshape(-1)
        if scales.numel() not in (1, codes.shape[0]):  # one for each of the layers that were fused
            widths = torch.tensor(layer.logical_widths, device=scales.device)
            scales = scales.repeat_interleave(widths)
        self._take(layer, self.layer_param_names[:2], codes, scales, "int8")


class GemmdFp8Kernel(ByGemmd, FP8ScaledMMLinearKernel):
    @classmethod
    def can_implement(cls, c: FP8ScaledMMLinearLayerConfig) -> Answer:
        if c.activation_quant_key.scale.static:
            return False, "gemmd quantizes x by itself, row by row"
        group = c.weight_quant_key.scale.group_shape
        if group.is_per_tensor() or group.is_per_token() or group.is_per_channel():
            return True, None
        blocks = (group.row, group.col) == (_BLOCK, _BLOCK)
        return blocks, None if blocks else f"gemmd has blocks of {_BLOCK}x{_BLOCK}, not of {group.row}x{group.col}"

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        codes, scales = self._get_layer_params(layer)[:2]
        group = self.config.weight_quant_key.scale.group_shape
        if (group.row, group.col) != (_BLOCK, _BLOCK):
            codes, scales = codes.t(), scales.reshape(-1)  # vLLM has them [k, n] by now
        self._take(layer, self.layer_param_names[:2], codes, scales, "fp8")

    def _get_layer_params(self, layer: torch.nn.Module) -> Any:
        if hasattr(layer, "weight_scale_inv"):  # as checkpoints name the scales of blocks
            self.layer_param_names = ["weight", "weight_scale_inv", *self.layer_param_names[2:]]
        return super()._get_layer_params(layer)

    def apply_scaled_mm(self, **_: Any) -> torch.Tensor:
        raise NotImplementedError("apply_weights quantizes and multiplies")


KERNELS: List[Tuple[str, type]] = [  # vLLM's tables, and what goes into them
    ("_POSSIBLE_INT8_KERNELS", GemmdInt8Kernel),
    ("_POSSIBLE_FP8_KERNELS", GemmdFp8Kernel),
    ("_POSSIBLE_FP8_BLOCK_KERNELS", GemmdFp8Kernel),  # which register_linear_kernel does not know
]


def register(tables: Sequence[Tuple[str, type]]) -> None:
    first = os.environ.get("GEMMD_VLLM_KERNELS") == "first"
    for name, kernel in tables:
        table: Optional[Dict[Any, List[type]]] = getattr(kernels, name, None)
        here = table.setdefault(current_platform._enum, []) if table is not None else [kernel]
        if kernel not in here:
            here.insert(0 if first else len(here), kernel)
