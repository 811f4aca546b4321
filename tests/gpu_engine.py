#!/usr/bin/env python3
"""Linear layers of a GPU engine: torch in bf16 beside gemmd's direct products, both as CUDA graphs, in one run.

    GEMMD_BUILD=build/gemmd-0.1.0-x86_64 tests/gpu_engine.py [--formats fp8,int8,int2] [--rows 1,16,64] [--parts products,blocks,eager]
                                                                  [--peers torch-fp8,humming-int2] [--tune worker,direct]

Blocks of four layers, 6144x4096, 4096x4096, 28672x4096 and 4096x14336 (--blocks of them, 8). `products`: chained by
views, nothing between them. `blocks`: with SiLU, multiplication and residuals. bf16 in and out, quantizing counted.
Medians of graph replays in the order A B B A, in microseconds, and torch's time by gemmd's. Before anything is timed each
graph's result is compared with the same products by gemmd's worker.

--tune: what is measured again after kernels were looked for: `worker` by gemmctl tune for each shape and M, as gemmd does
in the background, `direct` by gemmd_direct_tune in this process; `forget` drops what gemmctl found; several in turn.

--distinct: blocks with weights of their own, the others repeat them; what all of them take must not fit into the L2.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
for part in ("", "_CUDA", "_DIRECT"):
    file = f"libgemmclient{part.lower().replace('_', '-')}.so.0"
    found = [place / file for place in (BUILD / "lib", BUILD) if (place / file).exists()]
    if found:
        os.environ.setdefault(f"GEMMCLIENT{part}_LIBRARY", str(found[0]))
sys.path.insert(0, str(ROOT / "client" / "python"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import gpu_peers  # noqa: E402

import gemmclient  # noqa: E402
import gemmclient.torch  # noqa: E402
from gemmclient import _library  # noqa: E402

LAYERS = {"qkv": (6144, 4096), "o": (4096, 4096), "up": (28672, 4096), "down": (4096, 14336)}
DEVICE = torch.device("cuda", 0)


def start_gemmd(folder, backend="cuda"):
    program = next(place / "gemmd" for place in (BUILD / "bin", BUILD) if (place / "gemmd").exists())
    socket = folder / "gemmd.sock"
    log = open(folder / "log", "w")
    daemon = subprocess.Popen([str(program), "--socket", str(socket), "--backend", backend], stderr=log, stdout=log)
    for _ in range(600):
        if daemon.poll() is not None:
            sys.exit((folder / "log").read_text())
        try:
            return daemon, gemmclient.connect(str(socket), arena_bytes=512 << 20)
        except gemmclient.GemmdError:
            time.sleep(0.1)
    sys.exit("gemmd does not answer")


def weights_of(distinct):
    """Random, with values that stand out, as models have them."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    made = []
    for _ in range(distinct):
        block = {}
        for name, (n, k) in LAYERS.items():
            w = torch.randn(n, k, generator=generator, device=DEVICE) / k**0.5
            block[name] = w.to(torch.bfloat16)
        made.append(block)
    return made


def serve(session, made, format):
    return [
        {
            name: gemmclient.torch.GemmdLinear.from_weight(w, None, session, f"block{number}/{name}", format)
            for name, w in block.items()
        }
        for number, block in enumerate(made)
    ]


def products(linear, blocks, count, x):
    for i in range(count):
        block = blocks[i % len(blocks)]
        y = linear(block["qkv"], x)
        y = linear(block["o"], y[:, :4096])
        y = linear(block["up"], y)
        x = linear(block["down"], y[:, :14336])
    return x


def whole(linear, blocks, count, x):
    x = x * 0.02  # so that what passes through the squares of 8 blocks stays finite
    for i in range(count):
        block = blocks[i % len(blocks)]
        x = x + linear(block["o"], linear(block["qkv"], x)[:, :4096])
        up = linear(block["up"], x)
        x = x + linear(block["down"], F.silu(up[:, :14336]) * up[:, 14336:])
    return x


