"""Linear layers of a PyTorch model served by gemmd.

    import gemmclient, gemmclient.torch
    session = gemmclient.connect()
    gemmclient.torch.replace_linear(model, "int8", ["encoder.*"], session=session)
    with torch.inference_mode():
        model(...)

Where gemmd lends its weights to this user (its option `direct`), products are computed in this process, on the tensor's
device and the current stream: nothing is copied, and CUDA graphs record them. Else gemmd's worker computes them, and a
warning says why.

The operator is torch.ops.gemmd.linear(x, weight, n); torch.compile takes it as it is. It computes no gradients and says
so. Weights are known to gemmd by a name that ends in a hash of their values, so that a second process, or the same one
after a restart, finds them there and sends nothing.
"""

from __future__ import annotations

import contextlib
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from . import _safetensors
from ._torch.direct import Layer, lane
from ._torch.experts import GemmdExperts, replace_experts
from ._torch.direct import tune as _tune
from ._torch.module import GemmdLinear, Path, as_array, state_dict
from ._torch.replace import matching, replace_linear, tensor_name
from ._torch.served import served as _served
from .errors import WrongStateError

__all__ = [
    "GemmdExperts", "GemmdLinear", "lane", "record_inputs", "replace_experts", "replace_linear", "state_dict", "tune",
]  # fmt: skip


def tune(
    model: nn.Module,
    rows: Sequence[int],
    *,
    device: Optional[Union[torch.device, str]] = None,
    dtype: Optional[torch.dtype] = None,
    budget_ms: int = 1000,
) -> int:
    """Warms up: looks for the fastest kernels for x of so many rows in each GemmdLinear of the model that is computed in
    this process, about `budget_ms` for each shape of weights. Before CUDA graphs are captured: these keep the kernels
    that they were captured with. `device`: where x will be, without one the current CUDA device where there is one.
    `dtype`: of x, else the layer's. Nothing else should compute on the device meanwhile. Returns for how many sizes
    another kernel is used than before; 0 where gemmd's worker computes, which tunes by itself."""
    at = torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    if at.type == "cuda" and at.index is None:
        at = torch.device("cuda", torch.cuda.current_device())
    by_type: Dict[torch.dtype, List[Layer]] = {}
    for module in model.modules():
        layer = _served[module.number].layer(at) if isinstance(module, GemmdLinear) else None
        if layer is not None:
            by_type.setdefault(dtype or module.weight.dtype, []).append(layer)
    return sum(_tune(layers, of, rows, budget_ms) for of, layers in by_type.items())


@contextlib.contextmanager
def record_inputs(
    model: nn.Module, file: Path, patterns: Sequence[str] = ("*",), *, rows: int = 8192
) -> Iterator[None]:
    """Within `with`, the first `rows` rows that each nn.Linear whose path matches sees are kept; at its end they are
    written to `file`, a safetensors file, as "<path>.weight": `gemmctl quantize --calibration` takes it. What is no
    input in service, such as padding, should not be in the batches."""
    seen: Dict[str, List[torch.Tensor]] = {}
    hooks = []
    for one in matching(model, patterns):
        kept = seen.setdefault(tensor_name(one.path), [])
        hooks.append(one.linear.register_forward_pre_hook(_keeper(kept, rows)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    tensors = {}
    for name, kept in seen.items():
        if not kept:
            raise WrongStateError(f"nothing went through the layer of {name}")
        values, element = as_array(torch.cat(kept))
        tensors[name] = (element.upper(), values.shape, values.data)
    with open(file, "wb") as out:
        _safetensors.write(out, tensors)


def _keeper(kept: List[torch.Tensor], rows: int):
    def keep(_: nn.Module, inputs: Tuple[torch.Tensor, ...]) -> None:
        room = rows - sum(len(one) for one in kept)
        if room > 0:
            x = inputs[0].detach()
            kept.append(x.reshape(-1, x.shape[-1])[:room].cpu().clone())

    return keep
