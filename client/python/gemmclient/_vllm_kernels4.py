"""gemmd as a kernel of vLLM's for checkpoints of 4 bits: GPTQ, AWQ and compressed-tensors' pack-quantized as INT4, which
vLLM has brought into one form by then, MXFP4 and NVFP4. x is not quantized, as W4A16 says."""

from __future__ import annotations

import functools
import os
from typing import Optional

import torch
from vllm.model_executor.kernels.linear import (
    MPLinearKernel,
    MPLinearLayerConfig,
    MxFp4LinearKernel,
    MxFp4LinearLayerConfig,
    NvFp4LinearKernel,
    NvFp4LinearLayerConfig,
)
from vllm.model_executor.layers.quantization.utils.quant_utils import unpack_quantized_values_into_int32
from vllm.scalar_type import scalar_types

from ._torch.session import session_here
from ._vllm_kernels import Answer, ByGemmd
from .errors import GemmdError
from .types import Format

__all__ = ["KERNELS", "GemmdInt4Kernel", "GemmdMxfp4Kernel", "GemmdNvfp4Kernel"]

_GROUPS = {128: "group", 64: "group64", 32: "group32"}


@functools.lru_cache(maxsize=None)
def _refusal(format: Format, process: int) -> Optional[str]:
    """Not every backend of gemmd has kernels for 4 bits."""
    try:
        taken = format in session_here("vllm").formats()
    except GemmdError as error:
        return f"gemmd: {error}"
    return None if taken else f"gemmd: its backend has no kernels for {format.name.lower()}"


class GemmdInt4Kernel(ByGemmd, MPLinearKernel):
    @classmethod
    def get_min_capability(cls) -> int:
        return -1

    @classmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> Answer:
        k = c.partition_weight_shape[0]
        if c.weight_type != (scalar_types.uint4 if c.zero_points else scalar_types.uint4b8):
            return False, f"gemmd has no codes of {c.weight_type}"
        if c.group_size not in (-1, k, *_GROUPS):
            return False, f"gemmd has groups of 32, 64, 128 or a row, not of {c.group_size}"
        if k % 8 != 0 or c.act_type not in (torch.float16, torch.bfloat16):
            return False, f"gemmd has scales of float16 and bfloat16, and K by 8, not {c.act_type} and {k}"
        refusal = _refusal(Format.INT4, os.getpid())
        return refusal is None, refusal

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        codes, scales, zeros = self._get_weight_params(layer)
        words = (codes.t() if codes.input_dim == 0 else codes).contiguous()  # [n, k/8], the first in the lowest bits
        factors = scales.t() if scales.output_dim == 1 else scales
        scale = "row" if factors.shape[1] == 1 else _GROUPS[self.config.group_size]
        scale += "_bf16" if factors.dtype == torch.bfloat16 else ""
        points = None
        if self.config.zero_points:
            points = unpack_quantized_values_into_int32(zeros.data, self.config.weight_type, zeros.packed_dim)
            points = (points.t() if zeros.output_dim == 1 else points).to(torch.uint8)
            scale += "_zeros"
        self._take(
            layer, (self.w_q_name, self.w_s_name, self.w_zp_name), words.data.view(torch.uint16), factors.data, "int4",
            zeros=points, scale=scale,
        )  # fmt: skip


class GemmdMxfp4Kernel(ByGemmd, MxFp4LinearKernel):
    @classmethod
    def can_implement(cls, c: MxFp4LinearLayerConfig) -> Answer:
        refusal = _refusal(Format.MXFP4, os.getpid())
        return refusal is None, refusal

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        codes = layer.weight.data.contiguous().view(torch.uint16)
        self._take(layer, ("weight", "weight_scale"), codes, layer.weight_scale.data, "mxfp4", scale="group32")


class GemmdNvfp4Kernel(ByGemmd, NvFp4LinearKernel):
    """Of checkpoints whose x has four bits by their scheme, too: its scale is not used."""

    @classmethod
    def can_implement(cls, config: NvFp4LinearLayerConfig) -> Answer:
        refusal = _refusal(Format.NVFP4, os.getpid())
        return refusal is None, refusal

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        codes = layer.weight.data.contiguous().view(torch.uint16)
        factors = layer.weight_global_scale.detach().float().expand(codes.shape[0]).contiguous()
        self._take(
            layer, ("weight", "weight_scale"), codes, layer.weight_scale.data, "nvfp4", factors=factors,
            scale="group16_factors",
        )  # fmt: skip


KERNELS = [
    ("_POSSIBLE_KERNELS", GemmdInt4Kernel),
    ("_POSSIBLE_MXFP4_KERNELS", GemmdMxfp4Kernel),
    ("_POSSIBLE_NVFP4_KERNELS", GemmdNvfp4Kernel),
]
