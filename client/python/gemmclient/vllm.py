"""A vLLM plugin: linear layers and layers of experts by gemmd, chosen as a quantization.

    vllm serve MODEL --quantization gemmd_int8

vLLM finds it by the entry point vllm.general_plugins of this package. Layers are created and loaded as those of a model
that is not quantized; then each weight, this rank's part of it, goes to gemmd, and its memory here is freed. Where
experts are spread over ranks, a rank has its own, and skips the others' ids. Embeddings, routers and the head stay with
vLLM. The session is to $GEMMD_SOCKET, else /run/gemmd/gemmd.sock.

Checkpoints that are quantized already keep their quantization, and gemmd is a kernel of it (_vllm_kernels.py, of 4 bits
_vllm_kernels4.py). With
`--load-format gemmd` weights come from gemmd by name, and vLLM does not read them (_vllm_loader.py).

CUDA graphs record the products where gemmd lends its weights to this user, its option `direct`. Where it does not, a
call waits for its stream, and vLLM has to be started with --enforce-eager.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch
from vllm.model_executor.layers.fused_moe import FusedMoEConfig, FusedMoEMethodBase, RoutedExperts
from vllm.model_executor.layers.fused_moe import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.linear import LinearBase, LinearMethodBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase

from . import _vllm_kernels, _vllm_kernels4, _vllm_loader
from ._torch.session import session_here
from .errors import UnsupportedError
from .torch import GemmdExperts, GemmdLinear

__all__ = ["GemmdConfig", "GemmdExpertsMethod", "GemmdLinearMethod", "register"]

FORMATS = ("int8", "fp8", "int2", "int4", "int4a8", "mxfp4", "nvfp4")


class GemmdLinearMethod(LinearMethodBase):
    """Creates and loads a layer as UnquantizedLinearMethod does, and is none: who wants the values back (latent
    attention splits kv_b_proj) reads that one's weight, and asks any other for a product by the identity."""

    def __init__(self, format: str):
        self.format = format

    def create_weights(self, *arguments: Any, **attributes: Any) -> None:
        UnquantizedLinearMethod().create_weights(*arguments, **attributes)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        name = f"vllm/{layer.prefix or 'linear'}"
        layer.gemmd = GemmdLinear.from_weight(layer.weight, None, session_here("vllm"), name, self.format)
        empty = torch.empty(0, dtype=layer.weight.dtype, device=layer.weight.device)
        layer.weight = torch.nn.Parameter(empty, requires_grad=False)

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        y = layer.gemmd(x)
        return y if bias is None else y + bias


class GemmdExpertsMethod(FusedMoEMethodBase):
    """Creates and loads a layer as UnquantizedFusedMoEMethod does: gate and up [E, 2F, k], down [E, k, F], E of this
    rank."""

    create_weights = UnquantizedFusedMoEMethod.create_weights

    def __init__(self, moe: FusedMoEConfig, format: str):
        super().__init__(moe)
        self.format = format
        if moe.has_bias or moe.swiglu_limit is not None or moe.activation.value not in ("silu", "gelu"):
            raise UnsupportedError(f"gemmd computes no experts with biases or limits, or by {moe.activation.value}")

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> None:
        return None

    def process_weights_after_loading(self, layer: RoutedExperts) -> None:
        if layer.apply_router_weight_on_input:
            raise UnsupportedError("gemmd weighs what experts give, not what they get")
        name = f"vllm/{layer.layer_name}"
        layer.gemmd = GemmdExperts.from_weights(
            layer.w13_weight, layer.w2_weight, layer.activation.value, session_here("vllm"), name, self.format
        )
        for name in ("w13_weight", "w2_weight"):
            weight = getattr(layer, name)
            empty = torch.empty(0, dtype=weight.dtype, device=weight.device)
            setattr(layer, name, torch.nn.Parameter(empty, requires_grad=False))

    def apply(
        self,
        layer: RoutedExperts,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any = None,
        shared_experts_input: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """vLLM computes shared experts by itself, for there is no kernel of its own here that overlaps them."""
        if layer.expert_map is not None:
            topk_ids = layer.expert_map[topk_ids.long()]  # -1: another rank's
        return layer.gemmd(x, topk_ids, topk_weights)


class GemmdConfig(QuantizationConfig):
    """Of one format; `register` makes a subclass for each."""

    format = FORMATS[0]

    def get_name(self) -> str:
        return f"gemmd_{self.format}"

    def get_supported_act_dtypes(self) -> List[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0  # nothing of this runs on vLLM's device

    @staticmethod
    def get_config_filenames() -> List[str]:
        return []

    @classmethod
    def from_config(cls, config: Dict[str, Any]) -> "GemmdConfig":
        return cls()

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Optional[QuantizeMethodBase]:
        if isinstance(layer, RoutedExperts):
            return GemmdExpertsMethod(layer.moe_config, self.format)
        return GemmdLinearMethod(self.format) if isinstance(layer, LinearBase) else None


def register() -> None:
    """vLLM calls it in each of its processes, and may call it again."""
    for format in FORMATS:
        if f"gemmd_{format}" not in QUANTIZATION_METHODS:
            register_quantization_config(f"gemmd_{format}")(
                type(f"GemmdConfig_{format}", (GemmdConfig,), {"format": format})
            )
    _vllm_kernels.register([*_vllm_kernels.KERNELS, *_vllm_kernels4.KERNELS])
    _vllm_loader.register()
