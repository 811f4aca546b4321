#!/usr/bin/python3
"""What a GemmdLinear costs beside nn.Linear, and where the time of a call through gemmd's worker goes. A gemmd of its
own; CUDA tensors where torch and gemmd ($GEMMD_TEST_BACKEND=cuda) have a GPU, else CPU tensors. Medians in
microseconds; all take turns.

    linear    nn.Linear(x) in this process, of the type of x
    call      GemmdLinear(x), until y is complete; in this process where gemmd lends the weight
    worker    the same through gemmd's worker, of which
    device    gemmd's own time of the product
    copy in   x into the memory that gemmd sees, and on a GPU the wait for the stream, which orders it
    product   asking gemmd and waiting for it, less `device`
    copy out  y out of that memory
    rest      this package"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import Daemon

import gemmclient.torch
import torch
from gemmclient._torch import places as _torch_places

PARTS = ("linear", "call", "worker", "device", "copy in", "product", "copy out", "rest")


def finished(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(device, work):
    finished(device)
    begin = time.perf_counter_ns()
    result = work()
    finished(device)
    return (time.perf_counter_ns() - begin) / 1e3, result


def measure(session, device, dtype, format, n, k, m, turns):
    source = torch.nn.Linear(k, n, bias=False, dtype=dtype, device=device)
    linear = gemmclient.torch.GemmdLinear.from_weight(source.weight, None, session, "bench", format)
    x, y = torch.randn(m, k, device=device).to(dtype), torch.empty(m, n, dtype=dtype, device=device)
    served = gemmclient.torch._served[linear.number]
    staging, most, places = served.places(x.device, dtype)
    if m > most:
        raise SystemExit(f"{m} rows go in pieces of {most}; ask for fewer")
    taken = {part: [] for part in PARTS}
    for turn in range(turns + turns // 4):
        samples = {"call": timed(device, lambda: linear(x))[0], "linear": timed(device, lambda: source(x))[0]}
        samples["worker"] = timed(device, lambda: served.by_worker(x))[0]
        samples["copy in"] = timed(device, lambda: places[0].x[:m].copy_(x))[0]
        product, pending = timed(device, lambda: _product(places[0], m))
        samples["device"] = pending.device_ns / 1e3
        samples["product"] = product - samples["device"]
        samples["copy out"] = timed(device, lambda: y.copy_(places[0].y[:m]))[0]
        samples["rest"] = samples["worker"] - product - samples["copy in"] - samples["copy out"]
        if turn >= turns // 4:
            for part, value in samples.items():
                taken[part].append(value)
    session.unload(linear.name)
    way = "lent" if served.layer(x.device) is not None else "worker"
    return f"{way}, {type(staging).__name__}", {part: statistics.median(values) for part, values in taken.items()}


def _product(place, m):
    pending = place.submit(m)
    pending.wait()
    return pending


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="384x384,1536x384", help="NxK, with commas between")
    parser.add_argument("--rows", default="1,16,128")
    parser.add_argument("--formats", default="int8,fp8")
    parser.add_argument("--type", default="float32", help="of x: float32, float16 or bfloat16")
    parser.add_argument("--turns", type=int, default=400)
    arguments = parser.parse_args()
    dtype = getattr(torch, arguments.type)
    with Daemon() as daemon, gemmclient.connect(daemon.socket) as session, torch.inference_mode():
        device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        if device.type == "cuda":
            torch.zeros(1, device=device)
        begin = time.perf_counter()
        _torch_places.staging_of(session, torch.device("cpu"))
        host = time.perf_counter()
        _torch_places.staging_of(session, device)
        print(
            f"torch {torch.__version__} on {device}, {torch.get_num_threads()} threads; "
            f"backend {session.status().backend}; x {arguments.type}; "
            f"places in the arena {1e3 * (host - begin):.1f} ms, "
            f"in memory of a GPU, with its import by gemmd, {1e3 * (time.perf_counter() - host):.1f} ms"
        )
        print(f"{'':<32}" + "".join(f"{part:>10}" for part in PARTS))
        for shape in arguments.shapes.split(","):
            n, k = (int(size) for size in shape.split("x"))
            for format in arguments.formats.split(","):
                for m in (int(rows) for rows in arguments.rows.split(",")):
                    by, medians = measure(session, device, dtype, format, n, k, m, arguments.turns)
                    label = f"{format} {shape} m {m} {by}"
                    print(f"{label:<32}" + "".join(f"{medians[part]:>10.1f}" for part in PARTS), flush=True)


if __name__ == "__main__":
    main()
