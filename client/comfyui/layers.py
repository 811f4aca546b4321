"""Linear layers of a ComfyUI model in gemmd: what stands in the place of one, and what ComfyUI does to models."""

from __future__ import annotations

import fnmatch
import uuid
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import nn

from gemmclient.torch import GemmdLinear

from .config import KERNEL

_CALLBACK = "gemmd"


class ServedLinear(nn.Module):
    """In the place of a model's linear layer while ComfyUI has the model loaded. It has no parameters, so that ComfyUI
    moves, casts and offloads nothing of it; the layer itself stays outside of the model, in the memory that it was in,
    and its weights are what the state of the model shows: names, types and shapes are as before."""

    def __init__(self, key: str, original: nn.Linear, options: Dict[str, Any]):
        super().__init__()
        self.key, self.options = key, options
        self.in_features, self.out_features = original.in_features, original.out_features
        self.__dict__["original"] = original  # not as a module of this one
        self.__dict__["base"] = self._made(original.weight, original.bias)
        self.__dict__["current"] = self.base
        self._patched: Tuple[Optional[uuid.UUID], Optional[GemmdLinear]] = (None, None)

    def _made(self, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> GemmdLinear:
        options = self.options
        return GemmdLinear.from_weight(
            plain(weight), plain(bias) if bias is not None else None, options["session"],
            f"comfyui/{self.key}", options["format"], release=True,
        )  # fmt: skip

    @property
    def weight(self) -> torch.Tensor:
        return self.original.weight

    @property
    def bias(self) -> Optional[torch.Tensor]:
        return self.original.bias

    def _save_to_state_dict(self, destination: Dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self.original._save_to_state_dict(destination, prefix, keep_vars)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.current(x)

    def use(self, patches: Dict[str, List[Any]], version: uuid.UUID, device: torch.device) -> None:
        """With the patches (LoRA and its kind) of a model, whose `version` changes with them. What they make of the
        weight goes to gemmd as one of its own, and is forgotten with the next patches."""
        weight_key, bias_key = f"{self.key}.weight", f"{self.key}.bias"
        if weight_key not in patches and bias_key not in patches:
            self.__dict__["current"] = self.base
            self._patched = (None, None)
            return
        if self._patched[0] != version:
            weight = _with_patches(self.original.weight, patches.get(weight_key), weight_key, device)
            bias = self.original.bias
            if bias is not None:
                bias = _with_patches(bias, patches.get(bias_key), bias_key, device)
            self._patched = (version, self._made(weight, bias))
        self.__dict__["current"] = self._patched[1]

    def use_kernel(self, text: Optional[str]) -> None:
        self.current.kernel = text


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """As a tensor of a type that gemmd reads: what ComfyUI keeps quantized as values."""
    from comfy.quant_ops import QuantizedTensor

    tensor = tensor.detach()
    if isinstance(tensor, QuantizedTensor):
        tensor = tensor.dequantize()
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return tensor.to(torch.float16)  # which has every value of e4m3 and e5m2
    return tensor


def _with_patches(tensor: torch.Tensor, patches: Optional[List[Any]], key: str, device: torch.device) -> torch.Tensor:
    import comfy.lora

    if patches is None:
        return tensor
    values = plain(tensor).to(device=device, dtype=torch.float32, copy=True)
    return comfy.lora.calculate_weight(patches, values, key)


def find(model: nn.Module, pattern: str) -> Tuple[List[Tuple[str, nn.Linear]], List[str]]:
    """Linear layers whose path matches, and those of them that are left alone because something else than ComfyUI made
    their class."""
    found, left = [], []
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and any(fnmatch.fnmatchcase(path, one.strip()) for one in pattern.split(",")):
            if type(module).__module__.split(".")[:2] in (["comfy", "ops"], ["torch", "nn"]):
                found.append((path, module))
            else:
                left.append(path)
    return found, left


def serve(patcher: Any, pattern: str, format: str, session: Any) -> Tuple[Any, str]:
    """A clone of the model whose layers are gemmd's, and what to tell of it. All layers or none."""
    found, left = find(patcher.model, pattern)
    if not found:
        raise ValueError(f"no linear layer of the model matches {pattern!r}")
    options = {"session": session, "format": format}
    clone, known = patcher.clone(), {}
    for path, linear in found:
        if linear not in known:
            _check(path, linear)
            try:
                known[linear] = ServedLinear(path, linear, options)
            except Exception as error:
                raise RuntimeError(f"{path}: {error}") from error
        clone.add_object_patch(path, known[linear])
    moved = sum(one.original.weight.numel() * one.original.weight.element_size() for one in known.values())
    clone.size = max(1, patcher.model_size() - moved)  # what ComfyUI has to find room for
    clone.patches_uuid = uuid.uuid4()  # so that the model is loaded anew where it was in use without gemmd
    _watch(clone)
    text = f"{len(found)} linear layers in gemmd as {format}, {moved / 2**20:.1f} MiB as the model has them"
    if left:
        text += f"; {len(left)} of other classes left alone: {', '.join(left[:3])}"
    return clone, text


def _check(path: str, linear: nn.Linear) -> None:
    if getattr(linear, "scale_weight", None) is not None or getattr(linear, "scale_input", None) is not None:
        raise ValueError(f"{path}: weights with scales beside them (scaled fp8) are not taken; load the model in bf16")


def _watch(patcher: Any) -> None:
    from comfy.patcher_extension import CallbacksMP

    for call, function in ((CallbacksMP.ON_LOAD, _loaded), (CallbacksMP.ON_REGISTER_ALL_HOOK_PATCHES, _hooked)):
        patcher.remove_callbacks_with_key(call, _CALLBACK)
        patcher.add_callback_with_key(call, _CALLBACK, function)


def layers_of(patcher: Any) -> Dict[str, ServedLinear]:
    return {path: one for path, one in patcher.object_patches.items() if isinstance(one, ServedLinear)}


def _loaded(patcher: Any, device: Any, *_: Any) -> None:
    """ComfyUI has loaded the model for this patcher: its patches and its kernel are those of the layers now."""
    layers = layers_of(patcher)
    _refuse(layers, patcher.weight_wrapper_patches, "a weight wrapper")
    _refuse_hooks(patcher, layers)
    choice = patcher.get_attachment(KERNEL)
    for one in layers.values():
        one.use(patcher.patches, patcher.patches_uuid, device)
        one.use_kernel(choice.text(one.options["session"].status().backend) if choice is not None else None)


def _hooked(patcher: Any, *_: Any) -> None:
    _refuse_hooks(patcher, layers_of(patcher))


def _refuse_hooks(patcher: Any, layers: Dict[str, ServedLinear]) -> None:
    for patches in patcher.hook_patches.values():
        _refuse(layers, patches, "a LoRA hook, which changes weights between steps,")


def _refuse(layers: Dict[str, ServedLinear], keys: Any, what: str) -> None:
    for key in keys:
        path = key.rpartition(".")[0]
        if path in layers:
            raise ValueError(f"{path}: {what} cannot be had for a layer that is with gemmd; leave it out by `layers`")
