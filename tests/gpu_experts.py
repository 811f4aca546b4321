#!/usr/bin/python3
"""Products over experts on a GPU beside torch's grouped FP8 product and humming's, in one run.

    gpu_experts.py [--bench build/gemm-bench] [--shapes 128x3072x4096,...] [--m 1,4,16,64,256] [--top 8] [--formats fp8]
                   [--humming fp8,int2]

Ours by gemm-bench. All twice: with rows that were sorted and quantized before ("sorted"), and whole, with routing,
gathering and quantization: by ours, and for the others by torch's operators, each row quantized once. Ids are drawn
evenly, anew for each. Times are by CUDA graphs that rotate through choices of experts, microseconds, medians. Needs
torch with CUDA; humming-kernels (pip) where it is asked for, which compiles its kernels when it begins. A peer that
cannot be set up says why in a line.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import subprocess

import torch

CHOICES, REPLAYS = 4, 7
WAYS = "sorted", "whole"


def ours(bench: str, format: str, shape, rows, top: int, *options: str):
    """By M: what gemm-bench prints of it."""
    experts, n, k = shape
    command = [
        bench, "kernels", "--backend", "cuda", "--json", "--experts", str(experts), "--top", str(top), "--formats", format,
        "--shapes", f"{n}x{k}", "--m", ",".join(map(str, rows)), "--rounds", "3", "--burst-ms", "50", "--cold-mib", "0",
        *options,
    ]  # fmt: skip
    text, found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip(), {}
    while text:
        line, end = json.JSONDecoder().raw_decode(text)
        found[line["m"]], text = line, text[end:].lstrip()
    return found


def graph_us(run, choices) -> float:
    """Of run(choice), which is asked for all of them in turn."""
    for one in choices:
        run(one)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for one in choices * 2:
            run(one)
    times = []
    for _ in range(REPLAYS):
        begin, finish = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        finish.record()
        finish.synchronize()
        times.append(begin.elapsed_time(finish) * 1000 / (2 * len(choices)))
    return statistics.median(times)


def choices_of_ids(experts: int, m: int, top: int):
    """[m * top] each, as a router would write them."""
    return [torch.rand(m, experts, device="cuda").topk(top, 1).indices.flatten() for _ in range(CHOICES)]


def route(ids, experts: int, top: int):
    """The rows of x in the order of their experts, and before which of them each expert's end."""
    counts = torch.zeros(experts, dtype=torch.int64, device="cuda").scatter_add_(0, ids, torch.ones_like(ids))
    return ids.argsort(stable=True) // top, counts.cumsum(0)


class Peer:
    """`quantize(x)` returns codes and scales, `multiply(codes, scales, ends)` the product of sorted rows."""

    def us(self, m: int, top: int):
        """Of rows that are sorted and quantized, and of all."""
        choices = choices_of_ids(self.experts, m, top)
        x = torch.randn(m, self.k, device="cuda", dtype=torch.bfloat16)

        def sorted_by(ids):
            rows, ends = route(ids, self.experts, top)
            codes, scales = self.quantize(x)
            return picked(codes, rows), None if scales is None else picked(scales, rows), self.ends(ends)

        ready = [sorted_by(ids) for ids in choices]
        return graph_us(lambda one: self.multiply(*one), ready), graph_us(
            lambda ids: self.multiply(*sorted_by(ids)), choices
        )


def picked(t, rows):
    """Rows of a tensor of any type."""
    if t.dtype == torch.float8_e4m3fn:
        return t.view(torch.uint8)[rows].view(t.dtype)
    return t[rows]


class TorchGrouped(Peer):
    """y = x W^T of rows sorted by expert, e4m3, a scale a row of each."""

    name = "torch-fp8"

    def __init__(self, shape):
        self.experts, self.n, self.k = shape
        self.w = torch.empty(shape, dtype=torch.float8_e4m3fn, device="cuda")
        for one in self.w:
            one.copy_(torch.randn(self.n, self.k, device="cuda"))
        self.w_scale = torch.rand(self.experts, self.n, device="cuda")

    def quantize(self, x):
        scale = x.abs().amax(1).float() / 448
        return (x / scale[:, None]).to(torch.float8_e4m3fn), scale

    def ends(self, ends):
        return ends.to(torch.int32)

    def multiply(self, codes, scale, ends):
        return torch._scaled_grouped_mm(
            codes, self.w.transpose(1, 2), scale, self.w_scale, offs=ends, out_dtype=torch.bfloat16
        )


HUMMING = {  # of weights, and whether x is quantized to the same
    "fp8": ({"dtype": "float8e4m3"}, True),
    "int8": ({"dtype": "int8"}, True),
    "int4": ({"dtype": "int4", "group_size": 128}, False),
    "mxfp4": ({"dtype": "float4e2m1", "group_size": 32, "scale_dtype": "float8e8m0"}, False),
    "int2": ({"dtype": "int2", "group_size": 128}, False),
}
GROUPED = {"gemm_type": "grouped_contiguous"}


