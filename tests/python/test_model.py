#!/usr/bin/python3
"""A real model end to end: embeddings of all-MiniLM-L6-v2 with all linear layers in gemmd, near those of f32; weights
that two processes share, and that nobody reads again. The model's folder is $GEMMD_TEST_MODEL."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import BUILD, PATIENCE_S, ROOT, Daemon

sys.path.insert(0, str(ROOT / "client/python/examples"))
try:
    import sentences
    import torch
except ImportError as error:
    raise SystemExit(f"test_model.py needs torch and transformers ({error}); make test-torch brings them") from None

import gemmclient

FILES = ["README.md", "kernels/cuda/NOTES.md", "proto/PROTOCOL.md", "client/python/README.md", "CHANGELOG.md", "LICENSE"]
LAYERS = 36
MODEL = os.environ.get("GEMMD_TEST_MODEL", str(ROOT / ".cache/all-MiniLM-L6-v2"))


class Model(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        texts = sentences.read_sentences([str(ROOT / file) for file in FILES])
        cls.texts, cls.rest = texts[:200], texts[200:]
        cls.expected = sentences.Embedder(MODEL).embed(cls.texts)

    def setUp(self):
        self.session = gemmclient.connect(self.daemon.socket)
        self.addCleanup(self.session.close)

    def loads(self) -> int:
        return self.daemon.log().count('loaded "')

    def test_embeddings_are_near_those_of_f32(self):
        self.assertEqual(len(self.texts), 200)
        for format in ("int8", "fp8"):
            embedder, layers = sentences.served(MODEL, self.session, format)
            self.assertEqual(layers, LAYERS)
            cosine = (embedder.embed(self.texts) * self.expected).sum(1)
            self.assertGreater(float(cosine.mean()), 0.995, format)
            self.assertGreater(float(cosine.min()), 0.98, format)

    def test_gptq_is_nearer_than_rounding(self):
        with tempfile.TemporaryDirectory() as work:
            gemmctl = str(BUILD / "gemmctl")
            codes, line = sentences.quantize(MODEL, gemmctl, self.rest[:120], self.texts[:60], Path(work))
            self.assertRegex(line, f"lower in {LAYERS}$")

            def mean(quantized):
                embedder, layers = sentences.served(MODEL, self.session, "int2", quantized=quantized)
                self.assertEqual(layers, LAYERS)
                return float((embedder.embed(self.texts) * self.expected).sum(1).mean())

            rounded, gptq = mean(None), mean(codes)
            self.assertGreater(gptq, rounded + 0.1)
            loads = self.loads()
            self.assertEqual(mean(codes), gptq)
            self.assertEqual(self.loads(), loads)  # the file's weights were known by their content

    def test_processes_share_one_copy_and_a_restart_reads_nothing(self):
        embedder, _ = sentences.served(MODEL, self.session, "int8")
        mine = embedder.embed(self.texts[:8])
        weight_bytes, loads = self.session.status().weight_bytes, self.loads()
        for _ in range(2):  # a second process, and the same one started anew
            output = subprocess.run(
                [sys.executable, "-c", OTHER, MODEL, self.daemon.socket, *self.texts[:8]],
                stdout=subprocess.PIPE, timeout=PATIENCE_S, check=True, text=True,
            ).stdout  # fmt: skip
            theirs = torch.tensor([float.fromhex(number) for number in output.split()]).reshape(mine.shape)
            self.assertTrue(torch.equal(theirs, mine))
            self.assertEqual((self.session.status().weight_bytes, self.loads()), (weight_bytes, loads))

    def test_a_worker_that_dies_is_a_pause(self):
        embedder, _ = sentences.served(MODEL, self.session, "int8")
        mine = embedder.embed(self.texts[:8])
        loads = self.loads()
        worker = self.session.status().devices[0].pid
        os.kill(worker, signal.SIGKILL)
        self.assertTrue(torch.equal(embedder.embed(self.texts[:8]), mine))
        self.assertNotEqual(self.session.status().devices[0].pid, worker)
        self.assertEqual(self.loads(), loads)


OTHER = """
import sys
import gemmclient, sentences
model, socket, *texts = sys.argv[1:]
with gemmclient.connect(socket) as session:
    embedder, _ = sentences.served(model, session, "int8")
    print(*(value.hex() for row in embedder.embed(texts).tolist() for value in row))
"""

os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT / "client/python"), str(ROOT / "client/python/examples")))

if __name__ == "__main__":
    unittest.main(verbosity=2)
