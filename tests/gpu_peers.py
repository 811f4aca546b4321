#!/usr/bin/env python3
"""Other libraries' quantized linear layers, with bf16 in and out and the quantizing of x counted, for gpu_engine.py.

    tests/gpu_peers.py [--peers torch-fp8,humming-fp8,...] [--rows 1,16,64] [--blocks 8] [--distinct 3]

`torch-fp8`: torch._scaled_mm with a scale for each row of x and of the weight, x quantized by a compiled function.
`humming-*`: humming-kernels (pip), x and weight FP8 or INT8 with a scale for each row, or x in bf16 beside FP8 weights
(-weight) and INT2 ones in groups of 128. Each product is compared with float32 before the peer is used; one that cannot
be set up says why in a line and is left out. By itself it times each peer beside torch in bf16, as CUDA graphs.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence

import torch

Block = Dict[str, torch.Tensor]  # "qkv", "o", "up", "down": bf16 [n, k] on the device
FED_BY = {"o": "qkv", "down": "up"}  # whose y has x as its first columns
E4M3_MOST = 448.0


class Peer:
    """A library's layers. products(peer.linear, peer.blocks, ...) of gpu_engine.py takes them."""

    name = ""
    format = ""  # gemmd's that it stands beside
    bound = 0.0  # of a row's relative error to x * W^T in float32; a product that is wrong is off by 1 or more

    def __init__(self, made: Sequence[Block], rows: Sequence[int] = (1, 16, 64)):
        """`rows`: of x that linear is going to be asked for."""
        self.rows = tuple(rows)
        with torch.inference_mode(False), torch.no_grad():
            self.blocks = [{name: self.layer(w.detach().clone()) for name, w in block.items()} for block in made]

    def layer(self, w: torch.Tensor) -> Any:
        raise NotImplementedError

    def linear(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        """x [m, k] in bf16, its rows perhaps a part of longer ones -> y [m, n] in bf16, on the current stream."""
        raise NotImplementedError

    def check(self, block: Block) -> float:
        """The worst row's relative error over the shapes of a block; RuntimeError beyond the bound."""
        worst = 0.0
        for name, w in block.items():
            n, k = w.shape
            length = block[FED_BY[name]].shape[0] if name in FED_BY else k
            for m in self.rows:
                x = torch.randn(m, length, device=w.device, dtype=torch.bfloat16)[:, :k]
                y, want = self.linear(self.blocks[0][name], x), x.float() @ w.float().T
                if y.shape != (m, n) or y.dtype != torch.bfloat16:
                    raise RuntimeError(f"{name} m={m}: y is {y.dtype} {tuple(y.shape)}")
                error = ((y.float() - want).norm(dim=1) / want.norm(dim=1)).max().item()
                if not error < self.bound:
                    raise RuntimeError(f"{name} m={m}: a row is off by {error:.2e}, {self.bound} allowed")
                worst = max(worst, error)
        return worst


# ---- torch


def _quantized(x: torch.Tensor):
    """[m, k] -> e4m3 [m, k], float32 scales [m, 1]."""
    wide = x.float()
    scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / E4M3_MOST
    return (wide / scale).clamp(-E4M3_MOST, E4M3_MOST).to(torch.float8_e4m3fn), scale


@functools.lru_cache(maxsize=None)
def _compiled():
    from torch._dynamo import config

    config.recompile_limit = 256  # one for each shape and stride of x
    return torch.compile(_quantized, dynamic=False)


class TorchFp8(Peer):
    name, format, bound = "torch-fp8", "fp8", 0.08

    def layer(self, w: torch.Tensor):
        codes, scale = _quantized(w)
        return codes.contiguous().t(), scale.reshape(1, -1).contiguous()

    def linear(self, layer, x: torch.Tensor) -> torch.Tensor:
        codes, scale = _compiled()(x)
        return torch._scaled_mm(
            codes, layer[0], scale_a=scale, scale_b=layer[1], out_dtype=torch.bfloat16, use_fast_accum=True
        )


# ---- humming-kernels


class Humming(Peer):
    weight: Dict[str, Any] = {}
    x: Dict[str, Any] = {}  # empty: bf16

    def __init__(self, made: Sequence[Block], rows: Sequence[int] = (1, 16, 64)):
        super().__init__(made, rows)
        self._compile(list(self.blocks[0].values()))

    @staticmethod
    def _compile(layers) -> None:
        """All shapes' kernels side by side, where the first product of each would compile its own."""
        from humming.kernel.humming import HummingKernel

        def compile_one(layer) -> None:
            HummingKernel.prepare_kernels(layer[0].humming_config.to_str(), None, layer[1], layer[0].weight.device)

        with ThreadPoolExecutor(len(layers)) as threads:
            list(threads.map(compile_one, layers))

    def layer(self, w: torch.Tensor):
        from humming.layer import HummingLayer

        n, k = w.shape
        layer = HummingLayer(
            shape_n=n,
            shape_k=k,
            weight_config=dict(self.weight),
            input_config=dict(self.x) or None,
            torch_dtype=torch.bfloat16,
        ).to(w.device)
        layer.load_from_unquantized(w)
        layer.transform()
        return layer, self._kernels(layer, w.device)

    def linear(self, layer, x: torch.Tensor) -> torch.Tensor:
        return layer[0](x.contiguous(), tuning_config=layer[1])  # it takes no rows that are part of longer ones

    def _kernels(self, layer, device: torch.device) -> Optional[str]:
        """Those of its heuristics' choices that the rows need, so that no others are compiled."""
        from humming.tune import get_heuristics_config

        chosen = get_heuristics_config(layer.humming_config, device=device)
        if not isinstance(chosen, (list, tuple)):
            return None
        needed = [one for one in chosen if any(one[0] < m and (m <= one[1] or one[1] <= 0) for m in self.rows)]
        try:
            return json.dumps(needed) if needed else None
        except TypeError:
            return None


class HummingFp8(Humming):
    name, format, bound = "humming-fp8", "fp8", 0.08
    weight, x = {"dtype": "float8e4m3"}, {"dtype": "float8e4m3"}


class HummingFp8Weight(Humming):
    name, format, bound = "humming-fp8-weight", "fp8", 0.08
    weight = {"dtype": "float8e4m3"}


class HummingInt8(Humming):
    name, format, bound = "humming-int8", "int8", 0.1
    weight, x = {"dtype": "int8"}, {"dtype": "int8"}


class HummingInt2(Humming):
    name, format, bound = "humming-int2", "int2", 0.75  # rounding to four values leaves about 0.4
    weight = {"dtype": "int2", "group_size": 128}


PEERS = {peer.name: peer for peer in (TorchFp8, HummingFp8, HummingFp8Weight, HummingInt8, HummingInt2)}


# ---- all of them


def peers(
    made: Sequence[Block],
    rows: Sequence[int] = (1, 16, 64),
    names: Iterable[str] = tuple(PEERS),
) -> Iterator[Peer]:
    """One after the other, set up and checked; the last one's memory goes when the next is asked for and nothing else
    refers to it."""
    for name in names:
        if name not in PEERS:
            print(f"{name}: left out: there is {', '.join(PEERS)}", flush=True)
            continue
        begin, peer, why = time.perf_counter(), None, ""
        try:
            peer = PEERS[name](made, rows)
            worst = peer.check(made[0])
            torch.cuda.synchronize()
        except Exception as error:  # whatever it is, the others can be measured without it
            peer, why = None, _sentence(error)
        if peer is None:
            print(f"{name}: left out: {why}", flush=True)
        else:
            took = time.perf_counter() - begin
            print(f"{name}: set up in {took:.1f} s, worst row off float32 by {worst:.1e}", flush=True)
            yield peer
        del peer
        _free()


def _sentence(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _numbers(text: str) -> List[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rows", type=_numbers, default=[1, 16, 64])
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--distinct", type=int, default=3)
    arguments = parser.parse_args()
    import gpu_engine

    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    with torch.inference_mode():
        made = gpu_engine.weights_of(arguments.distinct)
        for peer in peers(made, arguments.rows, arguments.peers.split(",")):
            for m in arguments.rows:
                x = torch.randn(m, 4096, device=gpu_engine.DEVICE, dtype=torch.bfloat16)
                try:
                    measured = _compare(gpu_engine, peer, made, arguments.blocks, x)
                except Exception as error:
                    measured = f"not measured: {_sentence(error)}"
                print(f"{peer.name} products m={m}: {measured}", flush=True)


def _compare(engine, peer: Peer, made: Sequence[Block], blocks: int, x: torch.Tensor) -> str:
    its, y = engine.captured(lambda x: engine.products(peer.linear, peer.blocks, blocks, x), x)
    plain, _ = engine.captured(lambda x: engine.products(engine.torch_linear, made, blocks, x), x)
    plain_us, its_us = engine.compare_us(plain, its)
    finite = "" if bool(torch.isfinite(y).all()) else " NOT FINITE"
    return f"torch bf16 {plain_us:.0f} us, {peer.name} {its_us:.0f} us, {plain_us / its_us:.2f}{finite}"


if __name__ == "__main__":
    main()
