#!/usr/bin/python3
"""Triton: requests a second of the gemmd backend beside Triton's own Python backend (numpy, float32), and what memory its
instances take. Processor time counts the server's and gemmd's, for machines that others use, too. $TRITONSERVER, with
backends/python and python_backend_stubs beside its folder as in nvidia-pytriton. The Python backend takes this
script's numpy, which should be one with OpenBLAS.

    bench_triton.py [--n 4096] [--k 4096] [--instances 2] [--seconds 2] [--turns 3]"""

import argparse
import concurrent.futures
import http.client
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from support import Daemon, int8_product, random, worst_row

import gemmclient
from processes import cpu_seconds, memory_bytes
from triton_server import TritonServer, install_backend

CONFIG = """
backend: "%(backend)s"
max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP32 dims: [%(k)d] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [%(n)d] }]
instance_group [{ kind: KIND_CPU count: %(instances)d }]
dynamic_batching {}
%(more)s
"""
MODEL = """
import sys
sys.path.insert(0, %r)  # Triton's stub looks at no PYTHONPATH
import numpy
import triton_python_backend_utils as utils

class TritonPythonModel:
    def initialize(self, args):
        self.w = numpy.array(numpy.load(%r))

    def execute(self, requests):
        xs = [utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        x = numpy.concatenate(xs)
        y = (self.w @ x[0])[None] if len(x) == 1 else x @ self.w.T
        ys = numpy.split(y, numpy.cumsum([len(x) for x in xs])[:-1])
        return [utils.InferenceResponse([utils.Tensor("y", y)]) for y in ys]
"""


def ask(connection, model, x, n):
    """By the binary form of Triton's HTTP protocol."""
    header = json.dumps({
        "inputs": [{"name": "x", "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }).encode()  # fmt: skip
    kind = {"Inference-Header-Content-Length": str(len(header)), "Content-Type": "application/octet-stream"}
    connection.request("POST", f"/v2/models/{model}/infer", header + x.tobytes(), kind)
    reply = connection.getresponse()
    body = reply.read()
    if reply.status != 200:
        raise RuntimeError(body)
    return np.frombuffer(body[int(reply.headers["Inference-Header-Content-Length"]) :], np.float32).reshape(-1, n)


def rate(url, model, clients, seconds, k, n):
    end = time.monotonic() + seconds

    def client(number):
        connection, done, x = http.client.HTTPConnection(url), 0, random(number, 1, k)
        while time.monotonic() < end:
            ask(connection, model, x, n)
            done += 1
        return done

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(client, range(clients))) / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, value in (("--n", 4096), ("--k", 4096), ("--instances", 2), ("--turns", 3)):
        parser.add_argument(option, type=int, default=value)
    parser.add_argument("--seconds", type=float, default=2)
    chosen = parser.parse_args()
    n, k = chosen.n, chosen.k
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # an instance's; more wait for each other where cores are shared
    home = Path(os.environ["TRITONSERVER"]).resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="gemmd-triton-") as name, Daemon() as daemon:
        folder, w = Path(name), random(1, n, k)
        with gemmclient.connect(daemon.socket) as session:
            session.load_array(w, name="layer", format="int8")
        install_backend(folder)
        shutil.copytree(home / "backends/python", folder / "backends/python")
        stub = home / "python_backend_stubs" / "{}.{}".format(*sys.version_info)
        shutil.copy(stub / "triton_python_backend_stub", folder / "backends/python")
        np.save(folder / "w.npy", w)
        gemmd = 'parameters { key: "weight" value: { string_value: "layer" } }\n'
        gemmd += f'parameters {{ key: "socket" value: {{ string_value: "{daemon.socket}" }} }}'
        for backend, more in (("gemmd", gemmd), ("python", "")):
            version = folder / "models" / backend / "1"
            version.mkdir(parents=True)
            values = {"backend": backend, "more": more, "n": n, "k": k, "instances": chosen.instances}
            (version.parent / "config.pbtxt").write_text(CONFIG % values)
        (folder / "models/python/1/model.py").write_text(MODEL % (str(Path(np.__file__).parents[1]), str(folder / "w.npy")))
        measure(folder, daemon, w, chosen)


def measure(folder, daemon, w, chosen):
    n, k = w.shape
    server = TritonServer(folder, "--model-control-mode=explicit")
    try:
        url, x = server.url.split("/")[2], random(2, 3, k)
        for model in ("gemmd", "python"):
            before = memory_bytes([server.process.pid, daemon.process.pid])
            load = urllib.request.Request(f"{server.url}/repository/models/{model}/load", b"{}")
            urllib.request.urlopen(load, timeout=60).close()
            y = ask(http.client.HTTPConnection(url), model, x, n)
            error = worst_row(y, int8_product(x, w) if model == "gemmd" else x.astype(np.float64) @ w.T)
            more = memory_bytes([server.process.pid, daemon.process.pid]) - before
            print(f"{model}: {more >> 20} MiB for {chosen.instances} instances, error {error:.1e}", flush=True)
        rates = {}
        for turn in range(chosen.turns):
            for model in ("gemmd", "python") if turn % 2 == 0 else ("python", "gemmd"):
                for clients in (1, 8):
                    before = cpu_seconds([server.process.pid, daemon.process.pid])
                    a_second = rate(url, model, clients, chosen.seconds, k, n)
                    used = cpu_seconds([server.process.pid, daemon.process.pid]) - before
                    rates.setdefault((model, clients), []).append((a_second, used / (a_second * chosen.seconds)))
        for clients in (1, 8):
            for model in ("gemmd", "python"):
                a_second, used = zip(*rates[model, clients])
                print(f"{clients} clients, {model}: {statistics.median(a_second):.0f} requests/s (best "
                      f"{max(a_second):.0f}), {statistics.median(used) * 1e3:.2f} ms of processors a request "
                      f"(least {min(used) * 1e3:.2f})", flush=True)  # fmt: skip
    finally:
        server.close()


if __name__ == "__main__":
    main()
