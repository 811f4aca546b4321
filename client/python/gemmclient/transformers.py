"""Models of transformers with their linear layers in gemmd: a quantization of from_pretrained.

    from gemmclient.transformers import GemmdConfig
    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=GemmdConfig("fp8"))

A checkpoint that is quantized already (GPTQ, AWQ, compressed-tensors) goes to gemmd with its codes; transformers, which
would take the tool that made it, must not see how it is quantized:

    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.bfloat16, quantization_config=GemmdConfig("int4", quantized=folder))

Each nn.Linear but the head and what is tied to an embedding becomes a GemmdLinear, all or none (gemmclient.torch says
what is refused). Where a second process loads the same model its weights are with gemmd already: nothing is sent, and
this process's own copy is freed.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.quantizers_utils import should_convert_module
from transformers.utils import logging
from transformers.utils.quantization_config import QuantizationConfigMixin

from ._torch.checkpoint import is_checkpoint, real_layers
from ._torch.module import restore_linear
from ._torch.session import session_here
from .errors import InvalidError
from .torch import replace_linear, state_dict
from .types import Format, Method, Named, Scale, member

__all__ = ["GemmdConfig", "GemmdQuantizer"]

_ROWS = {"f16": torch.float16, "bf16": torch.bfloat16}
_logger = logging.get_logger(__name__)


@register_quantization_config("gemmd")
class GemmdConfig(QuantizationConfigMixin):
    """`format`: int8, fp8, int2, int2a8, f16, bf16, int4, int4a8, mxfp4, nvfp4. `modules_to_not_convert`: layers
    that stay as they are, as transformers takes them: the end or the beginning of a path, or a regular expression; None:
    the head and what is tied to an embedding. `quantized`: a file or a folder of `gemmctl quantize`, or the folder of a
    checkpoint that is quantized, whose layers of numbers stay. `prefix`: of the weights' names in gemmd. `socket`: of
    gemmd, None: $GEMMD_SOCKET, else /run/gemmd/gemmd.sock."""

    def __init__(
        self,
        format: Named = "int8",
        *,
        modules_to_not_convert: Optional[List[str]] = None,
        scale: Named = Scale.DEFAULT,
        method: Named = Method.DEFAULT,
        quantized: Optional[str] = None,
        prefix: str = "transformers",
        socket: Optional[str] = None,
        quant_method: str = "gemmd",
    ):
        # names, because transformers writes them into config.json
        self.quant_method = quant_method
        self.format = member(Format, format, "format").name.lower()
        self.scale = member(Scale, scale, "scale").name.lower()
        self.method = member(Method, method, "method").name.lower()
        self.modules_to_not_convert = modules_to_not_convert
        self.quantized, self.prefix, self.socket = quantized, prefix, socket


@register_quantizer("gemmd")
class GemmdQuantizer(HfQuantizer):
    quantization_config: GemmdConfig

    def validate_environment(self, *_: Any, **__: Any) -> None:
        """Before any file is read."""
        self._session()

    def _session(self):
        return session_here("transformers", self.quantization_config.socket)

    def update_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Rows of F16 and BF16 weights are of that type."""
        taken = _ROWS.get(self.quantization_config.format, dtype)
        if taken != dtype:
            _logger.warning(f"{self.quantization_config.format} weights take rows of {taken}: dtype is that, not {dtype}")
        return taken

    def _chosen(self, model: PreTrainedModel) -> Set[str]:
        config = self.quantization_config
        keep = self.get_modules_to_not_convert(model, config.modules_to_not_convert, model._keep_in_fp32_modules)
        linears = [path for path, module in model.named_modules() if type(module) is nn.Linear]
        chosen = {path for path in linears if should_convert_module(path, keep)}
        if self._from_checkpoint():
            chosen -= real_layers(config.quantized)
        if not chosen:
            raise InvalidError(
                f"{type(model).__name__} has no layer for gemmd: {len(linears)} nn.Linear are to stay (the head, "
                "modules_to_not_convert), and so do layers of other classes"
            )
        return chosen

    def _from_checkpoint(self) -> bool:
        quantized = self.quantization_config.quantized
        return quantized is not None and is_checkpoint(quantized)

    def _process_model_before_weight_loading(self, model: PreTrainedModel, **_: Any) -> PreTrainedModel:
        """What gemmd reads itself takes no memory here."""
        if self._from_checkpoint():
            for path in self._chosen(model):
                model.get_submodule(path).weight = None
                model._keys_to_ignore_on_load_unexpected.add(rf"^{re.escape(path)}\.(?!bias$)")
        return model

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **_: Any) -> PreTrainedModel:
        config, chosen = self.quantization_config, self._chosen(model)
        replace_linear(
            model, config.format, session=self._session(), prefix=config.prefix, scale=config.scale,
            method=config.method, quantized=config.quantized, classes=[nn.Linear],
            predicate=lambda path, _: path in chosen,
        )  # fmt: skip
        return model

    def _dequantize(self, model: PreTrainedModel, dtype: Optional[torch.dtype] = None) -> PreTrainedModel:
        """Layers of torch again, with the values that F16 and BF16 weights have; of the other formats none."""
        restore_linear(model, dtype)
        return model

    def is_serializable(self) -> bool:
        """Of F16 and BF16 the values can be had back; what the others were made of is not with gemmd."""
        format = self.quantization_config.format
        if format not in ("f16", "bf16"):
            _logger.warning(f"the values that {format} weights were made of are not with gemmd: save f16 or bf16 models")
        return format in ("f16", "bf16")

    def get_state_dict_and_metadata(self, model: PreTrainedModel) -> Tuple[Dict[str, object], Dict[str, str]]:
        return state_dict(model, weights=True), {}

    @property
    def is_trainable(self) -> bool:
        return False

    @property
    def is_compileable(self) -> bool:
        """Products in this process go into torch.compile's graphs, and into CUDA's."""
        return True
