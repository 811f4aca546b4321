#!/usr/bin/python3
"""gemmclient.torch against a real gemmd: values, torch.compile, refusals, lifetimes."""

import contextlib
import copy
import gc
import json
import os
import pickle
import signal
import subprocess
import tempfile
import threading
import unittest
import warnings
from pathlib import Path
from unittest import mock

from support import BUILD, Daemon, int8_product, worst_row

try:
    import torch
    import torch.nn.utils.prune
except ImportError:
    raise SystemExit("test_torch.py needs torch; make test-torch brings it") from None

import gemmclient
import gemmclient.torch
from gemmclient._torch import direct as _torch_direct, places as _torch_places
from gemmclient._torch.module import as_array
from gemmclient.torch import GemmdLinear, replace_linear

K, N = 96, 160
FORMATS = ("int8", "fp8", "bf16", "int2", "int4", "int4a8", "mxfp4", "nvfp4")
LENT = os.environ.get("GEMMD_TEST_BACKEND", "cpu") == "cpu"  # to CPU tensors
HOST = torch.device("cpu")


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.GELU(), torch.nn.Linear(N, K, bias=False)).eval()


def by_worker(session, device=HOST):
    """As where nothing can be borrowed, without the warning."""
    _torch_direct._here.setdefault(session, {})[device] = None


class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        self.session = gemmclient.connect(self.daemon.socket)
        self.addCleanup(self.session.close)
        torch.manual_seed(2)

    def linear(self, dtype=torch.float32, format="int8", bias=True):
        source = torch.nn.Linear(K, N, bias=bias, dtype=dtype)
        return source, GemmdLinear.from_weight(source.weight, source.bias, self.session, "layer", format)

    def check(self, linear, source, x, bound):
        reference = int8_product(x.float().reshape(-1, K).numpy(), source.weight.detach().float().numpy())
        if source.bias is not None:
            reference += source.bias.detach().float().numpy()
        with torch.inference_mode():
            y = linear(x)
        self.assertEqual((y.shape, y.dtype), (x.shape[:-1] + (N,), x.dtype))
        self.assertLess(worst_row(y.float().numpy(), reference), bound)


class Values(Torch):
    def test_every_type_is_what_the_contract_says(self):
        for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 5e-4), (torch.bfloat16, 2.5e-3)):
            source, linear = self.linear(dtype)
            self.check(linear, source, torch.randn(7, K).to(dtype), bound)

    def test_shapes_and_strides(self):
        source, linear = self.linear()
        for x in (
            torch.randn(K),
            torch.randn(2, 3, 5, K),
            torch.randn(4, 2 * K)[:, ::2],
            torch.randn(K, 6).T,
            torch.randn(1, K).expand(4, K),
        ):
            self.check(linear, source, x, 1e-6)
        self.assertEqual(linear(torch.empty(0, K)).shape, (0, N))

    def test_more_rows_than_the_arena_holds(self):
        session = gemmclient.connect(self.daemon.socket, arena_bytes=1 << 20)
        self.addCleanup(session.close)
        by_worker(session)
        source = torch.nn.Linear(K, N)
        linear = GemmdLinear.from_weight(source.weight, source.bias, session, "layer", "int8")
        self.check(linear, source, torch.randn(10007, K), 1e-6)

    def test_formats(self):
        x = torch.randn(9, K)
        bounds = {"int8": 0.02, "fp8": 0.05, "int2": 0.6, "int4": 0.12, "int4a8": 0.12, "mxfp4": 0.16, "nvfp4": 0.13}
        for format, bound in bounds.items():
            source, linear = self.linear(format=format)
            with torch.inference_mode():
                expected, y = source(x), linear(x)
            self.assertLess(float((y - expected).norm() / expected.norm()), bound)
        source, linear = self.linear(torch.bfloat16, "bf16")
        with torch.inference_mode():
            expected, y = source(x.bfloat16()).float(), linear(x.bfloat16()).float()
        self.assertLess(float((y - expected).norm() / expected.norm()), 5e-3)

    def test_threads_that_share_a_model(self):
        served, wrong = model(), []
        replace_linear(served, "int8", session=self.session)

        def work(seed):
            x = torch.randn(3, K, generator=torch.Generator().manual_seed(seed))
            with torch.inference_mode():
                first = served(x)
                wrong.append(sum(not torch.equal(first, served(x)) for _ in range(30)))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [0, 0, 0, 0])


class ByWorker(Values):
    """The same where gemmd's worker computes."""

    def setUp(self):
        super().setUp()
        by_worker(self.session)


