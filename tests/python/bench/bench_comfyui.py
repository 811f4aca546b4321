#!/usr/bin/python3
"""ComfyUI on the CPU with gemmd's node and without: seconds until a model can compute, milliseconds of a step by the
clock and of processor time, memory of the process (its share of gemmd's, too). $COMFYUI is a tree of it; Python is one
that can import it.

    bench_comfyui.py [--width 2048] [--blocks 4] [--rows 256] [--steps 4] [--format int8]"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processes import memory_bytes
from support import ROOT, Daemon


def child(chosen):
    """One process of ComfyUI; prints a line of JSON."""
    sys.path.insert(0, os.environ["COMFYUI"])
    sys.argv = [sys.argv[0], "--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    import comfy.model_management
    import comfy.model_patcher
    import comfy.ops
    import nodes
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            ops, width = comfy.ops.disable_weight_init, chosen.width
            self.diffusion_model = torch.nn.Sequential(
                *(
                    torch.nn.Sequential(ops.Linear(width, 4 * width), torch.nn.GELU(), ops.Linear(4 * width, width))
                    for _ in range(chosen.blocks)
                )
            )
            torch.manual_seed(5)
            for parameter in self.parameters():
                parameter.data = torch.randn_like(parameter) / width**0.5
                parameter.requires_grad_(False)
            self.device, self.manual_cast_dtype = torch.device("cpu"), None

    cpu = torch.device("cpu")
    began = time.monotonic()
    patcher = comfy.model_patcher.ModelPatcher(Model(), cpu, cpu)
    if chosen.format != "none":
        assert asyncio.run(nodes.load_custom_node(str(ROOT / "client/comfyui")))
        node = nodes.NODE_CLASS_MAPPINGS["GemmdLinears"]()
        patcher, _ = getattr(node, node.FUNCTION)(model=patcher, format=chosen.format, layers="diffusion_model.*")
    comfy.model_management.load_models_gpu([patcher])
    x = torch.randn(chosen.rows, chosen.width)
    walls, used = [], []
    with torch.inference_mode():
        patcher.model.diffusion_model(x)
        ready = time.monotonic() - began
        for _ in range(chosen.steps):
            clock, processors = time.monotonic(), time.process_time()
            patcher.model.diffusion_model(x)
            walls.append(time.monotonic() - clock)
            used.append(time.process_time() - processors)
    print(json.dumps([ready, min(walls), min(used), memory_bytes([os.getpid()])]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, value in (("--width", 2048), ("--blocks", 4), ("--rows", 256), ("--steps", 4), ("--turns", 2)):
        parser.add_argument(option, type=int, default=value)
    parser.add_argument("--format", default="int8")
    parser.add_argument("--child", action="store_true")
    chosen = parser.parse_args()
    if chosen.child:
        return child(chosen)
    sizes = [f"--{name}={getattr(chosen, name)}" for name in ("width", "blocks", "rows", "steps")]
    with Daemon() as daemon:
        for turn in range(chosen.turns):
            for format in ("none", chosen.format):
                done = subprocess.run(
                    [sys.executable, Path(__file__).resolve(), "--child", *sizes, f"--format={format}"],
                    env={**os.environ, "GEMMD_SOCKET": daemon.socket}, check=True, stdout=subprocess.PIPE,
                )  # fmt: skip
                ready, wall, used, own = json.loads(done.stdout.splitlines()[-1])
                print(f"{format}: ready in {ready:.1f} s; a step, least: {wall * 1e3:.0f} ms, of processors "
                      f"{used * 1e3:.0f} ms; {own >> 20} MiB", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
