#!/usr/bin/env python3
"""How fast gemmd takes weights over from CUDA tensors, on the GPU and, beside it, through the host.

    GEMMD_BUILD=build tests/gpu_take.py [--gib 16] [--formats fp8,int8,int2,bf16] [--host 4]

Layers of a model's shapes with values of their own, --gib of them in bf16 a format, handed over by
gemmclient.torch.replace_linear; --host of them through the host as well, where the content must be the same (gemmd's
hash). GB/s are of bf16 that was taken over, by the clock from the first layer to the last; below, in the same run, what
the machine delivers: copies of the device to pinned memory of the host, and from there.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import gpu_engine  # first: it finds gemmd's libraries
import torch

import gemmclient
import gemmclient.torch
from gemmclient._torch import module as _torch_module

SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
DEVICE = gpu_engine.DEVICE


class Model(torch.nn.Module):
    """Layers of `total` bytes in bf16, in the order of a model's blocks."""

    def __init__(self, total, seed):
        super().__init__()
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.layers = torch.nn.ModuleList()
        self.total = 0
        while self.total < total:
            n, k = SHAPES[len(self.layers) % len(SHAPES)]
            layer = torch.nn.Linear(1, 1, bias=False, device="meta")
            values = torch.randn(n, k, generator=generator, device=DEVICE, dtype=torch.bfloat16) / k**0.5
            layer.weight = torch.nn.Parameter(values, requires_grad=False)
            self.layers.append(layer)
            self.total += n * k * 2


def copies_gb_per_s():
    """Of 256 MiB: device to host, host to device."""
    there = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
    here = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    rates = []
    for to, source in ((here, there), (there, here)):
        times = []
        for _ in range(5):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            to.copy_(source)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        rates.append(to.numel() / statistics.median(times) / 1e9)
    return rates


def through_the_host(session, model, format, count):
    """Seconds and bytes for the first layers, and whether gemmd has the same content under both names."""
    seconds = total = 0
    same = True
    for number, layer in enumerate(model.layers[:count]):
        weight = gemmclient.torch._served[layer.number].weight
        values = _kept[number]
        begin = time.perf_counter()
        array, element = _torch_module.as_array(values)
        info = session.load_array(array, name=f"host/{format}/{number}", format=format, element=element)
        seconds += time.perf_counter() - begin
        total += values.numel() * 2
        same = same and info.hash == weight.info.hash and info.shared
    return seconds, total, same


_kept = []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=16)
    parser.add_argument("--formats", default="fp8,int8,int2,bf16")
    parser.add_argument("--host", type=int, default=4)
    arguments = parser.parse_args()
    down, up = copies_gb_per_s()
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}; copies of 256 MiB: from the device {down:.1f} GB/s, "
          f"to it {up:.1f}", flush=True)  # fmt: skip
    good = True
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        daemon, session = gpu_engine.start_gemmd(Path(folder))
        try:
            for seed, format in enumerate(arguments.formats.split(",")):
                model = Model(int(arguments.gib * (1 << 30)), seed)
                _kept[:] = [layer.weight.detach() for layer in model.layers[: arguments.host]]
                torch.cuda.synchronize()
                begin = time.perf_counter()
                gemmclient.torch.replace_linear(model, format, session=session, prefix=f"take{seed}", release=True)
                seconds = time.perf_counter() - begin
                host_seconds, host_bytes, same = through_the_host(session, model, format, arguments.host)
                good = good and same
                print(f"{format}: {len(model.layers)} layers, {model.total / 1e9:.1f} GB of bf16 in {seconds:.2f} s, "
                      f"{model.total / seconds / 1e9:.2f} GB/s; through the host {host_bytes / host_seconds / 1e9:.2f} GB/s; "
                      f"content {'the same' if same else 'DIFFERS'}", flush=True)  # fmt: skip
                del model
        finally:
            print((Path(folder) / "log").read_text()[-600:], file=sys.stderr)
            daemon.terminate()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