@unittest.skipUnless(LENT, "gemmd serves on GPUs")
class Direct(Torch):
    """CPU tensors by products in this process; the tests' gemmd runs as the same user, so that it lends."""

    def test_a_kernel_by_name_computes_the_same(self):
        if not LENT:
            self.skipTest("x is on the CPU")
        source, linear = self.linear()
        x = torch.randn(70, K)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("error")
            y = linear(x)
            linear.kernel = "cpu threads=1 block_m=16"
            self.assertTrue(torch.equal(linear(x), y))
            self.assertTrue(torch.equal(linear(x[:3]), y[:3]))  # another bucket of rows
        linear.kernel = "cpu block_m=100000"
        with torch.inference_mode(), self.assertWarnsRegex(UserWarning, "block_m"):
            self.assertTrue(torch.equal(linear(x), y))
        linear.kernel = None
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertTrue(torch.equal(linear(x), y))

    def test_the_worker_has_no_part_in_it(self):
        source, linear = self.linear()
        x = torch.randn(7, K)
        before = self.session.status().devices[0].products
        self.check(linear, source, x, 1e-6)
        self.assertEqual(self.session.status().devices[0].products, before)
        self.assertEqual(self.session.stat(linear.name).borrows, 1)

    def test_values_are_the_workers(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for format in ("int8", "fp8", "int2"):
                source, linear = self.linear(dtype, format)
                x = torch.randn(7, K).to(dtype)
                served = gemmclient.torch._served[linear.number]
                self.assertIsNotNone(served.layer(HOST))
                self.assertTrue(torch.equal(linear(x), served.by_worker(x)), (dtype, format))

    def test_more_rows_than_a_product_takes(self):
        source, linear = self.linear()
        self.check(linear, source, torch.randn(2 * _torch_direct.ROWS_MOST + 1, K), 1e-6)
        self.check(linear, source, torch.randn(_torch_direct.ROWS_MOST + 5, 2 * K)[:, K:], 1e-6)

    def test_tuning_leaves_the_values(self):
        source, linear = self.linear()
        model = torch.nn.Sequential(linear, torch.nn.ReLU())
        x = torch.randn(7, K)
        self.assertIn(gemmclient.torch.tune(model, rows=[1, 7, 8, 10**6], device="cpu", budget_ms=300), range(4))
        self.check(linear, source, x, 1e-6)
        by_worker(self.session)
        other, _ = self.linear(bias=False)[::-1]
        self.assertEqual(gemmclient.torch.tune(other, rows=[1], device="cpu"), 0)

    def test_it_goes_on_when_gemmd_is_gone(self):
        with contextlib.closing(Daemon()) as daemon, gemmclient.connect(daemon.socket, reconnect=0) as session:
            served, x = model(), torch.randn(3, K)
            replace_linear(served, "int8", session=session)
            with torch.inference_mode():
                before = served(x)
                daemon.kill()
                for _ in range(20):
                    self.assertTrue(torch.equal(served(x), before))

    def test_rows_that_are_not_aligned(self):
        source, linear = self.linear()
        flat = torch.randn(1 + 4 * K)
        self.check(linear, source, flat[1:].view(4, K), 1e-6)
        self.check(linear, source, flat[1 : K + 1], 1e-6)

    def test_biases_that_are_not_aligned(self):
        source = torch.nn.Linear(K, N)
        flat = torch.cat([torch.zeros(1), source.bias.detach()])
        linear = GemmdLinear.from_weight(source.weight, flat[1:], self.session, "layer", "int8")
        self.check(linear, source, torch.randn(3, K), 1e-6)

    def refused(self, session, sentence):
        source = torch.nn.Sequential(*(torch.nn.Linear(K, K) for _ in range(3)))
        linears = copy.deepcopy(source)
        replace_linear(linears, "int8", session=session)
        x = torch.randn(4, K)
        with warnings.catch_warnings(record=True) as told, torch.inference_mode():
            warnings.simplefilter("always")
            y = linears(x)
            self.assertTrue(torch.equal(linears(x), y))
        self.assertEqual(len(told), 1, [str(one.message) for one in told])
        self.assertRegex(str(told[0].message), sentence)
        replace_linear(source, "int8", session=self.session)
        with gemmclient.connect(session._chosen["address"]) as other, torch.inference_mode():
            again = torch.nn.Sequential(*(GemmdLinear(other, a.name, _bias(a)) for a in linears))
            self.assertTrue(torch.equal(again(x), y))

    @unittest.skipUnless(os.geteuid() == 0, "takes another user")
    def test_who_may_not_borrow_is_told_once_and_served_by_the_worker(self):
        with contextlib.closing(Daemon()) as daemon:
            os.chmod(daemon.folder, 0o755)
            os.chmod(daemon.socket, 0o666)
            os.seteuid(65534)
            try:
                session = gemmclient.connect(daemon.socket)
            finally:
                os.seteuid(0)
            with session:
                self.refused(session, "cpu: products go through gemmd's worker: .*direct")

    def test_a_weight_that_cannot_be_borrowed_is_told_of_once(self):
        with contextlib.closing(Daemon("devices = 2")) as daemon, gemmclient.connect(daemon.socket) as session:
            for number in range(2):
                w = torch.randn(N, K).numpy()
                session.load_array(w, name=f"parts{number}", format="int8", placement="split", devices=2)
            layers = [GemmdLinear(session, f"parts{number}") for number in range(2)]
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                for layer in layers * 2:
                    self.assertEqual(layer(torch.randn(2, K)).shape, (2, N))
            self.assertEqual(len(told), 1)
            self.assertRegex(str(told[0].message), "parts0: products go through gemmd's worker: .*several devices")


def _bias(layer):
    return gemmclient.torch._served[layer.number].given_bias


class SharedPlaces(Torch):
    """What CUDA tensors go through, with a memfd in the place of a GPU's memory: gemmd reads and writes where torch
    does."""

    def served(self, source, slot_bytes=1 << 20):
        by_worker(self.session)
        linear = GemmdLinear.from_weight(source.weight, source.bias, self.session, "shared", "int8")
        memory = gemmclient.SharedMemory(self.session, 4 * slot_bytes)
        places = _torch_places.staging_of(self.session, HOST)
        _torch_places._staging[self.session][HOST] = _torch_places.Mapped(memory, HOST)
        self.assertIsNot(_torch_places.staging_of(self.session, HOST), places)
        return linear

    def test_every_type(self):
        for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 5e-4), (torch.bfloat16, 2.5e-3)):
            for bias in (True, False):
                source = torch.nn.Linear(K, N, bias=bias, dtype=dtype)
                self.check(self.served(source), source, torch.randn(7, K).to(dtype), bound)

    def test_more_rows_than_a_place_holds(self):
        source = torch.nn.Linear(K, N)
        linear = self.served(source, 4096)
        self.check(linear, source, torch.randn(103, K), 1e-6)  # 6 at a time
        self.assertEqual(linear(torch.empty(0, K)).shape, (0, N))

    def test_an_error_leaves_the_layer_usable(self):
        source = torch.nn.Linear(K, N, dtype=torch.float16)
        linear = GemmdLinear.from_weight(source.weight, None, self.session, "half", "f16")
        self.served(source)
        with self.assertRaises(gemmclient.UnsupportedError):
            linear(torch.randn(2, K))  # f16 weights take f16 rows
        with torch.inference_mode():
            x = torch.randn(2, K, dtype=torch.float16)
            expected = torch.nn.functional.linear(x, source.weight)
            torch.testing.assert_close(linear(x), expected, rtol=1e-2, atol=1e-2)


