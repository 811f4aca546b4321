#!/usr/bin/python3
"""client/triton/repository.py against a real gemmd; test_triton.py has Triton read what it writes."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import ROOT, Daemon, random

import gemmclient

SCRIPT = ROOT / "client/triton/repository.py"


class Repository(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        with gemmclient.connect(cls.daemon.socket) as session:
            session.load_array(random(1, 48, 64), name="llama/mlp.up", format="int8")
            session.load_array(random(2, 16, 32), name='odd "name"', format="bf16")
            session.load_array(random(3, 2, 16, 32), name="experts", format="bf16")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name, "models")

    def make(self, *options, fails=False):
        command = [sys.executable, SCRIPT, self.folder, "--socket", self.daemon.socket, *options]
        path = {"PYTHONPATH": str(ROOT / "client/python")}
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **path})
        self.assertEqual(done.returncode != 0, fails, done.stderr)
        return done.stdout + done.stderr

    def test_a_model_for_each_weight_that_is_one_product(self):
        self.assertRegex(self.make(), "^2 models")
        self.assertEqual(sorted(one.name for one in self.folder.iterdir()), ["llama_mlp.up", "odd__name_"])
        text = (self.folder / "llama_mlp.up/config.pbtxt").read_text()
        self.assertIn("dims: [64]", text.splitlines()[2])
        self.assertIn("dims: [48]", text.splitlines()[3])
        self.assertIn('string_value: "llama/mlp.up"', text)
        self.assertIn(f'string_value: "{self.daemon.socket}"', text)
        self.assertTrue((self.folder / "llama_mlp.up/1").is_dir())
        self.assertIn(r'"odd \042name\042"', (self.folder / "odd__name_/config.pbtxt").read_text())

    def test_pattern_and_type(self):
        self.make("--pattern", "llama/*", "--type", "bf16", "--batch", "7")
        [model] = self.folder.iterdir()
        text = (model / "config.pbtxt").read_text()
        self.assertEqual(len(re.findall("TYPE_BF16", text)), 2)
        self.assertIn("max_batch_size: 7\n", text)

    def test_what_is_there_stays(self):
        self.make("--pattern", "llama/*")
        text = (self.folder / "llama_mlp.up/config.pbtxt").read_text()
        self.assertIn("is there already", self.make("--pattern", "llama/*", "--batch", "9", fails=True))
        self.assertEqual((self.folder / "llama_mlp.up/config.pbtxt").read_text(), text)
        self.make("--pattern", "llama/*", "--batch", "9", "--replace")
        self.assertIn("max_batch_size: 9\n", (self.folder / "llama_mlp.up/config.pbtxt").read_text())

    def test_names_that_would_be_one(self):
        with gemmclient.connect(self.daemon.socket) as session:
            for name in ("twice/a", "twice:a"):
                session.load_array(random(4, 16, 32), name=name, format="bf16")
            self.assertIn("twice_a", self.make("--pattern", "twice?a", fails=True))
            self.assertFalse(self.folder.exists())
            for name in ("twice/a", "twice:a"):
                session.unload(name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
