"""A transformers model as what computes it one behind the other: blocks of a ModuleList, and in each the linear layers
in the order in which they are called. Blocks can be run alone, over what the blocks before put out."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch
from torch import nn

from .errors import InvalidError, WrongStateError

Call = Tuple[Tuple[Any, ...], Dict[str, Any]]


class _Enough(Exception):
    """What was wanted of a pass has been seen."""


class Block(NamedTuple):
    path: str
    module: nn.Module
    linears: Dict[str, nn.Linear]  # by their paths in the model


def find_blocks(model: nn.Module, wanted: Sequence[str], *, strict: bool) -> List[Block]:
    """The blocks with `wanted` layers of the outermost ModuleList that has most linear layers. InvalidError where one is
    outside of it and `strict`, or all are; else it is left out."""
    best: Tuple[int, str] = (0, "")
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList):
            inside = sum(isinstance(one, nn.Linear) for one in module.modules())
            if inside > best[0]:
                best = (inside, path)
    if best[0] == 0:
        raise InvalidError("the model has no list of blocks with linear layers in it")
    outside = [one for one in wanted if not one.startswith(best[1] + ".")]
    if outside and (strict or len(outside) == len(wanted)):
        raise InvalidError(f"{outside[0]} is outside of {best[1]}, the blocks that are quantized one by one")
    blocks = []
    for number, module in enumerate(model.get_submodule(best[1])):
        path = f"{best[1]}.{number}"
        linears = {one: model.get_submodule(one) for one in wanted if one.startswith(path + ".")}
        if linears:
            blocks.append(Block(path, module, linears))
    return blocks


@contextlib.contextmanager
def _hooked(hooks: Sequence[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _swap_hidden(call: Call, hidden: torch.Tensor) -> Call:
    args, kwargs = call
    if args:
        return (hidden, *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": hidden}


def _hidden_of(call: Call) -> torch.Tensor:
    args, kwargs = call
    return args[0] if args else kwargs["hidden_states"]


class Blocks:
    """Runs blocks over the calibration's windows. `hidden`: what goes into the next block, a tensor a window."""

    @torch.no_grad()
    def __init__(self, model: nn.Module, blocks: List[Block], windows: Sequence[torch.Tensor]):
        self.blocks = blocks
        self.calls: List[List[Call]] = []  # [window][block]: masks and positions may differ between blocks
        for window in windows:
            calls: List[Call] = []
            hooks = [block.module.register_forward_pre_hook(_recorder(calls), with_kwargs=True) for block in blocks]
            with _hooked(hooks):
                model(window[None].to(next(model.parameters()).device), use_cache=False)
            if len(calls) != len(blocks):
                raise WrongStateError(f"{len(calls)} of {len(blocks)} blocks were called once")
            self.calls.append(calls)
        self.hidden = [_hidden_of(calls[0]) for calls in self.calls]
        for calls in self.calls:  # the values are computed anew, by quantized layers
            calls[:] = [_swap_hidden(call, torch.empty(0)) for call in calls]

    @torch.no_grad()
    def _run(self, number: int, window: int) -> torch.Tensor:
        args, kwargs = _swap_hidden(self.calls[window][number], self.hidden[window])
        out = self.blocks[number].module(*args, **kwargs)
        return out[0] if isinstance(out, tuple) else out

    def stages(self, number: int) -> List[List[str]]:
        """Paths of the block's layers in the order of their calls; those that see the same tensor together."""
        order: List[Tuple[str, torch.Tensor]] = []  # which live, so that no two have the same address

        def hook(path: str) -> Callable[..., None]:
            return lambda _, inputs: order.append((path, inputs[0]))

        linears = self.blocks[number].linears
        with _hooked([linear.register_forward_pre_hook(hook(path)) for path, linear in linears.items()]):
            self._run(number, 0)
        called = [path for path, _ in order]
        for path in linears:
            if called.count(path) != 1:
                raise WrongStateError(f"{path} is called {called.count(path)} times in its block")
        found: List[List[str]] = []
        for at, (path, seen) in enumerate(order):
            before = order[at - 1][1] if at > 0 else None
            if before is not None and (before.data_ptr(), before.shape) == (seen.data_ptr(), seen.shape):
                found[-1].append(path)
            else:
                found.append([path])
        return found

    def rows(self, number: int, linear: nn.Linear, most: int) -> torch.Tensor:
        """Up to `most` rows that the layer sees, spread evenly over the windows."""
        kept: List[torch.Tensor] = []

        def hook(_: nn.Module, inputs: Tuple[torch.Tensor, ...]) -> None:
            x = inputs[0].reshape(-1, inputs[0].shape[-1])
            share = max(1, most // len(self.hidden))
            step = max(1, len(x) // share)
            kept.append(x[::step][:share].float().cpu().clone())
            raise _Enough

        with _hooked([linear.register_forward_pre_hook(hook)]):
            for window in range(len(self.hidden)):
                with contextlib.suppress(_Enough):
                    self._run(number, window)
        return torch.cat(kept)[:most]

    def advance(self, number: int) -> None:
        self.hidden = [self._run(number, window) for window in range(len(self.hidden))]


def _recorder(calls: List[Call]) -> Callable[..., None]:
    return lambda _, args, kwargs: calls.append((args, kwargs))