class TwoDevices(unittest.TestCase):
    def test_a_weight_that_lies_elsewhere_is_served_by_the_arena(self):
        daemon = Daemon("devices = 2")
        self.addCleanup(daemon.close)
        session = gemmclient.connect(daemon.socket)
        self.addCleanup(session.close)
        x = torch.randn(3, K)
        for number, kind in ((0, _torch_places.Arena), (1, _torch_places.Mapped)):
            w = torch.randn(N, K)  # equal content would be stored once
            session.load_array(w.numpy(), name=f"on{number}", format="int8", device=number)
            by_worker(session)
            linear = GemmdLinear(session, f"on{number}")
            arena = _torch_places.staging_of(session, HOST)
            memory = gemmclient.SharedMemory(session, 4 << 20, device=1)
            served, other = gemmclient.torch._served[linear.number], torch.device("cpu", 0)
            _torch_places._staging[session][other] = _torch_places.Mapped(memory, HOST)
            staging, _, _ = served.places(other, torch.float32)
            self.assertIs(type(staging), kind)
            self.assertIs(staging is arena, number == 0)
            self.assertLess(worst_row(linear(x).numpy(), int8_product(x.numpy(), w.numpy())), 1e-6)


@unittest.skipUnless(torch.cuda.is_available() and os.environ.get("GEMMD_TEST_BACKEND") == "cuda", "needs a GPU")
class Cuda(Torch):
    """CUDA tensors by exported device memory, as where nothing can be borrowed."""

    def linear_on_gpu(self, dtype=torch.float32):
        by_worker(self.session, torch.device("cuda", 0))
        source, linear = self.linear(dtype)
        return source, linear, torch.randn(7, K).to(dtype)

    def test_every_type_is_what_the_contract_says(self):
        for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 5e-4), (torch.bfloat16, 2.5e-3)):
            source, linear, x = self.linear_on_gpu(dtype)
            with torch.inference_mode():
                y = linear(x.cuda())
            self.assertEqual((y.device.type, y.dtype), ("cuda", dtype))
            place = _torch_places.staging_of(self.session, y.device)
            self.assertIs(type(place), _torch_places.Mapped)
            reference = int8_product(x.float().numpy(), source.weight.detach().float().numpy())
            reference += source.bias.detach().float().numpy()
            self.assertLess(worst_row(y.float().cpu().numpy(), reference), bound)
            self.assertLess(worst_row(y.float().cpu().numpy(), linear(x).float().numpy()), bound)  # by the arena

    def test_streams_that_take_turns(self):
        _, linear, _ = self.linear_on_gpu()
        streams = [torch.cuda.Stream() for _ in range(3)]
        with torch.inference_mode():
            rows = [torch.randn(40000, K, device="cuda") for _ in range(6)]  # several pieces each
            expected = [linear(x.cpu()) for x in rows]
            torch.cuda.synchronize()
            results = []
            for turn, x in enumerate(rows):
                with torch.cuda.stream(streams[turn % 3]):
                    results.append(linear(x * 1.0))
            torch.cuda.synchronize()
            for y, right in zip(results, expected):
                self.assertLess(worst_row(y.cpu().numpy(), right.numpy()), 1e-6)

    def late(self, events):
        """x is written behind work that keeps the stream busy for longer than gemmd waits."""
        with contextlib.closing(Daemon("event_timeout_ms = 20")) as daemon, gemmclient.connect(daemon.socket) as session:
            by_worker(session, torch.device("cuda", 0))
            source = torch.nn.Linear(K, N)
            linear = GemmdLinear.from_weight(source.weight, source.bias, session, "layer", "int8")
            rows = torch.randn(40000, K)
            with torch.inference_mode():
                expected, x, there = linear(rows), torch.zeros(40000, K, device="cuda"), rows.cuda()
                place = _torch_places.staging_of(session, x.device)
                self.assertEqual(len(place.events), 2)
                if not events:  # as where gemmd runs as another user
                    place.events = []
                linear(x)
                for cycles in (200_000, 500_000_000):
                    x.zero_()
                    torch.cuda._sleep(cycles)
                    x.copy_(there)
                    self.assertLess(worst_row(linear(x).cpu().numpy(), expected.numpy()), 1e-6)

    def test_x_that_is_still_being_written(self):
        self.late(True)

    def test_x_that_is_still_being_written_without_events(self):
        self.late(False)

    def test_a_worker_that_dies_is_a_pause(self):
        _, linear, x = self.linear_on_gpu()
        with torch.inference_mode():
            before = linear(x.cuda())
            worker = self.session.status().devices[0].pid
            os.kill(worker, signal.SIGKILL)
            self.assertLess(worst_row(linear(x.cuda()).cpu().numpy(), before.cpu().numpy()), 1e-6)
        self.assertNotEqual(self.session.status().devices[0].pid, worker)


