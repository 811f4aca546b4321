#!/usr/bin/python3
"""client/python/trirun_to_safetensors.py: a checkpoint to a file that gemmd loads, and what it refuses."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np
from support import ROOT, Daemon, worst_row

try:
    import torch
except ImportError:
    raise SystemExit("test_trirun.py needs torch; make test-torch brings it") from None

import gemmclient
import gemmclient.torch

SCRIPT = ROOT / "client" / "python" / "trirun_to_safetensors.py"
sys.path.insert(0, str(SCRIPT.parent))
import trirun_to_safetensors  # noqa: E402
K, N = 256, 512


def packed(codes):
    """B of codes [K, N] in the steps of TriRun's own packer."""
    order = []
    for lane in range(32):
        for tile in range(4):
            for block in range(2):
                for row in (0, 1, 8, 9):
                    order.append(256 * tile + 16 * (2 * (lane % 4) + row) + lane // 4 + 8 * block)
    order = np.array(order).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(-1, 2, 8).transpose(0, 2, 1).ravel()
    tiles = codes.reshape(K // 16, 16, N // 16, 16).transpose(0, 2, 1, 3).reshape(K // 16, -1, 1024)[:, :, order]
    words = tiles.reshape(K // 16, N, 16).astype(np.uint32) << (2 * np.arange(16, dtype=np.uint32))
    return np.bitwise_or.reduce(words, axis=2).view(np.int32)


class Loud:
    """What a hostile checkpoint holds: something to be called when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Script(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        self.source, self.target = self.daemon.folder / "model.pt", self.daemon.folder / "model.safetensors"

    def refused(self, state, reason):
        torch.save(state, self.source)
        with self.assertRaisesRegex(Exception, reason):
            trirun_to_safetensors.convert(self.source, self.target)
        self.assertFalse(self.target.exists())

    def test_a_layer_computes_what_was_packed(self):
        rng = np.random.default_rng(1)
        codes, scales = rng.integers(0, 4, (K, N)), rng.uniform(0.5, 1.0, (K // 128, N)).astype(np.float16)
        shuffled = scales.reshape(-1, 8, 8).transpose(0, 2, 1).reshape(scales.shape)
        layer = {"B": torch.tensor(packed(codes)), "s": torch.tensor(shuffled)}
        self.addCleanup(self.target.unlink)
        torch.save({"model": {"up": layer}, "norm": torch.ones(3, dtype=torch.bfloat16), "step": 7}, self.source)
        command = [sys.executable, str(SCRIPT), str(self.source), str(self.target)]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "model.up.B\n"), done.stderr)
        reference = (codes - 1) * np.repeat(scales, 128, axis=0).astype(np.float64)
        x = rng.standard_normal((5, K)).astype(np.float32)
        with gemmclient.connect(self.daemon.socket) as session:
            session.load(str(self.target), tensor="model.up.B", name="up", format="int2")
            y = session.open("up").matmul(x)
            self.assertLess(worst_row(np.array(y), x.astype(np.float64) @ reference), 3e-4)

    def test_layers_of_a_model_are_replaced(self):
        rng = np.random.default_rng(2)
        codes, scales = rng.integers(0, 4, (K, N)), rng.uniform(0.5, 1.0, (K // 128, N)).astype(np.float16)
        shuffled = scales.reshape(-1, 8, 8).transpose(0, 2, 1).reshape(scales.shape)
        torch.save({"up": {"B": torch.tensor(packed(codes)), "s": torch.tensor(shuffled)}}, self.source)
        trirun_to_safetensors.convert(self.source, self.target)
        self.addCleanup(self.target.unlink)
        model = torch.nn.Sequential()
        model.add_module("up", torch.nn.Linear(K, N))
        x, bias = torch.from_numpy(rng.standard_normal((5, K)).astype(np.float32)), model.up.bias.detach().numpy()
        with gemmclient.connect(self.daemon.socket) as session:
            replaced = gemmclient.torch.replace_linear(model, "int2", session=session, quantized=self.target)
            self.assertEqual(replaced, ["up"])
            y = model(x).detach().numpy()
        reference = (codes - 1) * np.repeat(scales, 128, axis=0).astype(np.float64)
        self.assertLess(worst_row(y, x.numpy().astype(np.float64) @ reference + bias), 3e-4)

    def test_refusals(self):
        b = torch.zeros(K // 16, N, dtype=torch.int32)
        self.refused({"up.qweight": b}, "has no layer of TriRun")
        self.refused({"up.B": b, "up.s": torch.zeros(2, N)}, "has no layer of TriRun")  # scales of another type
        self.refused([b], "holds list")
        self.refused({"up": {"B": b}, "up.B": b}, "two tensors are named up.B")

    def test_nothing_of_anybodys_is_overwritten(self):
        layer = {"B": torch.zeros(K // 16, N, dtype=torch.int32), "s": torch.zeros(1, N, dtype=torch.float16)}
        torch.save(layer, self.source)
        before = self.source.read_bytes()
        with self.assertRaisesRegex(ValueError, "is read, and would be overwritten"):
            trirun_to_safetensors.convert(self.source, self.source)
        self.assertEqual(self.source.read_bytes(), before)
        part = self.target.with_name(self.target.name + ".part")
        part.write_text("somebody's")
        self.addCleanup(part.unlink)
        with self.assertRaises(FileExistsError):
            trirun_to_safetensors.convert(self.source, self.target)
        self.assertEqual(part.read_text(), "somebody's")

    def test_nothing_in_a_checkpoint_is_executed(self):
        trap = Path(self.daemon.folder) / "executed"
        self.refused({"up.B": Loud(str(trap))}, "mkdir")
        self.assertFalse(trap.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
