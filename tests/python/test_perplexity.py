#!/usr/bin/python3
"""examples/perplexity.py and `gemmctl quantize` over a small language model that is trained here, on bytes of the
project's own pages."""

import contextlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from support import BUILD, ROOT, Daemon

import gemmclient

STEPS, WINDOW, BATCH = 200, 32, 16


def train(folder):
    """A few layers, until they know more of the text than how often each byte comes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    torch.set_num_threads(1)
    text = b"".join((ROOT / page).read_bytes() for page in ("README.md", "proto/NUMERICS.md", "client/ctl/MODELS.md"))
    tokens = torch.tensor(list(text))
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
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
    (folder / "calibration").write_bytes(text[2048:18432])


def called(main, *words):
    """What a program's main returned, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(map(str, words)))
    return code, out.getvalue(), err.getvalue()


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "transformers is not installed")
class Perplexity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="gemmd-perplexity-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        train(cls.folder)
        from gemmclient import quantize

        cls.quantizer = quantize
        spec = importlib.util.spec_from_file_location("perplexity", ROOT / "client/python/examples/perplexity.py")
        cls.perplexity = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.perplexity)
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def measure(self, *options):
        words = ["--model", self.folder, "--text", self.folder / "text", "--window", str(WINDOW), "--socket", self.daemon.socket, "--json"]
        code, out, err = called(self.perplexity.main, *words, *options)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_formats_cost_what_they_round(self):
        """The model knows the text; 8 bits lose next to nothing, 2 bits much, and what is searched less than ternary."""
        said = self.measure("--format", "int8", "--format", "fp8", "--format", "int2", "--format", "int2,ternary")
        self.assertLess(said["before"], 20)  # bytes of English, of which a model that knows nothing has 256
        self.assertEqual({one["layers"] for one in said["after"]}, {15})
        ratio = {one["format"]: one["perplexity"] / said["before"] for one in said["after"]}
        self.assertLess(abs(ratio["int8"] - 1), 0.02)
        self.assertLess(abs(ratio["fp8"] - 1), 0.03)
        self.assertGreater(ratio["int2"], 1.05)
        self.assertGreater(ratio["int2,ternary"], ratio["int2"])

    def quantize(self, output, *options, calibration="calibration", gemmctl=BUILD / "gemmctl"):
        """As `gemmctl quantize FOLDER` starts it: its exit status, and what it said."""
        words = (self.folder, "--calibration", self.folder / calibration, "--output", self.folder / output, *options)
        with mock.patch.dict(os.environ, GEMMCTL=str(gemmctl)):
            return called(self.quantizer.main, *words)

    def test_a_quantized_model_loses_less_than_a_rounded_one(self):
        """Each with scales of its own, by the same folder that `gemmctl load` takes as it is."""
        for wanted, *options in (("int2",), ("int2,row", "--scale", "row"), ("int4",), ("int8",)):
            with self.subTest(wanted):
                format = wanted.partition(",")[0]
                code, out, err = self.quantize(wanted, "--format", format, *options, "--json")
                self.assertEqual(code, 0, err)
                made = json.loads(out)["tensors"]
                self.assertEqual(len(made), 14)  # the head is not in a block
                inside = ("--layers", "model.layers.*")
                rounded = self.measure("--format", wanted, *inside)
                searched = self.measure("--format", wanted, "--quantized", self.folder / wanted, *inside)
                self.assertEqual(searched["after"][0]["layers"], 14)
                loss = [said["after"][0]["perplexity"] / said["before"] - 1 for said in (rounded, searched)]
                if format != "int8":
                    self.assertLess(loss[1], 0.8 * loss[0])
                else:  # hardly anything was lost
                    self.assertLess(abs(loss[1]), 0.01)
                with gemmclient.connect(self.daemon.socket) as session:
                    session.load_model(self.folder / wanted, format="stored", prefix=f"{wanted}/", exclude=["lm_head*", "*embed*"])  # of f32
                    infos = {one.name: one for one in session.weights() if one.name.startswith(f"{wanted}/")}
                    names = {f"{wanted}/{one['name']}" for one in made}
                    self.assertLessEqual(names, set(infos))
                    self.assertEqual({infos[name].format.name.lower() for name in names}, {format})

    def test_layers_are_quantized_over_what_quantized_ones_put_out(self):
        """The last layer's codes are those of `gemmctl quantize` on rows that it sees where all others are quantized."""
        import torch
        from transformers import LlamaForCausalLM

        import gemmclient.torch
        from gemmclient import _safetensors
        from gemmclient.quantize import dequantized, windows_of

        self.assertEqual(self.quantize("passed", "--format", "int2")[0], 0)
        made = _safetensors.Reader(self.folder / "passed" / "model.safetensors")
        model = LlamaForCausalLM.from_pretrained(self.folder, dtype=torch.float32).eval()
        last = "model.layers.1.mlp.down_proj"
        plain = model.get_submodule(last).weight.detach().clone()
        for path, linear in model.named_modules():
            if isinstance(linear, torch.nn.Linear) and path.startswith("model.layers") and path != last:
                linear.weight.data = dequantized(made, f"{path}.weight")
        self.assertTrue(torch.equal(model.get_submodule(last).weight, plain))
        tokens = torch.tensor(list((self.folder / "calibration").read_bytes()))
        rows = self.folder / "rows.safetensors"
        with torch.no_grad(), gemmclient.torch.record_inputs(model, rows, [last], rows=1 << 20):
            for window in windows_of(tokens, WINDOW, 64):
                model(window[None], use_cache=False)
        codes = self.folder / "alone.safetensors"
        command = [BUILD / "gemmctl", "quantize", self.folder / "model.safetensors", "--format", "int2", "--calibration", rows,
                   "--output", codes]  # fmt: skip
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        alone = _safetensors.Reader(codes)
        self.assertEqual(alone.data(f"{last}.weight"), made.data(f"{last}.weight"))
        self.assertEqual(alone.data(f"{last}.weight_scale"), made.data(f"{last}.weight_scale"))

    def test_models_that_are_refused_leave_nothing(self):
        (self.folder / "short").write_bytes(b"x" * (WINDOW - 1))
        (self.folder / "there").mkdir()
        before = sorted(path.name for path in self.folder.iterdir())
        for reason, options, names in (
            ("a window takes 32", (), {"calibration": "short"}),
            ("exists", (), {"output": "there"}),
            ("lm_head is outside of model.layers", ("--tensor", "lm_head.weight"), {}),
            ("pattern 'x*' matches no layer", ("--tensor", "x*"), {}),
            ("No such file", (), {"calibration": "nowhere"}),
            ("/nowhere/gemmctl cannot be run", (), {"gemmctl": "/nowhere/gemmctl"}),
        ):
            code, _, err = self.quantize(names.pop("output", "refused"), "--format", "int2", *options, **names)
            self.assertEqual(code, 1, reason)
            self.assertIn(reason, err)
            self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before)


if __name__ == "__main__":
    unittest.main()
