#!/usr/bin/python3
"""The Python client against a real gemmd: values, memory, errors, faults."""

import fcntl
import gc
import os
import signal
import threading
import unittest
import weakref
from pathlib import Path

import numpy as np
from support import PATIENCE_S, ROOT, Daemon, int8_product, kill_orphan, random, stop, worst_row, write_safetensors

import gemmclient
from gemmclient import ElementType, Format, Scale, _library, errors

N, K = 96, 80


class Header(unittest.TestCase):
    def test_every_status_has_an_exception(self):
        numbers = range(-1, -1000, -1)
        known = [n for n in numbers if gemmclient.errors.text(_library.lib.gemmd_status_name(n)) != "UNKNOWN"]
        self.assertGreaterEqual(len(known), 20)
        for status in known:
            error = errors.error_for(status, "why")
            self.assertIsNot(type(error), gemmclient.GemmdError, f"status {status} has no exception")
            self.assertEqual((error.status, str(error)), (status, "why"))

    def test_every_constant_of_the_header_has_a_name(self):
        for kind, enum in (("gemmd_type", ElementType), ("gemmd_format", Format), ("gemmd_scale", Scale),
                           ("gemmd_method", gemmclient.Method), ("gemmd_placement", gemmclient.Placement),
                           ("gemmd_priority", gemmclient.Priority),
                           ("gemmd_activation", gemmclient.Activation)):  # fmt: skip
            values = set(_library.ffi.typeof(f"enum {kind}").elements) - {0} | ({0} if 0 in list(enum) else set())
            self.assertEqual(values, {int(one) for one in enum}, kind)

    def test_versions_agree(self):
        self.assertEqual(gemmclient.library_version(), gemmclient.__version__)
        self.assertIn(f'version = "{gemmclient.__version__}"', (ROOT / "client/python/pyproject.toml").read_text())

    def test_every_function_is_found(self):
        header = Path(_library.__file__).with_name("gemmclient.h").read_text()
        functions = set(__import__("re").findall(r"GEMMD_API[^;(]*?(gemmd_\w+)\(", header))
        self.assertGreater(len(functions), 20)
        for function in functions:
            getattr(_library.lib, function)