@unittest.skipUnless(torch.cuda.is_available() and not LENT, "needs a GPU")
class CudaDirect(Torch):
    """CUDA tensors by products in this process, on the current stream."""

    def setUp(self):
        super().setUp()
        self.source = torch.nn.Linear(K, N, dtype=torch.bfloat16)
        self.layer = GemmdLinear.from_weight(self.source.weight, self.source.bias, self.session, "layer", "int8").cuda()
        self.x = torch.randn(7, K, dtype=torch.bfloat16)
        self.x_there = self.x.cuda()

    def test_values_are_the_workers(self):
        served = gemmclient.torch._served[self.layer.number]
        y = self.layer(self.x.cuda())
        self.assertIsNotNone(served.layer(y.device))
        self.assertLess(worst_row(y.float().cpu().numpy(), served.by_worker(self.x).float().numpy()), 5e-3)

    def test_taken_over_on_the_gpu(self):
        """To the content that it has by way of the host, and without that way; in one memory for all layers."""
        shapes = ((N, K, torch.float32), (K, N, torch.bfloat16), (7, K, torch.float16))
        sources = [torch.randn(n, k, device="cuda").to(dtype) for n, k, dtype in shapes]
        for number, format in enumerate(("int8", "fp8", "int2", "bf16")):
            fresh = torch.nn.Sequential(*(torch.nn.Linear(w.shape[1], w.shape[0], bias=False) for w in sources)).cuda()
            for layer, source in zip(fresh, sources):
                layer.weight = torch.nn.Parameter(source)
            with mock.patch.object(self.session, "load_array", side_effect=AssertionError):
                gemmclient.torch.replace_linear(fresh, format, session=self.session, prefix=f"taken{number}")
            for layer, source in zip(fresh, sources):
                exact = source.to(torch.bfloat16) if format == "bf16" else source
                values, element = as_array(exact)
                info = self.session.load_array(values, name="again", format=format, element=element, replace=True)
                self.assertEqual(info.hash, self.session.stat(layer.name).hash)

    def test_what_is_not_finite_is_not_taken_over(self):
        linear = torch.nn.Linear(K, N).cuda()
        with torch.no_grad():
            linear.weight[3, 5] = float("inf")
        with self.assertRaisesRegex(gemmclient.BadFileError, "row 3, column 5"):
            gemmclient.torch.replace_linear(torch.nn.Sequential(linear), "int8", session=self.session)

    def test_scales_that_the_gpu_does_not_make_come_by_way_of_the_host(self):
        linear = torch.nn.Linear(K, N).cuda()
        layer = GemmdLinear.from_weight(linear.weight, None, self.session, "rows", "int2", scale="row")
        values, element = as_array(linear.weight)
        info = self.session.load_array(values, name="again", format="int2", element=element, scale="row", replace=True)
        self.assertEqual(info.hash, self.session.stat(layer.name).hash)

    def layer_of(self, format):
        return GemmdLinear.from_weight(self.source.weight, self.source.bias, self.session, format, format).cuda()

    def test_a_graph_records_it(self):
        x = torch.zeros_like(self.x, device="cuda")
        for format in FORMATS:
            layer = self.layer_of(format)
            layer(x)
            expected = layer(self.x.cuda())
            for named in (contextlib.nullcontext(), gemmclient.torch.lane(1)):
                with named, torch.inference_mode(), torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
                    y = layer(x)
                x.copy_(self.x)
                graph.replay()
                self.assertTrue(torch.equal(y, expected), format)
                x.zero_()

    def test_compiled_into_graphs(self):
        for format in ("int8", "int4"):
            layer = self.layer_of(format)
            compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
            with torch.inference_mode():
                for _ in range(4):
                    x = torch.randn(7, K, dtype=torch.bfloat16, device="cuda")
                    self.assertTrue(torch.equal(compiled(x), layer(x)), format)

    def test_tuned_before_a_capture(self):
        expected = self.layer(self.x_there).float()
        gemmclient.torch.tune(torch.nn.Sequential(self.layer), rows=[1, 7], budget_ms=500)
        with torch.inference_mode(), torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
            y = self.layer(self.x_there)
        graph.replay()
        self.assertLess(worst_row(y.float().cpu().numpy(), expected.cpu().numpy()), 5e-3)
        with self.assertRaisesRegex(gemmclient.WrongStateError, "being captured"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                gemmclient.torch.tune(self.layer, rows=[1])

    def test_more_streams_than_lanes(self):
        streams = [torch.cuda.Stream() for _ in range(_torch_direct.STREAM_LANES + 2)]
        expected, results, x = self.layer(self.x.cuda()), [], self.x.cuda()
        torch.cuda.synchronize()
        for _ in range(20):
            for stream in streams:
                with torch.cuda.stream(stream):
                    results.append(self.layer(x))
        torch.cuda.synchronize()
        self.assertTrue(all(torch.equal(y, expected) for y in results))

    def test_a_capture_before_it_is_borrowed(self):
        late = GemmdLinear(self.session, self.layer.name)
        with self.assertRaisesRegex(gemmclient.WrongStateError, "being captured: .* has to be borrowed"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                late(self.x_there)

    def test_a_layer_that_goes_with_work_queued(self):
        x, expected = self.x.cuda(), self.layer(self.x.cuda())
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)
        y = self.layer(x)
        self.layer = None
        gc.collect()
        self.assertTrue(torch.equal(y, expected))


class Models(Torch):
    def test_patterns_choose_layers(self):
        served = model()
        self.assertEqual(replace_linear(served, "int8", ["2"], session=self.session), ["2"])
        self.assertIs(type(served[0]), torch.nn.Linear)
        self.assertIs(type(served[2]), GemmdLinear)
        self.assertEqual((served[2].weight.shape, served[2].weight.device.type), ((K, N), "meta"))
        self.assertEqual(replace_linear(served, "int8", session=self.session), ["0"])

    def test_a_pattern_that_matches_nothing(self):
        served = model()
        with self.assertRaisesRegex(gemmclient.InvalidError, "pattern 'decoder.*' matches no layer"):
            replace_linear(served, "int8", ["0", "decoder.*"], session=self.session)
        self.assertIs(type(served[0]), torch.nn.Linear)
        with self.assertRaisesRegex(gemmclient.InvalidError, "matches no layer"):
            replace_linear(torch.nn.GELU(), "int8", session=self.session)

    def test_one_that_is_refused_leaves_all_as_it_was(self):
        served = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.Linear(N, K, dtype=torch.float64))
        before = list(served)
        for patterns in (["*"], "*"):
            with self.assertRaisesRegex(gemmclient.InvalidError, "^1: a weight must be float32.*float64"):
                replace_linear(served, "int8", patterns, session=self.session, prefix="atomic")
            self.assertEqual(list(served), before)
        self.assertEqual(self.session.weights("atomic/*"), [])
        there = torch.nn.Sequential(copy.deepcopy(served[0]))
        replace_linear(there, "int8", session=self.session, prefix="atomic")
        with self.assertRaises(gemmclient.InvalidError):
            replace_linear(served, "int8", session=self.session, prefix="atomic")
        self.assertEqual(len(self.session.weights("atomic/*")), 1)  # that was there before

    def test_what_is_no_plain_linear_layer_is_refused_by_name(self):
        def named(layer):
            return torch.nn.ModuleDict({"fine": torch.nn.Linear(K, K), "odd": layer})

        def weight_norm(layer):
            return torch.nn.utils.parametrizations.weight_norm(layer)

        def pruned(layer):
            return torch.nn.utils.prune.identity(layer, "weight")

        def changed(layer):
            layer.forward = lambda x: x
            return layer

        for change, reason in ((weight_norm, "parametrized"), (pruned, "computed from others"), (changed, "forward")):
            served = named(change(torch.nn.Linear(K, K)))
            with self.assertRaisesRegex(gemmclient.InvalidError, f"^odd: .*{reason}"):
                replace_linear(served, "int8", session=self.session)
            self.assertIs(type(served["fine"]), torch.nn.Linear)
        attention = torch.nn.ModuleDict({"mha": torch.nn.MultiheadAttention(K, 2)})
        with self.assertRaisesRegex(gemmclient.InvalidError, r"^mha.out_proj: .*MultiheadAttention"):
            replace_linear(attention, "int8", session=self.session, predicate=lambda path, layer: True)
        with torch.device("meta"):
            empty = torch.nn.Sequential(torch.nn.Linear(K, K))
        with self.assertRaisesRegex(gemmclient.InvalidError, '^0: .*"meta"'):
            replace_linear(empty, "int8", session=self.session)

    def test_subclasses_when_asked(self):
        class Mine(torch.nn.Linear):
            pass

        def fresh():
            return torch.nn.Sequential(torch.nn.Linear(K, K), Mine(K, K))

        self.assertEqual(replace_linear(fresh(), "int8", session=self.session), ["0"])
        self.assertEqual(replace_linear(fresh(), "int8", session=self.session, classes=[Mine]), ["1"])
        self.assertEqual(
            replace_linear(fresh(), "int8", session=self.session, classes=[Mine, torch.nn.Linear]), ["0", "1"]
        )
        asked = []

        def predicate(path, layer):
            asked.append((path, type(layer)))
            return path == "1"

        self.assertEqual(replace_linear(fresh(), "int8", session=self.session, predicate=predicate), ["1"])
        self.assertEqual(asked, [("0", torch.nn.Linear), ("1", Mine)])
        with self.assertRaisesRegex(gemmclient.InvalidError, "pattern '1' matches no layer.*of other classes.* 1"):
            replace_linear(fresh(), "int8", ["1"], session=self.session)

    def test_a_model_that_is_one_layer(self):
        source = torch.nn.Linear(K, N)
        served, seen = copy.deepcopy(source), []
        hook = served.register_forward_hook(lambda layer, inputs, y: seen.append(layer))
        self.assertEqual(replace_linear(served, "int8", session=self.session, prefix="one"), [""])
        self.assertIs(type(served), GemmdLinear)
        self.assertRegex(served.name, r"^one\.int8\.")
        x = torch.randn(3, K)
        self.check(served, source, x, 1e-6)
        self.assertEqual(seen, [served])
        with torch.inference_mode():
            self.assertTrue(torch.equal(served(input=x), served(x)))
        hook.remove()
        number = served.number
        del served, seen
        gc.collect()
        self.assertNotIn(number, gemmclient.torch._served)

    def test_hooks_and_modes_go_on(self):
        served, seen = model(), []
        handles = [
            served[0].register_forward_pre_hook(lambda layer, inputs: (inputs[0] + 1,)),
            served[0].register_forward_hook(lambda layer, inputs, y: y * 2),
            served[2].register_forward_hook(lambda layer, inputs, options, y: seen.append(options), with_kwargs=True),
        ]
        hooked = torch.nn.Sequential(copy.deepcopy(model()[0]))
        replace_linear(served, "int8", session=self.session)
        replace_linear(hooked, "int8", session=self.session)
        x = torch.randn(2, K)
        with torch.inference_mode():
            self.assertTrue(torch.equal(served[0](x), 2 * hooked(x + 1)))
            served(x)
        self.assertEqual(seen, [{}])
        self.assertFalse(served[0].training)
        for handle in handles:
            handle.remove()
        with torch.inference_mode():
            self.assertTrue(torch.equal(served[0](x), hooked(x)))

    def test_types_that_are_shown(self):
        served = model()
        replace_linear(served, "int8", session=self.session)
        for change, dtype in ((lambda m: m.half(), torch.float16), (lambda m: m.to(torch.bfloat16), torch.bfloat16)):
            change(served)
            self.assertEqual((served[0].weight.dtype, served[0].bias.dtype), (dtype, dtype))
            self.assertEqual((served[0].weight.shape, served[0].weight.device.type), ((N, K), "meta"))
            with torch.inference_mode():
                self.assertEqual(served(torch.randn(2, K, dtype=dtype)).dtype, dtype)
        self.assertEqual(served.to("cpu")[0].weight.dtype, torch.bfloat16)

    def test_autocast(self):
        served, x = model(), torch.randn(3, K)
        replace_linear(served, "int8", session=self.session)
        with torch.inference_mode():
            expected = served[0](x.bfloat16())
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = served[0](x)
                compiled = torch.compile(served[0], fullgraph=True)(x)
                with torch.autocast("cpu", enabled=False):
                    self.assertEqual(served[0](x).dtype, torch.float32)
                with self.assertRaisesRegex(gemmclient.InvalidError, "float64"):
                    served[0](x.double())
        self.assertEqual((y.dtype, compiled.dtype), (torch.bfloat16, torch.bfloat16))
        self.assertTrue(torch.equal(y, expected) and torch.equal(compiled, expected))

    def test_saving_says_what_would_be_left_out(self):
        served = model()
        replace_linear(served, "int8", ["0"], session=self.session)
        with self.assertRaisesRegex(gemmclient.WrongStateError, "0.weight is with gemmd.*weights=True"):
            served.state_dict()
        self.assertEqual(set(gemmclient.torch.state_dict(served)), {"0.bias", "2.weight"})
        with self.assertRaisesRegex(gemmclient.UnsupportedError, "0.weight is with gemmd as INT8"):
            gemmclient.torch.state_dict(served, weights=True)
        with self.assertRaises(gemmclient.WrongStateError):
            served.state_dict()

    def test_saving_whole(self):
        for dtype, format in ((torch.float16, "f16"), (torch.bfloat16, "bf16")):
            source = torch.nn.Sequential(torch.nn.Linear(K, N, dtype=dtype), torch.nn.Linear(N, K, False, dtype=dtype))
            expected = source.state_dict()
            served = copy.deepcopy(source)
            replace_linear(served, format, session=self.session)
            saved = gemmclient.torch.state_dict(served, weights=True)
            self.assertEqual(list(saved), list(expected))
            for name, value in expected.items():
                self.assertEqual(saved[name].dtype, dtype)
                self.assertTrue(torch.equal(saved[name], value), name)
            source.load_state_dict(saved)

    def test_writing_to_it_is_refused(self):
        served = torch.nn.Sequential(torch.nn.Linear(16, 8))
        replace_linear(served, "int8", session=self.session)
        layer, values = served[0], torch.ones(8, 16)
        with torch.no_grad():
            for write in (
                lambda: layer.weight.copy_(values), lambda: layer.weight.data.copy_(values), lambda: layer.weight.zero_(),
                lambda: layer.weight[0].fill_(1), lambda: layer.weight.__setitem__(0, 1), lambda: layer.bias.data.add_(1),
                lambda: layer.weight.T.mul_(2), lambda: layer.weight.__imul__(2), lambda: torch.nn.init.ones_(layer.weight),
            ):  # fmt: skip
                with self.assertRaisesRegex(gemmclient.WrongStateError, "before the layer is replaced"):
                    write()
        self.assertEqual((layer.weight.shape, layer.weight.dtype, layer.weight.device.type), ((8, 16), torch.float32, "meta"))
        layer.weight.requires_grad_(False)
        half = served.half()
        self.assertEqual(half[0].weight.dtype, torch.float16)
        with self.assertRaises(gemmclient.WrongStateError):
            half[0].weight.zero_()
        compiled = torch.compile(lambda x: served(x.to(served[0].weight.dtype)) * served[0].weight.shape[0], fullgraph=True)
        with torch.inference_mode():
            x = torch.randn(3, 16)
            self.assertTrue(torch.equal(compiled(x), served(x.half()) * 8))

    def test_loading_into_it_is_refused(self):
        served, source = model(), model()
        replace_linear(served, "f16", ["0"], session=self.session)
        for strict in (True, False):
            with self.assertRaisesRegex(RuntimeError, "0.weight is with gemmd and cannot be changed there"):
                served.load_state_dict(source.state_dict(), strict=strict)
        served.load_state_dict({"2.weight": source[2].weight})

    def test_layers_that_share_values_share_a_weight(self):
        shared = torch.nn.Linear(K, K)
        served = torch.nn.Sequential(shared, shared, torch.nn.Linear(K, K))
        served[2].load_state_dict(shared.state_dict())
        self.assertEqual(replace_linear(served, "fp8", session=self.session, prefix="tied"), ["0", "1", "2"])
        self.assertIs(served[0], served[1])
        infos = self.session.weights("tied/*")
        self.assertEqual({info.hash for info in infos}, {infos[0].hash})

    def test_a_second_model_finds_the_weights_there(self):
        replace_linear(model(), "int8", session=self.session, prefix="twice")
        before, loads = self.session.status().weight_bytes, self.daemon.log().count('loaded "twice/')
        with gemmclient.connect(self.daemon.socket) as other:
            served = model()
            replace_linear(served, "int8", session=other, prefix="twice")
            self.assertEqual(other.status().weight_bytes, before)
            self.assertEqual(self.daemon.log().count('loaded "twice/'), loads)
        changed = model()
        with torch.no_grad():
            changed[0].weight[3, 5] += 1
        replace_linear(changed, "int8", session=self.session, prefix="twice")
        self.assertEqual(self.daemon.log().count('loaded "twice/'), loads + 1)

    def test_weights_that_gptq_has_made(self):
        served, x = model(), torch.randn(300, K)
        with tempfile.TemporaryDirectory() as work:
            with gemmclient.torch.record_inputs(served, f"{work}/rows", rows=250), torch.inference_mode():
                expected = served(x)
            state = {name: ("F32", value.shape, value.numpy().data) for name, value in served.state_dict().items()}
            with open(f"{work}/model", "wb") as file:
                gemmclient._safetensors.write(file, state)
            command = [str(BUILD / "gemmctl"), "quantize", f"{work}/model", "--format", "int2", "--json"]
            command += ["--calibration", f"{work}/rows", "--output", f"{work}/int2"]
            report = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["tensors"]
            self.assertEqual([(one["name"], one["rows"]) for one in report], [("0.weight", 250), ("2.weight", 250)])
            rounded = model()
            replace_linear(rounded, "int2", session=self.session)
            paths = replace_linear(served, "int2", session=self.session, quantized=f"{work}/int2")
            self.assertEqual(paths, ["0", "2"])
            with torch.inference_mode():
                self.assertLess((served(x) - expected).norm(), 0.9 * (rounded(x) - expected).norm())
            with self.assertRaisesRegex(gemmclient.NotFoundError, "has no tensor 1.weight"):
                replace_linear(torch.nn.Sequential(torch.nn.GELU(), torch.nn.Linear(K, N)), "int2",
                               session=self.session, quantized=f"{work}/int2")  # fmt: skip
            with self.assertRaisesRegex(gemmclient.InvalidError, r"0.weight is \(160, 96\), the model's \(3, 96\)"):
                replace_linear(torch.nn.Sequential(torch.nn.Linear(K, 3, bias=False)), "int2",
                               session=self.session, quantized=f"{work}/int2")  # fmt: skip

    def test_a_checkpoint_in_nvfp4(self):
        codes, scales = torch.randint(0, 16, (N, K)), (torch.rand(N, K // 16) * 400 + 1).to(torch.float8_e4m3fn)
        steps = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        values = torch.where(codes < 8, 1, -1) * steps[codes % 8] * scales.float().repeat_interleave(16, 1) / 4096
        packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
        tensors = {
            "0.weight": ("U8", packed.shape, packed.numpy().data),
            "0.weight_scale_2": ("F32", (1,), torch.tensor([1 / 4096]).numpy().data),
            "0.weight_scale": ("F8_E4M3", scales.shape, scales.view(torch.uint8).numpy().data),
        }  # fmt: skip
        served, x = torch.nn.Sequential(torch.nn.Linear(K, N, bias=False)), torch.randn(9, K)
        with tempfile.TemporaryDirectory() as work:
            with open(f"{work}/model.safetensors", "wb") as file:
                gemmclient._safetensors.write(file, tensors)
            quantization = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
            Path(work, "config.json").write_text(json.dumps({"quantization_config": quantization}))
            replace_linear(served, "nvfp4", session=self.session, quantized=work)
        with torch.inference_mode():
            y, expected = served(x), x @ values.T
        self.assertLess(float((y - expected).norm() / expected.norm()), 3e-4)

    def test_inputs_of_a_layer_that_nothing_went_through(self):
        with self.assertRaisesRegex(gemmclient.WrongStateError, "nothing went through the layer of 0.weight"):
            with gemmclient.torch.record_inputs(model(), "/dev/null"):
                pass

    def test_compiled_is_the_same(self):
        x, served = torch.randn(5, K), model()
        replace_linear(served, "int8", session=self.session)
        with torch.inference_mode():
            expected = served(x)
            compiled = torch.compile(served, fullgraph=True)
            torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(compiled(x[:3]), expected[:3], rtol=1e-5, atol=1e-5)

    def test_compiled_with_less_overhead_is_the_same(self):
        x, served = torch.randn(5, K), model()
        replace_linear(served, "int8", session=self.session)
        with torch.inference_mode():
            expected = served(x)
            compiled = torch.compile(served, fullgraph=True, mode="reduce-overhead")
            for _ in range(3):
                torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)

    def test_what_torch_traces_sees_the_operator(self):
        _, linear = self.linear()
        x = torch.randn(3, K)
        with torch.inference_mode(False), torch.no_grad():
            exported = torch.export.export(torch.nn.Sequential(linear), (x,))
            self.assertTrue(torch.equal(exported.module()(x), linear(x)))
            self.assertTrue(torch.equal(torch.jit.trace(linear, x)(x), linear(x)))
        self.assertIn("gemmd.linear", str(exported.graph))
        self.assertEqual(linear(torch.empty(2, 3, K, device="meta")).shape, (2, 3, N))

    def test_torch_finds_the_operator_well_formed(self):
        _, linear = self.linear()
        found = torch.library.opcheck(torch.ops.gemmd.linear, (torch.randn(3, K), linear.number, N))
        self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_layers_of_hqq(self):
        """What HQQ made goes over as it is: codes, scales and zero points that are no integers."""

        class HQQLinear(torch.nn.Module):  # as hqq 0.2 packs 4 bits
            def __init__(self, codes, scale, zero, group, bias, change):
                super().__init__()
                rows = codes.reshape(-1, group)
                half = len(rows) // 2
                self.W_q = torch.nn.Parameter(rows[:half] << 4 | rows[half:], requires_grad=False)
                self.bias, self.compute_dtype, self.in_features, self.out_features = bias, scale.dtype, *codes.shape[::-1]
                self.meta = {"nbits": 4, "axis": 1, "packing": "4bit_u8", "group_size": group, "shape": codes.shape,
                             "scale": scale.reshape(-1, 1), "zero": zero.reshape(-1, 1), "view_as_float": False, **change}  # fmt: skip

        for group, dtype in ((64, torch.float16), (128, torch.bfloat16), (256, torch.float16)):
            k, bias = 256, torch.randn(N)
            codes = torch.randint(0, 16, (N, k), dtype=torch.uint8)
            scale, zero = (torch.rand(N, k // group) / 50 + 0.01).to(dtype), (torch.rand(N, k // group) * 15).to(dtype)
            w = (codes.double() - zero.double().repeat_interleave(group, 1)) * scale.double().repeat_interleave(group, 1)
            source = torch.nn.Sequential(HQQLinear(codes, scale, zero, group, bias, {}))
            self.assertEqual(replace_linear(source, "int4", session=self.session), ["0"])
            x = torch.randn(3, k)
            self.assertLess(worst_row(source(x).double().numpy(), (x.double() @ w.T + bias).numpy()), 3e-4)
            self.assertIn("F16", self.session.stat(source[0].name).scale.name)
            for change, error in (({"axis": 0}, "axis"), ({"nbits": 3}, "3 bits"), ({"quant_zero": True}, "quantized themselves"),
                                  ({"zero": zero.reshape(-1, 1).double() + 1e-9}, "none of float16")):  # fmt: skip
                with self.assertRaisesRegex(gemmclient.GemmdError, error):
                    replace_linear(torch.nn.Sequential(HQQLinear(codes, scale, zero, group, bias, change)), "int4", session=self.session)


class Refusals(Torch):
    def test_gradients(self):
        _, linear = self.linear()
        x = torch.randn(2, K, requires_grad=True)
        y = linear(x)
        self.assertTrue(y.requires_grad)
        with self.assertRaisesRegex(RuntimeError, "no gradients"):
            y.sum().backward()
        compiled = torch.compile(linear, fullgraph=True)(x)
        self.assertTrue(torch.equal(compiled, y))
        with self.assertRaisesRegex(RuntimeError, "no gradients"):
            compiled.sum().backward()
        with torch.no_grad():
            self.assertTrue(torch.equal(linear(x), y))

    def test_shapes_and_types(self):
        _, linear = self.linear()
        with self.assertRaisesRegex(gemmclient.InvalidError, "96 columns"):
            linear(torch.randn(2, K + 1))
        with self.assertRaisesRegex(gemmclient.InvalidError, "float64"):
            linear(torch.randn(2, K, dtype=torch.float64))
        with self.assertRaisesRegex(gemmclient.InvalidError, "bias must have shape"):
            GemmdLinear(self.session, linear.name, torch.zeros(N + 1))
        with self.assertRaises(gemmclient.NotFoundError):
            GemmdLinear(self.session, "nothing")

    def test_copies_of_what_is_open(self):
        _, linear = self.linear()
        for copied in (copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(gemmclient.WrongStateError, "belongs to the process that opened it"):
                copied(torch.nn.Sequential(linear))

    def test_weights_of_types_that_are_not_taken(self):
        with self.assertRaisesRegex(gemmclient.InvalidError, r"float64.*\(element\)"):
            self.session.load_array(torch.randn(N, K).double().numpy(), name="double", format="int8")

    def test_lanes(self):
        with self.assertRaisesRegex(gemmclient.InvalidError, "lane must be 0..3, got 4"), gemmclient.torch.lane(4):
            pass

    def test_an_error_leaves_the_layer_usable(self):
        source, linear = self.linear(torch.float16, "f16")
        with self.assertRaises(gemmclient.UnsupportedError):
            linear(torch.randn(2, K))  # f16 weights take f16 rows
        with torch.inference_mode():
            x = torch.randn(2, K, dtype=torch.float16)
            torch.testing.assert_close(linear(x), source(x), rtol=1e-2, atol=1e-2)


class Lifetimes(Torch):
    def test_a_layer_that_goes_closes_its_weight(self):
        _, linear = self.linear()
        name, number = linear.name, linear.number
        del linear
        gc.collect()
        with self.assertRaisesRegex(gemmclient.WrongStateError, "names no weight"):
            torch.ops.gemmd.linear(torch.randn(1, K), number, N)
        self.assertGreater(self.session.unload(name), 0)

    def test_what_was_computed_outlives_the_session(self):
        for borrowed in (True, False):
            with gemmclient.connect(self.daemon.socket) as session:
                if not borrowed:
                    by_worker(session)
                linear = GemmdLinear.from_weight(torch.randn(N, K), None, session, "layer", "int8")
                y = linear(torch.ones(4, K)).clone()
                held = linear(torch.ones(4, K))
            self.assertTrue(torch.equal(held, y))
            if borrowed and LENT:
                self.assertTrue(torch.equal(linear(torch.ones(4, K)), y))
            else:
                with self.assertRaises(gemmclient.DisconnectedError):
                    linear(torch.ones(4, K))

    def test_a_session_ends_with_what_was_borrowed(self):
        session = gemmclient.connect(self.daemon.socket)
        linear = GemmdLinear.from_weight(torch.randn(N, K), None, session, "layer", "int8")
        linear(torch.ones(4, K))
        sessions = self.session.status().sessions
        session.close()
        self.assertEqual(self.session.status().sessions, sessions)
        core = session._core
        del linear, session
        gc.collect()
        self.assertEqual(core.blocks, 0)

    def test_names_go_with_the_model_when_asked(self):
        served, other = model(), model()
        replace_linear(served, "int8", session=self.session, prefix="released", release=True)
        replace_linear(other, "int8", session=self.session, prefix="released", release=True)
        with torch.inference_mode():
            y = served(torch.ones(1, K))
        del served
        gc.collect()
        self.assertEqual(len(self.session.weights("released/*")), 2)  # the other model has them
        with torch.inference_mode():
            self.assertTrue(torch.equal(other(torch.ones(1, K)), y))
        del other
        gc.collect()
        self.assertEqual(self.session.weights("released/*"), [])
        kept = model()
        replace_linear(kept, "int8", session=self.session, prefix="kept")
        del kept
        gc.collect()
        self.assertEqual(len(self.session.weights("kept/*")), 2)

    def test_a_forked_process_connects_anew(self):
        for borrowed in (True, False):
            session = gemmclient.connect(self.daemon.socket)
            self.addCleanup(session.close)
            if not borrowed:
                by_worker(session)
            served, x = model(), torch.randn(2, K)
            replace_linear(served, "int8", session=session, prefix="forked", release=True)
            with torch.inference_mode():
                before = served(x)
                read, write = os.pipe()
                child = os.fork()
                if child == 0:
                    try:
                        torch.set_num_threads(1)
                        os.write(write, b"1" if torch.equal(served(x), before) else b"0")
                        served = None
                        gc.collect()
                    finally:
                        os._exit(0)
                os.close(write)
                with os.fdopen(read, "rb") as result:
                    self.assertEqual(result.read(), b"1")
                os.waitpid(child, 0)
                self.assertEqual(len(session.weights("forked/*")), 2)  # they are not the child's to release
                self.assertTrue(torch.equal(served(x), before))


if __name__ == "__main__":
    unittest.main(verbosity=2)
