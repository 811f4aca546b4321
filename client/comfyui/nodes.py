"""The nodes: what they take, what they give."""

from __future__ import annotations

import uuid
from typing import Any, Dict, Tuple

from .config import KERNEL, PARAMETERS, Choice, KernelConfig

FORMATS = ["int8", "fp8", "int2a8", "f16", "bf16"]


def _whole(least: int, most: int, step: int, default: int) -> Tuple[str, Dict[str, int]]:
    return "INT", {"default": default, "min": least, "max": most, "step": step}


class GemmdKernelConfig:
    """Says by which kernel the layers of the model that are with gemmd compute their products, before or after them in
    the graph. With run_microbench it is the fastest of some, on this machine."""

    @classmethod
    def INPUT_TYPES(cls) -> Dict[str, Dict[str, Any]]:
        return {
            "required": {
                "model": ("MODEL",),
                **{name: _whole(*range) for name, range in PARAMETERS.items()},
                "run_microbench": ("BOOLEAN", {"default": False}),
                "bench_m": _whole(64, 16384, 64, 4096),
                "bench_n": _whole(64, 16384, 64, 4096),
                "bench_k": _whole(64, 16384, 64, 4096),
                "bench_warmup": _whole(1, 20, 1, 10),
                "bench_iterations": _whole(2, 100, 1, 25),
                "include_scalar": ("BOOLEAN", {"default": False}),
            }
        }

    RETURN_TYPES = ("MODEL", "STRING")
    RETURN_NAMES = ("model", "top_three")
    FUNCTION = "configure"
    CATEGORY = "gemmd"

    def configure(
        self,
        model: Any,
        run_microbench: bool = False,
        bench_m: int = 4096,
        bench_n: int = 4096,
        bench_k: int = 4096,
        bench_warmup: int = 10,
        bench_iterations: int = 25,
        include_scalar: bool = False,
        **values: int,
    ) -> Tuple[Any, str]:
        choice, text = Choice(KernelConfig(**values)), "the manual values"
        if run_microbench:
            from . import microbench

            choice, text = microbench.run(
                KernelConfig(**values), microbench.Size(bench_m, bench_n, bench_k), warmup=bench_warmup,
                iterations=bench_iterations, include_scalar=include_scalar, device=model.load_device,
            )  # fmt: skip
        clone = model.clone()
        clone.set_attachments(KERNEL, choice)
        clone.patches_uuid = uuid.uuid4()  # ComfyUI has to come to the layers again
        return clone, text


class GemmdLinears:
    """Puts the model's linear layers into gemmd, which has them once for all processes of this machine."""

    @classmethod
    def INPUT_TYPES(cls) -> Dict[str, Dict[str, Any]]:
        return {
            "required": {
                "model": ("MODEL",),
                "format": (FORMATS, {"default": "int8"}),
                "layers": ("STRING", {"default": "diffusion_model.*"}),
            },
            "optional": {"socket": ("STRING", {"default": ""})},
        }

    RETURN_TYPES = ("MODEL", "STRING")
    RETURN_NAMES = ("model", "what")
    FUNCTION = "serve"
    CATEGORY = "gemmd"

    def serve(self, model: Any, format: str, layers: str, socket: str = "") -> Tuple[Any, str]:
        from gemmclient._torch.session import session_here

        from .layers import serve

        return serve(model, layers, format, session_here("comfyui", socket or None))


NODE_CLASS_MAPPINGS = {"GemmdInt8KernelConfig": GemmdKernelConfig, "GemmdLinears": GemmdLinears}
NODE_DISPLAY_NAME_MAPPINGS = {
    "GemmdInt8KernelConfig": "gemmd INT8 Kernel Config",
    "GemmdLinears": "gemmd Linear Layers",
}