class Served(unittest.TestCase):
    """A daemon for all tests of a class, and a session for each."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.w = random(1, N, K)
        with gemmclient.connect(cls.daemon.socket) as session:
            session.load_array(cls.w, name="int8", format="int8")
            session.load_array(cls.w.astype(np.float16), name="f16", format="f16")

    def setUp(self):
        self.session = gemmclient.connect(self.daemon.socket, arena_bytes=4 << 20, name="test")
        self.addCleanup(self.session.close)

    def worker(self) -> int:
        """The process that serves; one that is to come is waited for."""
        while True:
            device = self.session.status().devices[0]
            if device.state == "ready" and device.pid > 0:
                return device.pid

    def stopped_worker(self) -> int:
        """Stands still until the test lets it go on, or ends."""
        pid = self.worker()
        stop(pid)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        return pid


class Products(Served):
    def test_int8_product_is_what_the_contract_says(self):
        weight = self.session.open("int8")
        for rows in (1, 7, 33):
            x = self.session.array(random(rows, rows, K))
            self.assertLess(worst_row(weight.matmul(x), int8_product(x, self.w)), 1e-6)

    def test_any_shape_in_front_and_a_bias(self):
        x, bias = random(2, 3, 5, K), random(3, N)
        y = self.session.open("int8").matmul(x, bias=bias)
        self.assertEqual(y.shape, (3, 5, N))
        self.assertLess(worst_row(y, int8_product(x.reshape(-1, K), self.w) + bias), 1e-6)
        y = self.session.open("int8").matmul(x[0, 0])
        self.assertEqual(y.shape, (N,))

    def test_types(self):
        x16 = random(4, 6, K).astype(np.float16)
        reference = x16.astype(np.float64) @ self.w.astype(np.float16).astype(np.float64).T
        weight = self.session.open("f16")
        self.assertEqual(weight.matmul(x16).dtype, np.float16)
        self.assertLess(worst_row(weight.matmul(x16, y_type="f32"), reference), 1e-6)
        bf16 = weight.matmul(x16, y_type="bf16")
        self.assertEqual(bf16.dtype, np.uint16)
        self.assertLess(worst_row((bf16.astype(np.uint32) << 16).view(np.float32), reference), 2.5e-3)

    def test_integer_sums_are_exact(self):
        x = np.random.default_rng(5).integers(-127, 128, (4, K), dtype=np.int8)
        self.session.load_array(np.eye(N, K, dtype=np.float32), name="eye", format="int8")
        y = self.session.open("eye").matmul(x)
        self.assertEqual(y.dtype, np.int32)
        np.testing.assert_array_equal(y[:, :K], 127 * x.astype(np.int32))
        scaled = self.session.open("eye").matmul(x, x_scale=np.full(4, 0.5, np.float32))
        np.testing.assert_allclose(scaled[:, :K], x * 0.5, rtol=1e-6)

    def test_numbers_in_another_byte_order_are_refused(self):
        other = random(7, 3, K).astype(np.dtype(np.float32).newbyteorder())
        with self.session.open("int8") as weight, self.assertRaisesRegex(gemmclient.InvalidError, "byte order"):
            weight.matmul(other, x_type="f32")
        with self.assertRaisesRegex(gemmclient.InvalidError, "byte order"):
            self.session.load_array(other, name="swapped", format="int8", element="f32")

    def test_names_as_long_as_may_be(self):
        name = "\u7528" * 85  # 255 bytes
        self.session.load_array(np.eye(N, K, dtype=np.float32), name=name, format="int8")
        self.assertEqual(self.session.stat(name).name, name)
        self.session.unload(name)

    def test_a_zero_byte_ends_no_name(self):
        for call in (self.session.open, self.session.stat, self.session.unload, self.session.weights):
            with self.assertRaisesRegex(gemmclient.InvalidError, "zero byte"):
                call("w\0x")
        with self.assertRaisesRegex(gemmclient.InvalidError, "zero byte"):
            self.session.load_array(np.eye(N, K, dtype=np.float32), name="w\0x", format="int8")
        with self.assertRaisesRegex(gemmclient.InvalidError, "zero byte"):
            self.session.load(str(self.daemon.folder / "model.safetensors") + "\0x", tensor="w", name="w", format="int8")
        with self.assertRaisesRegex(gemmclient.InvalidError, "zero byte"):
            gemmclient.connect(str(self.daemon.socket) + "\0x")

    def test_bf16_rows_named_by_the_call(self):
        values = random(6, 3, K)
        rounded = (values.view(np.uint32) >> 16 << 16).view(np.float32)
        x = self.session.array((values.view(np.uint32) >> 16).astype(np.uint16))
        y = self.session.open("int8").matmul(x, x_type="bf16", y_type="f32")
        self.assertLess(worst_row(y, int8_product(rounded, self.w)), 1e-6)

    def test_out_and_views_of_the_arena(self):
        weight = self.session.open("int8")
        wide = self.session.empty((8, 2 * K))
        wide[:] = random(7, 8, 2 * K)
        every_other = wide[::2, :K]  # rows apart: read in place
        out = self.session.empty((4, N))
        self.assertIs(weight.matmul(every_other, out=out), out)
        self.assertLess(worst_row(out, int8_product(every_other, self.w)), 1e-6)
        crooked = wide[:4, 1 : K + 1]  # begins where no tensor may: copied
        self.assertLess(worst_row(weight.matmul(crooked), int8_product(crooked, self.w)), 1e-6)

    def test_nothing_is_copied_but_what_lies_elsewhere(self):
        weight = self.session.open("int8")
        x, bias = self.session.array(random(8, 4, K)), self.session.array(random(9, N))
        worker, before = self.stopped_worker(), self.session._core.blocks
        pending = weight.submit(x, bias=bias)
        self.assertEqual(self.session._core.blocks, before + 1)  # y
        weight.submit(np.array(x))
        self.assertEqual(self.session._core.blocks, before + 3)  # y and a copy of x
        os.kill(worker, signal.SIGCONT)
        self.assertLess(worst_row(pending.wait(), int8_product(x, self.w) + bias), 1e-6)

    def test_several_in_flight(self):
        weight = self.session.open("int8")
        xs = [self.session.array(random(10 + i, 2, K)) for i in range(16)]
        for x, pending in [(x, weight.submit(x)) for x in xs]:
            self.assertLess(worst_row(pending.wait(), int8_product(x, self.w)), 1e-6)
            self.assertTrue(pending.done)
            self.assertGreater(pending.device_ns, 0)

    def test_threads_that_share_a_session(self):
        weight, wrong = self.session.open("int8"), []

        def work(seed):
            x = random(seed, 3, K)
            reference = int8_product(x, self.w)
            wrong.extend(worst_row(weight.matmul(x), reference) for _ in range(50))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(wrong), 200)
        self.assertLess(max(wrong), 1e-6)


class Tensors(Served):
    """Products of two arrays, as they lie."""

    def close(self, y, x, w, held=0.0):
        right = np.matmul(x.astype(np.float64), np.swapaxes(w, -1, -2).astype(np.float64)) + held
        self.assertEqual(y.shape, right.shape)
        self.assertLess(np.abs(y - right).max() / np.abs(right).max(), 1e-3)

    def test_views_of_either_way(self):
        x, w = random(1, 40, 33).astype(np.float16), random(2, 24, 33).astype(np.float16)
        for x_turned in (False, True):
            for w_turned in (False, True):
                a = np.ascontiguousarray(x.T).T if x_turned else x
                b = np.ascontiguousarray(w.T).T if w_turned else w
                self.close(self.session.matmul_tensors(a, b), x, w)
                self.close(self.session.matmul_tensors(self.in_arena(a), self.in_arena(b), y_type="f16"), x, w)

    def in_arena(self, array):
        turned = not array.flags.c_contiguous
        source = array.T if turned else array
        copy = self.session.array(source)
        return copy.T if turned else copy

    def test_batches_added_to_what_is_there(self):
        x, w = random(1, 3, 8, 20).astype(np.float16), random(2, 3, 5, 20).astype(np.float16)
        out = self.session.array(np.full((3, 8, 5), 2.0, dtype=np.float32))
        again = self.session.matmul_tensors(x, w, out=out, add=True)
        self.assertIs(again, out)
        self.close(out, x, w, 2.0)

    def test_refused(self):
        x, w = random(1, 4, 8).astype(np.float16), random(2, 4, 9).astype(np.float16)
        with self.assertRaises(errors.InvalidError):
            self.session.matmul_tensors(x, w)
        with self.assertRaises(errors.InvalidError):
            self.session.matmul_tensors(x.astype(np.float32), x.astype(np.float32))
        with self.assertRaises(errors.InvalidError):
            self.session.matmul_tensors(x, x, add=True)


class Weights(Served):
    def test_a_file_by_path_descriptor_and_file(self):
        path = self.daemon.folder / "model.safetensors"
        write_safetensors(path, {"a": ("F32", random(20, 40, 48)), "b": ("F16", random(21, 8, 16).astype(np.float16))})
        told = []
        info = self.session.load(
            path, tensor="a", name="file.a", format="int2", method="least-squares", progress=lambda *at: told.append(at)
        )
        self.assertEqual(
            (info.name, info.n, info.k, info.format, info.scale), ("file.a", 40, 48, Format.INT2, Scale.GROUP)
        )
        with open(path, "rb") as file:
            self.session.load(file, tensor="b", name="file.b", format="fp8")
            self.assertTrue(self.session.load(file.fileno(), tensor="b", name="file.c", format="fp8").shared)
        self.assertEqual([one.name for one in self.session.weights("file.*")], ["file.a", "file.b", "file.c"])
        self.assertEqual(self.session.stat("file.c").references, 2)
        self.assertEqual(self.session.unload("file.c"), 0)
        self.assertGreater(self.session.unload("file.b"), 0)

    def test_formats_of_arrays(self):
        codes = np.random.default_rng(22).integers(0, 256, (16, 32), dtype=np.uint8)
        codes[codes & 0x7F == 0x7F] = 0  # e4m3's NaN
        with self.assertRaisesRegex(gemmclient.InvalidError, "name it"):
            self.session.load_array(codes, name="codes", format="fp8")
        with self.assertRaisesRegex(gemmclient.InvalidError, r"\[n, k\]"):
            self.session.load_array(codes[0], name="codes", format="fp8", element="e4m3")
        info = self.session.load_array(random(23, 5, 7).T, name="ragged", format="bf16")
        self.assertEqual((info.n, info.k, info.format), (7, 5, Format.BF16))

    def test_names_stand_for_content(self):
        self.session.load_array(random(24, 8, 8), name="name", format="int8")
        with self.assertRaises(gemmclient.ExistsError):
            self.session.load_array(random(25, 8, 8), name="name", format="int8")
        self.session.load_array(random(25, 8, 8), name="name", format="int8", replace=True)

    def test_handles_go_with_their_object(self):
        self.session.load_array(random(26, 8, 8), name="short", format="int8")
        weight = self.session.open("short")
        self.assertEqual(self.session.unload("short"), 0)  # open
        del weight
        gc.collect()
        self.assertEqual([one.name for one in self.session.weights("short")], [])
        with self.assertRaises(gemmclient.NotFoundError):
            self.session.open("short")
        with self.session.open("int8") as weight:
            pass
        with self.assertRaises(gemmclient.WrongStateError):
            weight.matmul(random(27, 1, K))

    def test_status(self):
        self.assertLessEqual({Format.INT8, Format.FP8, Format.BF16, Format.INT4}, set(self.session.formats()))
        status = self.session.status()
        self.assertEqual((status.pid, len(status.devices)), (self.daemon.process.pid, 1))
        self.assertEqual(status.devices[0].state, "ready")
        self.assertLess(self.session.ping(), PATIENCE_S)


class Refusals(Served):
    def test_sentences_name_field_and_value(self):
        weight = self.session.open("int8")
        x = self.session.array(random(30, 2, K))
        for call, sentence in (
            (lambda: weight.matmul(x[:, 1:]), "x must have 80 columns"),
            (lambda: weight.matmul(x, bias=random(31, N + 1)), "bias must have shape"),
            (lambda: weight.matmul(x, out=np.empty((2, N), np.float32)), "out must lie in"),
            (lambda: weight.matmul(x, out=self.session.empty((3, N))), "out must have shape"),
            (lambda: weight.matmul(x, out=self.session.empty((N, 2)).T), "contiguous"),
            (lambda: weight.matmul(x.astype(np.float64)), "float64"),
            (lambda: weight.matmul(x, x_type="f16"), "f16 cannot be an array of float32"),
            (lambda: weight.matmul(x, y_type="f64"), "f64"),
            (lambda: weight.matmul(self.session.empty((0, K))), "M must be"),
            (lambda: weight.matmul(x, x_scale=random(32, 2).astype(np.float16)), "x_scale must be float32"),
            (lambda: self.session.load("/nonexistent", tensor="t", name="n", format="int3"), "format must be one of"),
            (lambda: gemmclient.connect(self.daemon.socket, entries=3), "3"),
        ):
            with self.assertRaises((gemmclient.InvalidError, TypeError), msg=sentence) as caught:
                call()
            self.assertIn(sentence, str(caught.exception))

    def test_python_kinds_of_errors(self):
        with self.assertRaises(LookupError):
            self.session.stat("nothing")
        with self.assertRaises(MemoryError):
            self.session.empty(1 << 30)
        with self.assertRaises(gemmclient.NotFoundError):
            self.session.load("/nonexistent", tensor="t", name="n", format="int8")
        with self.assertRaises(gemmclient.DisconnectedError):
            gemmclient.connect(self.daemon.socket + "x")


class Memory(Served):
    def test_arrays_give_their_memory_back(self):
        for i in range(64):  # 64 MiB through an arena of 4
            self.session.empty(1 << 18)[0] = i

    def test_views_keep_memory(self):
        view = self.session.empty((3, 1 << 18))[1, 5:9]
        view[:] = 7
        with self.assertRaises(gemmclient.OutOfMemoryError):
            self.session.empty((2, 1 << 18))
        np.testing.assert_array_equal(view, 7)

    def test_arrays_outlive_their_session(self):
        y = self.session.open("int8").matmul(random(40, 2, K))
        self.session.close()
        self.assertTrue(self.session.closed)
        self.assertLess(worst_row(y, int8_product(random(40, 2, K), self.w)), 1e-6)
        with self.assertRaises(gemmclient.DisconnectedError):
            self.session.empty(1)
        with gemmclient.connect(self.daemon.socket) as other:
            sessions = other.status().sessions
            del y
            gc.collect()
            # The daemon takes goodbyes and questions in the order in which they come, but from different sockets.
            while other.status().sessions == sessions:
                pass

    def test_what_is_in_flight_keeps_its_tensors(self):
        weight = self.session.open("int8")
        worker = self.stopped_worker()
        weight.submit(random(41, 1024, K))
        del weight
        gc.collect()
        self.assertEqual(self.session._core.blocks, 2)
        os.kill(worker, signal.SIGCONT)
        while self.session._core.pending:
            self.session.dispatch(1.0)
        gc.collect()
        self.assertEqual(self.session._core.blocks, 0)


class Faults(Served):
    def test_a_wait_with_a_limit(self):
        x = random(50, 2, K)
        weight = self.session.open("int8")
        pid = self.stopped_worker()
        pending = weight.submit(x)
        with self.assertRaises(TimeoutError):
            pending.wait(timeout=0.01)
        self.assertFalse(pending.done)
        os.kill(pid, signal.SIGCONT)
        self.assertLess(worst_row(pending.wait(), int8_product(x, self.w)), 1e-6)

    def test_a_signal_interrupts_a_wait(self):
        class Interrupted(Exception):
            pass

        def handler(*_):
            raise Interrupted

        weight = self.session.open("int8")
        pid = self.stopped_worker()
        old = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        pending = weight.submit(random(51, 2, K))
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with self.assertRaises(Interrupted):
            pending.wait()
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(pending.wait().shape, (2, N))

    def test_what_has_not_begun_is_cancelled(self):
        x = random(56, 2, K)
        weight = self.session.open("int8")
        pid = self.stopped_worker()
        pending, other = weight.submit(x), weight.submit(x, priority="background")
        pending.cancel()
        os.kill(pid, signal.SIGCONT)
        self.assertLess(worst_row(other.wait(), int8_product(x, self.w)), 1e-6)
        try:
            # It may have begun before the worker read the asking.
            self.assertLess(worst_row(pending.wait(), int8_product(x, self.w)), 1e-6)
        except gemmclient.CancelledError as error:
            self.assertEqual(error.name, "CANCELLED")
        pending.cancel()  # over: nothing to do

    def test_a_deadline(self):
        weight = self.session.open("int8")
        pid = self.stopped_worker()
        pending = weight.submit(random(57, 2, K), deadline=0.001)
        with self.assertRaisesRegex(gemmclient.TimedOutError, "within"):
            pending.wait(timeout=0.01)  # so that the deadline has passed
        os.kill(pid, signal.SIGCONT)
        with self.assertRaises(gemmclient.TimedOutError):
            pending.wait()
        self.assertTrue(pending.done)
        for wrong in (-1, 1e9):
            with self.assertRaisesRegex(gemmclient.InvalidError, "deadline"):
                weight.submit(random(57, 2, K), deadline=wrong)

    def test_all_entries_in_flight(self):
        session = gemmclient.connect(self.daemon.socket, entries=2)
        self.addCleanup(session.close)
        weight = session.open("int8")
        pid = self.stopped_worker()
        pending = [weight.submit(random(52, 2, K)) for _ in range(2)]
        with self.assertRaises(gemmclient.BusyError) as caught:
            weight.submit(random(52, 2, K))
        self.assertTrue(caught.exception.retryable)
        os.kill(pid, signal.SIGCONT)
        pending[1].wait()
        pending[0].wait()
        weight.matmul(random(52, 2, K))

    def test_a_worker_that_is_killed(self):
        x = random(53, 8, K)
        weight = self.session.open("int8")
        for _ in range(3):
            pid = self.worker()
            stop(pid)
            pending = [weight.submit(x) for _ in range(4)]
            os.kill(pid, signal.SIGKILL)
            for one in pending:
                self.assertLess(worst_row(one.wait(PATIENCE_S), int8_product(x, self.w)), 1e-6)

    def test_a_daemon_that_is_gone(self):
        with Daemon() as daemon:
            session = gemmclient.connect(daemon.socket, reconnect=0)
            session.load_array(self.w, name="w", format="int8")
            weight = session.open("w")
            worker = session.status().devices[0].pid
            stop(worker)
            pending = weight.submit(random(54, 2, K))
            daemon.kill()
            kill_orphan(worker)
            with self.assertRaises(gemmclient.DisconnectedError):
                pending.wait()
            with self.assertRaises(gemmclient.DisconnectedError):
                session.ping()
            session.close()
            daemon.start()
            with gemmclient.connect(daemon.socket) as again:
                self.assertEqual(again.weights(), [])

    def test_a_fork_connects_anew(self):
        array = self.session.array(random(55, 2, K))
        child = os.fork()
        if child == 0:
            try:
                self.session.ping()
            except gemmclient.WrongStateError:
                del array
                self.session.close()
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(self.session.open("int8").matmul(array).shape, (2, N))


class Embedded(unittest.TestCase):
    def test_a_daemon_of_its_own(self):
        with gemmclient.connect("embedded:") as session:
            session.load_array(random(60, N, K), name="w", format="int8")
            daemon = session.status().pid
            y = session.open("w").matmul(random(61, 4, K))
            self.assertLess(worst_row(y, int8_product(random(61, 4, K), random(60, N, K))), 1e-6)
            del y
        with self.assertRaises(ProcessLookupError):
            os.kill(daemon, 0)


class OwnMemory(Served):
    """x and y in a memfd that gemmd maps; on a GPU its own device memory, which tests/python/test_torch.py uses."""

    def setUp(self):
        super().setUp()
        if self.session.status().backend != "cpu":
            self.skipTest("a memfd is for the CPU backend")
        self.weight = self.open("own", random(1, 96, 160))

    def open(self, name, values):
        self.session.load_array(values, name=name, format="int8")
        return self.session.open(name)

    def test_a_weight_is_taken_out_of_it(self):
        memory = gemmclient.SharedMemory(self.session, 1 << 20)
        values = np.random.default_rng(3).standard_normal((96, 160), dtype=np.float32)
        rows = memory.rows(4096, 96, 160, "f32")
        np.asarray(rows)[...] = values
        for format in ("int8", "fp8", "int2", "f16"):
            taken = self.session.take(rows, name=f"taken.{format}", format=format)
            loaded = self.session.load_array(values, name=f"loaded.{format}", format=format)
            self.assertEqual((taken.n, taken.k, taken.hash), (96, 160, loaded.hash))
        with self.assertRaises(gemmclient.ExistsError):
            self.session.take(memory.rows(0, 96, 160, "f32"), name="taken.int8", format="int8")
        with self.assertRaisesRegex(gemmclient.InvalidError, "type"):
            self.session.take(memory.rows(0, 96, 160, "int8"), name="taken", format="int8")

    def test_products_where_the_rows_lie(self):
        memory = gemmclient.SharedMemory(self.session, 1 << 20)
        x, y = memory.rows(64, 5, 160, "f32"), memory.rows(512 << 10, 5, 96, "f32")
        values, bias = random(2, 5, 160), random(3, 96)
        np.asarray(x)[:] = values
        self.assertIs(self.weight.submit_rows(x, y, bias=bias).wait(), y)
        np.testing.assert_array_equal(np.asarray(y), self.weight.matmul(values, bias=bias))

    def test_a_descriptor_of_the_callers(self):
        fd = os.memfd_create("rows", os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, fd)
        os.truncate(fd, 1 << 20)
        with self.assertRaisesRegex(gemmclient.BadDescriptorError, "seal"):
            gemmclient.SharedMemory(self.session, fd=fd)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        memory = gemmclient.SharedMemory(self.session, fd=fd)
        x, y = memory.rows(0, 1, 160, "f16"), memory.rows(4096, 1, 96, "bf16")
        os.pwrite(fd, random(2, 1, 160).astype(np.float16).tobytes(), 0)
        self.weight.submit_rows(x, y).wait()
        expected = self.weight.matmul(np.asarray(x), y_type="bf16")
        self.assertEqual(os.pread(fd, 192, 4096), expected.tobytes())

    def test_it_lives_as_long_as_what_refers_to_it(self):
        with gemmclient.connect(self.daemon.socket) as session:
            rows = np.asarray(gemmclient.SharedMemory(session, 4096).rows(0, 2, 8, "f32"))
            rows[:] = 7
        self.assertEqual(rows.sum(), 112)
        count = self.session._core.blocks
        memory = gemmclient.SharedMemory(self.session, 4096)
        self.assertEqual(self.session._core.blocks, count + 1)
        del memory
        gc.collect()
        self.assertEqual(self.session._core.blocks, count)

    def test_the_collector_takes_a_session_and_its_memory_at_once(self):
        for order in (1, -1):
            session = gemmclient.connect(self.daemon.socket)
            core = weakref.ref(session._core)
            ring = [session, session.empty(100), gemmclient.SharedMemory(session, 4096), session.open("own")][::order]
            ring.append(ring)
            before = self.sessions()
            del session, ring
            gc.collect()
            self.assertIsNone(core())
            while self.sessions() >= before:  # until gemmd has seen it
                pass

    def sessions(self):
        return self.session.status().sessions

    def test_a_session_that_closes_under_a_product(self):
        session = gemmclient.connect(self.daemon.socket)
        weight = session.open("own")
        memory = gemmclient.SharedMemory(session, 1 << 20)
        worker = session.status().devices[0].pid
        stop(worker)  # nothing is finished until a successor does it
        pending = weight.submit_rows(memory.rows(0, 3, 160, "f32"), memory.rows(8192, 3, 96, "f32"))
        os.kill(worker, signal.SIGKILL)
        session.close()
        with self.assertRaises(gemmclient.DisconnectedError):
            pending.wait()
        del memory, pending, weight
        gc.collect()
        self.assertTrue(session._core.session == gemmclient._library.ffi.NULL)

    def test_refusals(self):
        memory = gemmclient.SharedMemory(self.session, 4096)
        for at, rows in ((8, 1), (-16, 1), (4096, 1), (0, 7)):
            with self.assertRaisesRegex(gemmclient.InvalidError, "do not lie in memory of 4096 bytes"):
                memory.rows(at, rows, 160, "f32")
        x, y = memory.rows(0, 1, 160, "f32"), memory.rows(1024, 1, 96, "f32")
        with self.assertRaisesRegex(gemmclient.InvalidError, r"are asked for, got \(1, 96\) and \(1, 160\)"):
            self.weight.submit_rows(y, x)
        with self.assertRaisesRegex(gemmclient.InvalidError, "bias must be float32 of shape"):
            self.weight.submit_rows(x, y, bias=np.zeros(95, np.float32))
        with self.assertRaises(gemmclient.UnsupportedError):  # no library, or no driver
            gemmclient.CudaMemory(self.session, 4096)


if __name__ == "__main__":
    unittest.main(verbosity=2)
