#!/usr/bin/python3
"""The Triton backend in a real tritonserver ($TRITONSERVER), asked over HTTP, with a real gemmd behind it."""

import base64
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from support import PATIENCE_S, ROOT, Daemon, int8_product, random, stop, worst_row

import gemmclient
from kills import serve_through_kills
from triton_server import TritonServer, install_backend

N, K = 48, 64
CONFIG = """
backend: "gemmd"
max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [-1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
dynamic_batching { max_queue_delay_microseconds: %(delay)s }
parameters { key: "weight" value: { string_value: "%(weight)s" } }
parameters { key: "socket" value: { string_value: "%(socket)s" } }
parameters { key: "rows" value: { string_value: "%(rows)s" } }
"""


class Gpu:
    """Device memory of this process by the driver, as a client of Triton's CUDA shared memory has it."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.check("cuInit", 0)
        self.check("cuDeviceGet", ctypes.byref(device), 0)
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.context = context
        self.enter()

    def enter(self):
        """To be called by each thread."""
        self.check("cuCtxSetCurrent", self.context)

    def check(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            raise OSError(f"{name}: error {result}")

    def take(self, array):
        """Memory with its content, and the handle that other processes open it by."""
        place, handle = ctypes.c_uint64(), (ctypes.c_ubyte * 64)()
        self.check("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(max(array.nbytes, 2 << 20)))  # a block of its own
        self.check("cuMemcpyHtoD_v2", place, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        self.check("cuIpcGetMemHandle", handle, place)
        return place, base64.b64encode(bytes(handle)).decode()

    def fetch(self, place, array):
        self.check("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), place, ctypes.c_size_t(array.nbytes))
        return array


def gpu_or_none():
    try:
        return Gpu()
    except OSError:
        return None


GPU = gpu_or_none()


class Triton(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.w = random(1, N, K)
        cls.session = gemmclient.connect(cls.daemon.socket)
        cls.addClassCleanup(cls.session.close)
        cls.session.load_array(cls.w, name="layer", format="int8")
        cls.folder = Path(tempfile.mkdtemp(prefix="gemmd-triton-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        install_backend(cls.folder)
        cls.model("layer", "layer", rows=16)
        cls.model("gathered", "layer", delay=200000, rows=1024)
        cls.model("absent", "nothing")
        cls.session.load_array(cls.w, name="by/script", format="int8")
        script = [sys.executable, ROOT / "client/triton/repository.py", cls.folder / "models", "--pattern", "by/*"]
        path = {**os.environ, "PYTHONPATH": str(ROOT / "client/python")}
        subprocess.run([*script, "--socket", cls.daemon.socket], env=path, check=True, stdout=subprocess.DEVNULL)
        server = TritonServer(cls.folder)
        cls.addClassCleanup(server.close)
        cls.url = server.url

    @classmethod
    def model(cls, name, weight, delay=0, rows=16):
        version = cls.folder / "models" / name / "1"
        version.mkdir(parents=True)
        values = {"weight": weight, "socket": cls.daemon.socket, "delay": delay, "rows": rows}
        (version.parent / "config.pbtxt").write_text(CONFIG % values)

    def infer(self, x, model="layer", **parameters):
        request = {
            "inputs": [{"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}],
            "parameters": parameters,
        }
        body = urllib.request.Request(f"{self.url}/models/{model}/infer", json.dumps(request).encode())
        try:
            with urllib.request.urlopen(body, timeout=PATIENCE_S) as reply:
                output = json.load(reply)["outputs"][0]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from None
        self.assertEqual((output["name"], output["datatype"]), ("y", "FP32"))
        return np.array(output["data"], np.float32).reshape(output["shape"])

    def check(self, x, y):
        self.assertEqual(y.shape, x.shape[:-1] + (N,))
        self.assertLess(worst_row(y, int8_product(x.reshape(-1, K), self.w)), 1e-6)

    def test_products(self):
        for rows in (1, 7, 16, 50):  # 16 rows fit into the arena at a time
            x = random(rows, rows, K)
            self.check(x, self.infer(x))

    def ask(self, path, request):
        body = urllib.request.Request(f"{self.url}/{path}", json.dumps(request).encode())
        with urllib.request.urlopen(body, timeout=PATIENCE_S) as reply:
            return reply.read()

    def share(self, name, array):
        """The array in this process's device memory, which the server knows by the name."""
        place, handle = GPU.take(array)
        self.ask(f"cudasharedmemory/region/{name}/register",
                 {"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": array.nbytes})  # fmt: skip
        self.addCleanup(self.ask, f"cudasharedmemory/region/{name}/unregister", {})
        return place

    def infer_there(self, client, results, model):
        """Three rows out of region x<client>; y<client> is cleared before."""
        region = {"shared_memory_region": f"x{client}", "shared_memory_byte_size": 3 * K * 4}
        there = {"shared_memory_region": f"y{client}", "shared_memory_byte_size": 3 * N * 4}
        GPU.check("cuMemsetD8_v2", results, 0xFF, ctypes.c_size_t(3 * N * 4))
        x = {"name": "x", "shape": [3, K], "datatype": "FP32", "parameters": region}
        self.ask(f"models/{model}/infer", {"inputs": [x], "outputs": [{"name": "y", "parameters": there}]})
        return GPU.fetch(results, np.empty((3, N), np.float32))

    @unittest.skipIf(GPU is None, "needs an NVIDIA GPU")
    def test_tensors_in_gpu_memory(self):
        xs = [random(200 + i, rows, K) for i, rows in enumerate((1, 16, 50))]  # 16 rows fit into the arena at a time
        x, y = np.concatenate(xs), np.full((sum(map(len, xs)), N), np.nan, np.float32)
        self.share("x", x)
        results, at = self.share("y", y), 0
        for one in xs:
            where = {"shared_memory_byte_size": one.nbytes, "shared_memory_offset": at * K * 4}
            there = {"shared_memory_byte_size": len(one) * N * 4, "shared_memory_offset": at * N * 4}
            on_gpu = {"name": "x", "shape": one.shape, "datatype": "FP32",
                      "parameters": {"shared_memory_region": "x", **where}}  # fmt: skip
            here = {"name": "x", "shape": one.shape, "datatype": "FP32", "data": one.ravel().tolist()}
            to_gpu = [{"name": "y", "parameters": {"shared_memory_region": "y", **there}}]
            for model in ("layer", "gathered"):
                for x_tensor in (on_gpu, here):
                    GPU.check("cuMemsetD8_v2", ctypes.c_uint64(results.value + at * N * 4), 0xFF,
                              ctypes.c_size_t(len(one) * N * 4))  # fmt: skip
                    self.ask(f"models/{model}/infer", {"inputs": [x_tensor], "outputs": to_gpu})
                    self.check(one, GPU.fetch(results, y)[at : at + len(one)])
                answer = json.loads(self.ask(f"models/{model}/infer", {"inputs": [on_gpu]}))["outputs"][0]
                self.check(one, np.array(answer["data"], np.float32).reshape(answer["shape"]))
            at += len(one)
        print(f"GPU memory: {3 * 2 * len(xs)} requests right")

    def test_a_model_that_the_script_has_written(self):
        for rows in (1, 9):
            x = random(rows, rows, K)
            self.check(x, self.infer(x, "by_script"))

    def test_requests_that_come_together_are_one_product(self):
        xs = [random(100 + i, 2, K) for i in range(8)]
        before, ys = self.session.status().devices[0].requests, {}
        threads = [threading.Thread(target=lambda i=i: ys.update({i: self.infer(xs[i], "gathered")})) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, x in enumerate(xs):
            self.check(x, ys[i])
        self.assertLess(self.session.status().devices[0].requests - before, 8)

    def test_a_wrong_request_is_told_and_nobody_else(self):
        with self.assertRaisesRegex(ValueError, "x must end in 64 columns, got 63"):
            self.infer(random(2, 1, K - 1))
        x = random(3, 4, K)
        self.check(x, self.infer(x))

    def test_a_model_without_its_weight_is_not_ready(self):
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{self.url}/models/absent/ready", timeout=PATIENCE_S)
        self.assertIn('no weight is named "nothing"', (self.folder / "log").read_text())

    def test_a_time_limit(self):
        worker = self.session.status().devices[0].pid
        stop(worker)
        try:
            with self.assertRaisesRegex(ValueError, "time limit has passed"):
                self.infer(random(4, 2, K), timeout=50000)  # microseconds
        finally:
            os.kill(worker, signal.SIGCONT)
        x = random(5, 3, K)
        self.check(x, self.infer(x))

    def test_a_client_that_goes_away(self):
        worker = self.session.status().devices[0].pid
        stop(worker)
        try:
            body = json.dumps(
                {"inputs": [{"name": "x", "shape": [1, K], "datatype": "FP32", "data": random(6, K).tolist()}]}
            ).encode()
            host, port = self.url.split("/")[2].split(":")
            with socket.create_connection((host, int(port))) as client:
                client.sendall(
                    b"POST /v2/models/layer/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )
        finally:
            os.kill(worker, signal.SIGCONT)
        x = random(7, 3, K)
        self.check(x, self.infer(x))

    def test_a_worker_that_is_killed(self):
        worker = self.session.status().devices[0].pid
        os.kill(worker, signal.SIGKILL)
        x = random(8, 5, K)
        self.check(x, self.infer(x))

    def test_y_killed_while_it_serves(self):
        xs = [random(20 + client, 3, K) for client in range(4)]
        expected = [int8_product(x, self.w) for x in xs]

        on_gpu = [GPU and self.share(f"x{i}", xs[i]) and self.share(f"y{i}", np.zeros((3, N), np.float32)) for i in (2, 3)]

        def ask(client):
            model = ("layer", "gathered")[client % 2]
            if GPU is None or client < 2:
                y = self.infer(xs[client], model)
            else:
                GPU.enter()
                y = self.infer_there(client, on_gpu[client - 2], model)
            return worst_row(y, expected[client]) < 1e-6

        def load():
            with gemmclient.connect(self.daemon.socket) as session:
                session.load_array(self.w, name="layer", format="int8")

        serve_through_kills(self, self.daemon, ask, 4, load)

    def test_zz_gemmd_is_gone_for_long_and_comes_back(self):
        """The last one, because its gemmd has to be given the weight anew."""
        x = random(9, 4, K)
        self.check(x, self.infer(x))
        self.daemon.kill()
        with self.assertRaises(ValueError):
            self.infer(x)  # the session looks for the next gemmd for half a minute
        with self.assertRaises(ValueError):
            self.infer(x)  # and this one at once
        self.daemon.start()
        with self.assertRaisesRegex(ValueError, 'no weight is named "layer"'):
            self.infer(x)
        with gemmclient.connect(self.daemon.socket) as session:
            session.load_array(self.w[:, :32], name="layer", format="int8")
            with self.assertRaisesRegex(ValueError, "layer is 48 x 32 now, and was 48 x 64"):
                self.infer(x)
            session.load_array(self.w, name="layer", format="int8", replace=True)
        self.check(x, self.infer(x))
        self.check(x, self.infer(x, "gathered"))


if __name__ == "__main__":
    if not os.environ.get("TRITONSERVER"):
        raise SystemExit("test_triton.py needs TRITONSERVER=path of tritonserver")
    unittest.main(verbosity=2)
