#!/usr/bin/python3
"""gemmctl quantize: what it writes is loaded and computes what it says; what it refuses."""

import json
import os
import signal
import subprocess
import unittest

import numpy as np
from support import BUILD, Daemon, random, worst_row, write_safetensors

import gemmclient

N, K, ROWS = 40, 300, 600


def activations(seed, rows=ROWS):
    """Columns that hang together, as those of a layer's input do."""
    return (random(seed, rows, 20) @ random(7, 20, K) + 0.3 * random(seed + 1, rows, K)).astype(np.float32)


def values_of(codes, scales):
    """The weight that codes, [n, k/4] of 2 bits or [n, k] of int8, and scales [n, groups] or [n, 1] stand for."""
    if codes.dtype == np.int8:
        return codes.astype(np.float64) * scales
    if codes.dtype == np.uint16:
        plain = (codes[:, :, None] >> np.array([0, 4, 8, 12], np.uint16) & 15).reshape(len(codes), -1).astype(np.float64) - 8
        width = 128 if scales.shape[1] > 1 else plain.shape[1]
        return plain * np.repeat(scales.astype(np.float64), width, axis=1)[:, : plain.shape[1]]
    plain = (codes[:, :, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(len(codes), -1).astype(np.float64) - 1
    width = 128 if scales.shape[1] > 1 else plain.shape[1]
    return plain * np.repeat(scales.astype(np.float64), width, axis=1)[:, : plain.shape[1]]


def read_safetensors(path):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    types = {"U8": np.uint8, "U16": np.uint16, "F16": np.float16, "I8": np.int8, "F32": np.float32}
    tensors = {}
    for name, about in json.loads(raw[8 : 8 + length]).items():
        begin, end = (8 + length + offset for offset in about["data_offsets"])
        tensors[name] = np.frombuffer(raw[begin:end], types[about["dtype"]]).reshape(about["shape"])
    return tensors


def output_error(x, w, q):
    return np.linalg.norm(x.astype(np.float64) @ (w - q).T) / np.linalg.norm(x.astype(np.float64) @ w.T)


class Quantize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = cls.daemon.folder
        cls.weights = {name: random(seed, N, K) for name, seed in (("a.weight", 1), ("b.weight", 2), ("c.weight", 3))}
        cls.rows = {"a.weight": activations(10), "b.weight": activations(20)}
        cls.unseen = {"a.weight": activations(30, 90), "b.weight": activations(40, 90)}
        cls.write("model", {**cls.weights, "bias": random(4, N)})
        cls.write("rows", cls.rows)
        cls.write("unseen", cls.unseen)

    @classmethod
    def path(cls, name):
        return cls.folder / f"{name}.safetensors"

    @classmethod
    def write(cls, name, arrays):
        types = {"float32": "F32", "float16": "F16", "uint8": "U8"}
        write_safetensors(cls.path(name), {key: (types[array.dtype.name], array) for key, array in arrays.items()})

    def run_it(self, *options, model="model", output="int2", format="int2"):
        command = [BUILD / "gemmctl", "quantize", self.path(model), "--format", format, "--output", self.path(output)]
        self.addCleanup(self.path(output).unlink, missing_ok=True)
        done = subprocess.run([str(word) for word in (*command, *options)], capture_output=True, text=True, timeout=60)
        self.assertEqual(list(self.folder.glob("*.part.*")), [])
        return done

    def made(self, *options, **names):
        done = self.run_it("--json", *options, **names)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {each["name"]: each for each in json.loads(done.stdout)["tensors"]}

    def refused(self, reason, *options, code=1, **names):
        done = self.run_it(*options, **names)
        self.assertEqual(done.returncode, code, done.stdout)
        self.assertIn(reason, done.stderr)
        self.assertFalse(self.path(names.get("output", "int2")).exists())

    def test_gptq_is_nearer_than_rounding_and_says_by_how_much(self):
        report = self.made("--calibration", self.path("rows"), "--evaluate", self.path("unseen"))
        self.assertEqual(list(report), ["a.weight", "b.weight"])
        tensors = read_safetensors(self.path("int2"))
        self.assertEqual(set(tensors), {"a.weight", "a.weight_scale", "b.weight", "b.weight_scale"})
        for name, each in report.items():
            self.assertEqual((each["n"], each["k"], each["rows"]), (N, K, 90))
            self.assertLess(each["gptq"], 0.7 * each["rounded"])
            q = values_of(tensors[name], tensors[f"{name}_scale"])
            self.assertAlmostEqual(each["gptq"], output_error(self.unseen[name], self.weights[name], q), places=9)

    def test_gemmd_computes_with_the_file(self):
        self.made("--calibration", self.path("rows"))
        tensors = read_safetensors(self.path("int2"))
        x = activations(50, 7)
        with gemmclient.connect(self.daemon.socket) as session:
            for name in self.rows:
                session.load(self.path("int2"), tensor=name, name=name, format="int2")
                y = np.array(session.open(name).matmul(x))
                q = values_of(tensors[name], tensors[f"{name}_scale"])
                self.assertLess(worst_row(y, x.astype(np.float64) @ q.T), 3e-4)

    def test_int8_and_a_scale_a_row(self):
        """Nearer than rounding on rows that were not seen, as it says; loaded as it is; and rounding is the loader's."""
        x = activations(50, 7)
        for format, *scale in (("int8",), ("int8", "--scale", "row"), ("int2", "--scale", "row"), ("int4", "--scale", "row")):
            with self.subTest(format=format, scale=scale), gemmclient.connect(self.daemon.socket) as session:
                report = self.made("--calibration", self.path("rows"), "--evaluate", self.path("unseen"), *scale, format=format)
                tensors = read_safetensors(self.path("int2"))
                for name, each in report.items():
                    self.assertLess(each["gptq"], 0.8 * each["rounded"])
                    self.assertEqual(tensors[f"{name}_scale"].shape, (N, 1))
                    q = values_of(tensors[name], tensors[f"{name}_scale"])
                    self.assertAlmostEqual(each["gptq"], output_error(self.unseen[name], self.weights[name], q), places=9)
                info = session.load(self.path("int2"), tensor="a.weight", name="row", format=format)
                self.assertEqual(info.scale.name, "ROW")
                q = values_of(tensors["a.weight"], tensors["a.weight_scale"])
                y = np.array(session.open("row").matmul(x))
                self.assertLess(worst_row(y, x.astype(np.float64) @ q.T), 0.02 if format == "int8" else 3e-4)  # x is rounded
                self.made("--method", "round", *scale, format=format)
                here = session.load(self.path("int2"), tensor="c.weight", name="here", format=format)
                there = session.load(self.path("model"), tensor="c.weight", name="there", format=format, scale="row")
                self.assertEqual(here.hash, there.hash)
                for name in ("row", "here", "there"):
                    session.unload(name)

    def test_a_folder_takes_python(self):
        (self.folder / "folder").mkdir(exist_ok=True)
        command = [BUILD / "gemmctl", "quantize", self.folder / "folder", "--format", "int2", "--output", self.folder / "made"]
        for words, python, code, reason in (
            (("--method", "gptq"), "true", 2, "--method is for a file"),
            (("--evaluate", "rows"), "true", 2, "--evaluate is for a file"),
            (("--calibration", "text"), "/nowhere/python", 1, "/nowhere/python: No such file or directory; a model takes python3"),
        ):  # fmt: skip
            environment = {**os.environ, "GEMMD_PYTHON": python}
            done = subprocess.run(list(map(str, [*command, *words])), capture_output=True, text=True, env=environment)
            self.assertEqual(done.returncode, code)
            self.assertIn(reason, done.stderr)
        # what it becomes: the options of both, and this program for the layers
        environment["GEMMD_PYTHON"] = str(self.folder / "python")
        (self.folder / "python").write_text('#!/bin/sh\necho "$@" "$GEMMCTL"\n')
        (self.folder / "python").chmod(0o755)
        words = ["--calibration", "text", "--scale", "row", "--threads", "3", "--tensor", "a*", "--damping", "0.1", "--json"]
        done = subprocess.run([*map(str, command), *words], capture_output=True, text=True, env=environment)
        said = f"-m gemmclient.quantize {self.folder}/folder --format int2 --scale row --calibration text --output {self.folder}/made"
        said += f" --tensor a* --damping 0.1 --threads 3 --json {BUILD.resolve() / 'gemmctl'}"
        self.assertEqual(done.stdout.split(), said.split())

    def test_rounding_is_what_the_loader_does(self):
        report = self.made("--method", "round")
        self.assertEqual({name: set(each) for name, each in report.items()}, dict.fromkeys(self.weights, {"name", "n", "k", "rows"}))
        with gemmclient.connect(self.daemon.socket) as session:
            here = session.load(self.path("int2"), tensor="c.weight", name="here", format="int2")
            there = session.load(self.path("model"), tensor="c.weight", name="there", format="int2")
        self.assertEqual(here.hash, there.hash)
        report = self.made("--method", "round", "--evaluate", self.path("unseen"))
        gptq = self.made("--calibration", self.path("rows"), "--evaluate", self.path("unseen"))
        self.assertEqual(report["a.weight"]["rounded"], gptq["a.weight"]["rounded"])
        self.assertNotIn("gptq", report["a.weight"])

    def test_threads_and_half_precision_change_nothing_but_the_input(self):
        self.made("--calibration", self.path("rows"), "--threads", "1")
        one = self.path("int2").read_bytes()
        self.made("--calibration", self.path("rows"), "--threads", "3", output="three")
        self.assertEqual(one, self.path("three").read_bytes())
        halves = {name: w.astype(np.float16) for name, w in self.weights.items()}
        self.write("halves", halves)
        self.write("as_f32", {name: w.astype(np.float32) for name, w in halves.items()})
        self.made("--calibration", self.path("rows"), model="halves")
        half = self.path("int2").read_bytes()
        self.made("--calibration", self.path("rows"), model="as_f32")
        self.assertEqual(half, self.path("int2").read_bytes())

    def test_the_table(self):
        done = self.run_it("--calibration", self.path("rows"), "--tensor", "b.*")
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["TENSOR", "N", "K", "ROWS", "ROUNDED", "GPTQ"])
        self.assertEqual(lines[1].split()[:4], ["b.weight", str(N), str(K), str(ROWS)])
        self.assertEqual(len(lines), 2)

    def test_refusals(self):
        rows = ("--calibration", self.path("rows"))
        self.refused("--method gptq needs --calibration", code=2)
        self.refused("--format must be int2, int4 or int8", *rows, code=2, format="fp8")
        self.refused("--scale must be row", *rows, "--scale", "group", code=2, format="int8")
        self.refused("--scale must be row or group", *rows, "--scale", "one", code=2)
        self.refused("--damping must be", *rows, "--damping", "7", code=2)
        self.refused("none.safetensors: No such file", "--calibration", self.path("none"))
        self.refused("no matrix of F32, F16 or BF16 matches x.* (NOT_FOUND)", *rows, "--tensor", "x.*")
        self.refused("rows of activations [.., 300] are needed for tensor 'c.weight'", *rows, "--tensor", "c.*")
        self.refused("no regular file", "--calibration", self.folder)
        self.write("flat", {"bias": random(4, N)})
        self.refused("no matrix of F32, F16 or BF16 is in it (NOT_FOUND)", "--method", "round", model="flat")
        self.refused("no matrix of F32, F16 or BF16 has activations (NOT_FOUND)", *rows, model="flat")
        self.write("odd", {"a.weight": random(1, 4, 6)})
        self.refused("has 6 columns; codes are stored by fours", "--method", "round", model="odd")
        self.write("narrow", {"a.weight": random(1, 9, K - 4)})
        self.refused("rows of activations [.., 300] are needed", "--calibration", self.path("narrow"))
        broken = {"a.weight": self.weights["a.weight"].copy()}
        broken["a.weight"][3, 5] = np.nan
        self.write("broken", broken)
        self.refused("nan in row 3, column 5 must be within", *rows, model="broken")
        self.refused("nan in row 3, column 5 must be within", "--calibration", self.path("broken"))
        self.write("zero", {"a.weight": np.zeros((9, K), np.float32)})
        self.refused("the calibration rows are all zero", "--calibration", self.path("zero"))
        self.write("scales", {"a.weight": self.weights["a.weight"], "a.weight_scale": random(5, N, K)})
        self.refused("'a.weight_scale' would be the name of codes and of scales", "--method", "round", model="scales")
        (self.folder / "cut.safetensors").write_bytes(self.path("model").read_bytes()[:-1])
        self.refused("cut.safetensors: ", *rows, model="cut")

    def test_what_is_read_is_not_overwritten(self):
        rows = self.path("rows")
        for name in ("model", "rows"):
            before = self.path(name).read_bytes()
            command = [BUILD / "gemmctl", "quantize", self.path("model"), "--format", "int2", "--calibration", rows]
            command += ["--output", self.path(name)]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{name}.safetensors is read, and would be overwritten", done.stderr)
            self.assertEqual(self.path(name).read_bytes(), before)

    def test_no_file_of_anybody_is_taken_on_the_way(self):
        model = self.path("int2").with_suffix(".safetensors.part")
        model.write_bytes(self.path("model").read_bytes())
        self.addCleanup(model.unlink)
        command = [BUILD / "gemmctl", "quantize", model, "--format", "int2", "--calibration", self.path("rows")]
        self.addCleanup(self.path("int2").unlink)
        subprocess.run(list(map(str, [*command, "--output", self.path("int2")])), check=True, capture_output=True)
        self.assertEqual(model.read_bytes(), self.path("model").read_bytes())
        self.assertEqual(self.path("int2").stat().st_mode & 0o777, self.path("model").stat().st_mode & 0o777)

    def test_a_pipe_is_written_to(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
            self.made("--calibration", self.path("rows"), output="pipe")
            self.assertTrue(pipe.is_fifo())
            written = reader.read()
        self.made("--calibration", self.path("rows"))
        self.assertEqual(written, self.path("int2").read_bytes())

    def test_who_is_interrupted_leaves_nothing(self):
        many = {f"{i}.weight": random(i, 8, 1024) for i in range(12)}  # for each a matrix of 1024 x 1024 is inverted
        self.write("many", many)
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            command = [BUILD / "gemmctl", "quantize", self.path("many"), "--format", "int2", "--threads", "1"]
            command += ["--calibration", self.path("many"), "--output", self.path("ended")]
            heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs tests may have it ignored
            with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, preexec_fn=heard) as process:
                while process.poll() is None and not list(self.folder.glob("ended*.part.*")):
                    pass
                process.send_signal(ending)
            self.assertEqual(process.returncode, -ending)
            self.assertEqual(list(self.folder.glob("ended*")), [])

    def test_a_pipe_is_no_file_to_read(self):
        os.mkfifo(self.path("fifo"))
        self.refused("fifo.safetensors: no regular file", "--method", "round", model="fifo")

    @unittest.skipIf("thread" in BUILD.name, "ThreadSanitizer itself writes files")
    def test_a_disk_that_is_full(self):
        done = subprocess.run(
            ["bash", "-c", f"ulimit -f 1; trap '' XFSZ; exec {BUILD}/gemmctl quantize {self.path('model')} --format int2 "
             f"--calibration {self.path('rows')} --output {self.path('full')}"], capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(list(self.folder.glob("full*")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
