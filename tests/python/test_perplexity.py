#!/usr/bin/python3
"""examples/perplexity.py over a small language model that is trained here, on bytes of the project's own pages."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import ROOT, Daemon

STEPS, WINDOW, BATCH = 200, 32, 16


def train(folder):
    """A few layers, until they know more of the text than how often each byte comes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    torch.set_num_threads(1)
    text = b"".join((ROOT / page).read_bytes() for page in ("README.md", "proto/NUMERICS.md", "client/ctl/MODELS.md"))
    tokens = torch.tensor(list(text))
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=WINDOW))  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        begins = torch.randint(0, len(tokens) - WINDOW, (BATCH,))
        batch = torch.stack([tokens[i : i + WINDOW] for i in begins])
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    (folder / "text").write_bytes(text[:2048])


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "transformers is not installed")
class Perplexity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="gemmd-perplexity-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        train(cls.folder)
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def measure(self, *options):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, ROOT / "client/python/examples/perplexity.py", "--model", self.folder, "--text", self.folder / "text",
                   "--window", str(WINDOW), "--socket", self.daemon.socket, "--json", *options]  # fmt: skip
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        return json.loads(said)

    def test_formats_cost_what_they_round(self):
        """The model knows the text; 8 bits lose next to nothing, 2 bits much, and what is searched less than ternary."""
        said = self.measure("--format", "int8", "--format", "fp8", "--format", "int2", "--format", "int2,ternary")
        self.assertLess(said["before"], 20)  # bytes of English, of which a model that knows nothing has 256
        self.assertEqual({one["layers"] for one in said["after"]}, {8})
        ratio = {one["format"]: one["perplexity"] / said["before"] for one in said["after"]}
        self.assertLess(abs(ratio["int8"] - 1), 0.02)
        self.assertLess(abs(ratio["fp8"] - 1), 0.03)
        self.assertGreater(ratio["int2"], 1.05)
        self.assertGreater(ratio["int2,ternary"], ratio["int2"])


if __name__ == "__main__":
    unittest.main()