def torch_linear(w, x):
    return F.linear(x, w)


def gemmd_linear(layer, x):
    return layer(x)


def captured(run, x):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run(x)
    return graph, y


def replays_us(graph, count):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / count


def compare_us(a, b, turns=5, count=20):
    """Medians of each, in the order A B B A."""
    times = ([], [])
    for graph in (a, b):
        replays_us(graph, count)
    for _ in range(turns):
        for graph, into in ((a, 0), (b, 1), (b, 1), (a, 0)):
            times[into].append(replays_us(graph, count))
    return statistics.median(times[0]), statistics.median(times[1])


def check(layers, format):
    """Direct products against the worker's, which have tests against float64: a layer each, a few rows."""
    worst = 0.0
    for name, layer in layers[0].items():
        x = torch.randn(5, layer.in_features, device=DEVICE, dtype=torch.bfloat16)
        y = layer(x).float()
        weight = gemmclient.torch._served[layer.number].weight
        want = torch.from_numpy(weight.matmul(x.float().cpu().numpy()).copy()).to(DEVICE)
        error = ((y - want).norm(dim=1) / want.norm(dim=1)).max().item()
        worst = max(worst, error)
    if not worst < 1e-2:
        sys.exit(f"{format}: direct products are off by {worst:.2e} of the worker's")
    return worst


