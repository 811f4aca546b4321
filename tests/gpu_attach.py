#!/usr/bin/env python3
"""How long a further engine needs from connect() to its first product where gemmd has the weights, and what it takes.

    GEMMD_BUILD=build tests/gpu_attach.py [--gb 16] [--engines 3]

--gb of FP8 weights lie with gemmd, each 28672 x 4096 with values of its own. Engines are processes of their own, started
one after the other, that borrow all of them and compute one product with each; CUDA has been started before the clock
is. Memory in use is nvidia-smi's, in MiB: before gemmd, with the weights, with one engine, with two and so on.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu_engine  # first: it finds gemmd's libraries
import torch

import gemmclient
import gemmclient.torch

N, K = 28672, 4096
DEVICE = gpu_engine.DEVICE


def memory_used():
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0])


def engine(socket):
    """A child: everything that it needs of CUDA is there before it connects."""
    x = torch.randn(1, K, device=DEVICE, dtype=torch.bfloat16)
    y = torch.empty(1, N, device=DEVICE, dtype=torch.bfloat16)
    stream = torch.cuda.current_stream()
    torch.cuda.synchronize()
    marks = [time.perf_counter()]
    session = gemmclient.connect(socket)
    marks.append(time.perf_counter())
    direct = gemmclient.Direct(session, ordinal=0)
    marks.append(time.perf_counter())
    weights = [direct.borrow(info.name) for info in session.weights()]
    marks.append(time.perf_counter())

    def product(weight):
        weight.launch(1, x.data_ptr(), "bf16", y.data_ptr(), "bf16", stream=stream.cuda_stream)

    product(weights[0])
    stream.synchronize()
    marks.append(time.perf_counter())
    for weight in weights:
        product(weight)
    stream.synchronize()
    parts = dict(zip(("connect", "open", "borrow", "product"), (b - a for a, b in zip(marks, marks[1:]))))
    parts["all"] = marks[-1] - marks[0]
    parts["finite"] = bool(torch.isfinite(y).all())
    print(json.dumps(parts), flush=True)
    sys.stdin.readline()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=16)
    parser.add_argument("--engines", type=int, default=3)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        engine(arguments.engine)
        return
    used = [memory_used()]
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        daemon, session = gpu_engine.start_gemmd(Path(folder))
        engines = []
        try:
            count = round(arguments.gb * 1e9 / (N * K))
            for i in range(count):
                values = torch.randn(N, K, device=DEVICE, dtype=torch.bfloat16)
                gemmclient.torch.GemmdLinear.from_weight(values, None, session, f"large/{i}", "fp8")
            del values
            torch.cuda.empty_cache()
            total = sum(info.bytes for info in session.weights())
            used.append(memory_used())
            print(f"{torch.cuda.get_device_name(0)}: {count} weights, {total / 1e9:.2f} GB; this process loaded them and "
                  f"has borrowed them", flush=True)  # fmt: skip
            for number in range(arguments.engines):
                command = [sys.executable, __file__, "--engine", str(Path(folder) / "gemmd.sock")]
                engines.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
                said = json.loads(engines[-1].stdout.readline())
                used.append(memory_used())
                parts = ", ".join(f"{name} {said[name] * 1e3:.1f}" for name in ("connect", "open", "borrow", "product"))
                print(f"engine {number + 1}: {said['all'] * 1e3:.1f} ms to the first product ({parts}); "
                      f"finite {said['finite']}; {used[-1] - used[-2]:+d} MiB", flush=True)  # fmt: skip
            print(f"memory in use, MiB: {', '.join(str(one) for one in used)}", flush=True)
        finally:
            for one in engines:
                one.stdin.close()
                one.wait()
            print((Path(folder) / "log").read_text()[-600:], file=sys.stderr)
            daemon.terminate()


if __name__ == "__main__":
    main()