class Humming(Peer):
    """Its grouped product of sorted rows, with a scale a row, or bf16 rows with weights of fewer bits in groups. N is
    padded to 128, without which it has no configuration. Its kernels of all M are compiled at once."""

    def __init__(self, shape, format: str, rows, top: int):
        from humming.kernel.humming import HummingKernel
        from humming.layer import HummingLayer
        from humming.tune import get_heuristics_config

        self.name = f"humming-{format}"
        self.experts, n, self.k = shape
        weight, quantizes = HUMMING[format]
        self.layer = HummingLayer(
            shape_n=n, shape_k=self.k, weight_config=weight, num_experts=self.experts, torch_dtype=torch.bfloat16,
            input_config={"dtype": weight["dtype"]} if quantizes else None, pad_n_to_multiple=1 if n % 128 == 0 else 128,
        ).cuda()  # fmt: skip
        self.layer.load_from_unquantized(torch.randn(shape, device="cuda", dtype=torch.bfloat16))
        self.layer.transform()
        ends = [0] + [m * top for m in sorted(rows)]
        config = self.layer.humming_config
        tuning = [
            [begin, end, get_heuristics_config(config, shape_m=end, device=torch.device("cuda"), **GROUPED)]
            for begin, end in zip(ends, ends[1:])
        ]
        self.tuning = json.dumps(tuning)
        HummingKernel.prepare_kernels(config.to_str(), json.dumps(GROUPED), self.tuning, self.layer.weight.device)

    def quantize(self, x):
        from humming.forward import may_quant_input

        return may_quant_input(self.layer.humming_config, x)

    def ends(self, ends):
        return torch.nn.functional.pad(ends, (1, 0)).long()

    def multiply(self, codes, scale, ends):
        return self.layer(
            codes, input_scale=scale, expert_layout=ends, compute_config=GROUPED, tuning_config=self.tuning
        )


def measured(make, rows, top: int):
    """The peer's times by M, sorted and whole, under its name; none where it cannot be set up or asked."""
    try:
        peer = make()
        times = {m: peer.us(m, top) for m in rows}
        return {f"{peer.name} {what}": {m: both[i] for m, both in times.items()} for i, what in enumerate(WAYS)}
    except Exception as error:  # whatever it is, the others can be measured without it
        print(f"left out: {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}", flush=True)
        return {}
    finally:
        peer = None
        gc.collect()
        torch.cuda.empty_cache()


def bits(name: str) -> int:
    return 2 if "int2" in name else 4 if "int4" in name or "fp4" in name else 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/gemm-bench")
    parser.add_argument("--shapes", default="128x3072x4096,128x4096x1536,256x4096x7168,256x7168x2048")
    parser.add_argument("--m", default="1,4,16,64,256")
    parser.add_argument("--top", type=int, default=8)
    parser.add_argument("--formats", default="fp8,int8,int2")
    parser.add_argument("--humming", default="", help=f"formats of its: {', '.join(HUMMING)}")
    options = parser.parse_args()
    rows = [int(m) for m in options.m.split(",")]
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    ratios = {}
    for text in options.shapes.split(","):
        shape = tuple(map(int, text.split("x")))
        makes = [lambda: TorchGrouped(shape)]
        makes += [lambda format=format: Humming(shape, format, rows, options.top) for format in options.humming.split(",") if format]
        peers = {name: times for make in makes for name, times in measured(make, rows, options.top).items()}
        for format in options.formats.split(","):
            ready = ours(options.bench, format, shape, rows, options.top, "--sorted")
            for m, line in ours(options.bench, format, shape, rows, options.top).items():
                us = {"sorted": ready[m]["us"], "whole": line["us"]}
                theirs = {
                    name: times[m] / us[name.split()[1]] for name, times in peers.items() if bits(name) == bits(format)
                }
                for name, ratio in theirs.items():
                    ratios.setdefault((format, m, name), []).append(ratio)
                others = "".join(
                    f"  {name} {peers[name][m]:.1f} ({ratio:.2f} of ours)" for name, ratio in theirs.items()
                )
                print(
                    f"{text:>16} {format:5} M {m:5} hit {line['hit']:6.1f} roof {line['roof_us']:8.1f} ours sorted "
                    f"{us['sorted']:8.1f} whole {us['whole']:8.1f} ({line['roof_us'] / us['whole']:.2f}){others}",
                    flush=True,
                )
    for (format, m, name), found in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, found)))
        print(f"{format:5} M {m:5} {name} / ours: geometric mean {mean:.2f}, least {min(found):.2f}")


if __name__ == "__main__":
    main()