def host_us(run, count=2000):
    for _ in range(50):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        for _ in range(count // 9):
            run()
        times.append((time.perf_counter() - begin) * 1e6 / (count // 9))
        torch.cuda.synchronize()
    return statistics.median(times)


def tune(how, folder, layers, rows):
    """Finds kernels for all shapes and rows; seconds."""
    begin = time.perf_counter()
    if how == "direct":
        model = torch.nn.ModuleList(layer for block in layers for layer in block.values())
        found = gemmclient.torch.tune(model, rows, dtype=torch.bfloat16, budget_ms=1500)
        print(f"gemmd_direct_tune: other kernels for {found} of {len(LAYERS) * len(rows)}", flush=True)
        return time.perf_counter() - begin
    program = next(place / "gemmctl" for place in (BUILD / "bin", BUILD) if (place / "gemmctl").exists())
    if how == "forget":
        subprocess.run([str(program), "tune", "forget", "*", "--socket", str(folder / "gemmd.sock")], check=True)
    for layer in layers[0].values() if how == "worker" else ():
        for m in rows:
            command = [str(program), "tune", layer.name, "--m", str(m), "--x-type", "bf16", "--y-type", "bf16"]
            command += ["--socket", str(folder / "gemmd.sock"), "--json"]
            said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
            best = {result["kernel"]: result["ns"] for result in said["results"]}
            own = next((result for result in said["results"] if result["own"]), None)
            print(
                f"  {said['shape']}: {said['kernel']} {best.get(said['kernel'], 0) / 1e3:.2f} us; "
                f"own {own['ns'] / 1e3 if own else 0:.2f} us",
                flush=True,
            )
    return time.perf_counter() - begin


def beside(peer, layers, made, arguments, m):
    """A peer's chained products and gemmd's, in turns."""
    x = torch.randn(m, 4096, device=DEVICE, dtype=torch.bfloat16)
    ours, _ = captured(lambda x: products(gemmd_linear, layers, arguments.blocks, x), x)
    its, _ = captured(lambda x: products(peer.linear, peer.blocks, arguments.blocks, x), x)
    its_us, ours_us = compare_us(its, ours)
    print(f"{peer.format} products m={m}: {peer.name} {its_us:.0f} us, gemmd {ours_us:.0f} us, {its_us / ours_us:.2f}", flush=True)


def eager(format, layer):
    """What the host spends on a call: nn.Linear, the layer, and gemmd_direct_matmul itself, called by cffi, which takes
    about 0.3 us of it."""
    x = torch.randn(1, layer.in_features, device=DEVICE, dtype=torch.bfloat16)
    y = torch.empty(1, layer.out_features, device=DEVICE, dtype=torch.bfloat16)
    linear = torch.nn.Linear(layer.in_features, layer.out_features, bias=False, device=DEVICE, dtype=torch.bfloat16)
    weight = gemmclient.torch._served[layer.number].layer(DEVICE).weight
    product = _library.ffi.new("gemmd_direct_product *")
    product.bytes, product.m = _library.ffi.sizeof("gemmd_direct_product"), 1
    product.x, product.x_type = _library.ffi.cast("void *", x.data_ptr()), gemmclient.ElementType.BF16
    product.y, product.y_type = _library.ffi.cast("void *", y.data_ptr()), gemmclient.ElementType.BF16
    stream = torch.cuda.current_stream().cuda_stream
    theirs, ours = host_us(lambda: linear(x)), host_us(lambda: layer(x))
    call = host_us(lambda: weight.launch_again(product, stream))
    print(f"{format} eager, host: nn.Linear {theirs:.1f} us, GemmdLinear {ours:.1f}, gemmd_direct_matmul {call:.1f}", flush=True)


def measure(layers, made, arguments, format, rows, what):
    parts = arguments.parts.split(",")
    for m in rows:
        x = torch.randn(m, 4096, device=DEVICE, dtype=torch.bfloat16)
        for part, function in (("products", products), ("blocks", whole)):
            if part not in parts:
                continue
            ours, y = captured(lambda x: function(gemmd_linear, layers, arguments.blocks, x), x)
            theirs, _ = captured(lambda x: function(torch_linear, made, arguments.blocks, x), x)
            theirs_us, ours_us = compare_us(theirs, ours)
            finite = bool(torch.isfinite(y).all())
            print(
                f"{format} {part} m={m}{what}: torch bf16 {theirs_us:.0f} us, gemmd {ours_us:.0f} us, "
                f"{theirs_us / ours_us:.2f}{'' if finite else ' NOT FINITE'}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default="fp8,int8,int2")
    parser.add_argument("--rows", default="1,16,64")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--distinct", type=int, default=3)
    parser.add_argument("--parts", default="products,blocks,eager")
    parser.add_argument("--tune", default="", help="worker, direct, forget")
    parser.add_argument("--peers", default="", help="of gpu_peers.py, for products: torch-fp8,humming-fp8,humming-int8,humming-int2")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    rows = [int(one) for one in arguments.rows.split(",")]
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        daemon, session = start_gemmd(Path(folder))
        try:
            made = weights_of(arguments.distinct)
            for format in arguments.formats.split(","):
                begin = time.perf_counter()
                layers = serve(session, made, format)
                loaded = time.perf_counter() - begin
                print(f"{format}: loaded in {loaded:.1f} s, worst row off the worker's by {check(layers, format):.1e}", flush=True)
                measure(layers, made, arguments, format, rows, "")
                for how in arguments.tune.split(",") if arguments.tune else ():
                    seconds = tune(how, Path(folder), layers, rows)
                    print(f"{format}: tuned ({how}) in {seconds:.1f} s", flush=True)
                    measure(layers, made, arguments, format, rows, f" tuned ({how})")
                names = [name for name in arguments.peers.split(",") if f"-{format}" in name]
                for peer in gpu_peers.peers(made, rows, names) if names else ():
                    for m in rows:
                        try:
                            beside(peer, layers, made, arguments, m)
                        except Exception as error:  # a peer's, which ends nothing but its own row
                            print(f"{peer.name} m={m}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                if "eager" in parts:
                    eager(format, layers[0]["o"])
                del layers
        finally:
            print((Path(folder) / "log").read_text()[-1500:], file=sys.stderr)
            daemon.terminate()


if __name__ == "__main__":
    main()
