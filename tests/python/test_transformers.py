#!/usr/bin/python3
"""gemmclient.transformers with transformers itself: a small Llama with random weights, saved and loaded as its users do,
against a real gemmd."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import PATIENCE_S, ROOT, Daemon

try:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
except ImportError as error:
    raise SystemExit(f"test_transformers.py needs torch and transformers ({error}); make test-torch brings them") from None

import gemmclient
import gemmclient.torch
import vllm_models
from gemmclient import errors
from gemmclient.torch import GemmdLinear
from gemmclient.transformers import GemmdConfig
from kills import serve_through_kills

LAYERS = 2
LINEARS = 7 * LAYERS  # q, k, v, o, gate, up, down
PROMPT = torch.arange(3, 15)[None]


def make(folder, dtype=torch.float32, **options):
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=320, hidden_size=128, intermediate_size=256, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, **options,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(dtype).eval()
    model.save_pretrained(folder)
    return model


class Transformers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.folder = tempfile.mkdtemp(prefix="gemmd-transformers-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.plain = make(f"{cls.folder}/f32")

    def setUp(self):
        self.session = gemmclient.connect(self.daemon.socket)
        self.addCleanup(self.session.close)

    def load(self, *arguments, folder="f32", dtype=torch.float32, **options):
        config = GemmdConfig(*arguments, socket=self.daemon.socket, **options)
        path = f"{self.folder}/{folder}"
        return AutoModelForCausalLM.from_pretrained(path, dtype=dtype, quantization_config=config).eval()

    def replaced(self, model):
        return {name for name, module in model.named_modules() if isinstance(module, GemmdLinear)}

    def logits(self, model):
        with torch.inference_mode():
            return model(PROMPT).logits.float()

    def test_logits_are_those_of_the_layers_replaced_by_hand(self):
        for format in ("int8", "fp8", "int2a8"):
            with self.subTest(format):
                model = self.load(format)
                self.assertEqual(len(self.replaced(model)), LINEARS)
                self.assertNotIn("lm_head", self.replaced(model))
                by_hand = copy.deepcopy(self.plain)
                gemmclient.torch.replace_linear(by_hand, format, ["model.*"], session=self.session)
                self.assertTrue(torch.equal(self.logits(model), self.logits(by_hand)))

    def test_logits_are_near_those_of_the_model(self):
        expected = self.logits(self.plain)
        for format, most in (("int8", 0.02), ("fp8", 0.06)):
            error = torch.linalg.norm(self.logits(self.load(format)) - expected) / torch.linalg.norm(expected)
            self.assertLess(float(error), most, format)
            self.assertGreater(float(error), 0, format)

    def test_static_and_dynamic_caches_give_the_same_tokens(self):
        model = self.load("int8")
        options = dict(max_new_tokens=24, min_new_tokens=24, do_sample=False)
        static = model.generate(PROMPT, cache_implementation="static", **options)
        self.assertEqual(static.shape[1], PROMPT.shape[1] + 24)
        self.assertTrue(torch.equal(static, model.generate(PROMPT, **options)))
        self.assertGreater(len(set(static[0, PROMPT.shape[1] :].tolist())), 1)

    def test_the_model_compiles_without_a_break(self):
        if shutil.which("c++") is None:
            self.skipTest("torch.compile takes a C++ compiler")
        model = self.load("int8")
        self.assertTrue(model.hf_quantizer.is_compileable)
        compiled = torch.compile(model, fullgraph=True)
        with torch.inference_mode():
            y = compiled(PROMPT, use_cache=False).logits
            # what inductor fuses between the products may round otherwise, and a code of a row be the next
            self.assertLess(float((y - model(PROMPT, use_cache=False).logits).abs().max()), 0.02)

    def test_named_modules_stay(self):
        model = self.load("int8", modules_to_not_convert=["lm_head", "down_proj"])
        self.assertEqual(len(self.replaced(model)), LINEARS - LAYERS)
        self.assertEqual([name for name in self.replaced(model) if "down" in name], [])

    def test_a_head_that_is_an_embedding_stays(self):
        make(f"{self.folder}/tied", tie_word_embeddings=True)
        model = self.load("int8", folder="tied")
        self.assertEqual(len(self.replaced(model)), LINEARS)
        self.assertIs(model.lm_head.weight, model.model.embed_tokens.weight)

    def test_killed_while_it_generates(self):
        options = dict(max_new_tokens=4, min_new_tokens=4, do_sample=False)
        with Daemon() as daemon:
            config = GemmdConfig("int8", socket=daemon.socket)
            folder = f"{self.folder}/f32"
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=config).eval()
            expected = model.generate(PROMPT, **options)
            serve_through_kills(self, daemon, lambda _: torch.equal(model.generate(PROMPT, **options), expected), 1)
            again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=config).eval()
            self.assertTrue(torch.equal(again.generate(PROMPT, **options), expected))

    def test_a_second_model_sends_nothing(self):
        self.load("fp8")
        loads = self.daemon.log().count('loaded "')
        self.assertGreaterEqual(loads, LINEARS)
        self.load("fp8")
        self.assertEqual(self.daemon.log().count('loaded "'), loads)

    def test_bf16_saves_whole(self):
        make(f"{self.folder}/bf16", torch.bfloat16)
        model = self.load("bf16", folder="bf16", dtype=torch.bfloat16)
        self.assertEqual(len(self.replaced(model)), LINEARS)
        model.save_pretrained(f"{self.folder}/saved")
        saved = json.loads(Path(self.folder, "saved/config.json").read_text())
        self.assertEqual(saved["quantization_config"]["quant_method"], "gemmd")
        # its configuration alone says that it goes into gemmd
        os.environ["GEMMD_SOCKET"] = self.daemon.socket
        self.addCleanup(os.environ.pop, "GEMMD_SOCKET")
        again = AutoModelForCausalLM.from_pretrained(f"{self.folder}/saved", dtype=torch.bfloat16)
        self.assertEqual(self.replaced(again), self.replaced(model))
        self.assertTrue(torch.equal(self.logits(again), self.logits(model)))

    def of_checkpoint(self, folder, format, dtype=torch.float32):
        settings = AutoConfig.from_pretrained(folder)
        del settings.quantization_config
        config = GemmdConfig(format, quantized=str(folder), socket=self.daemon.socket)
        return AutoModelForCausalLM.from_pretrained(folder, config=settings, dtype=dtype, quantization_config=config).eval()

    def test_a_checkpoint_of_4_bits_keeps_its_codes(self):
        folders = vllm_models.make(Path(self.folder) / "tools")
        folder, loads = folders["w4a16"], self.daemon.log().count("of a model have their names")
        prompt = PROMPT[0].tolist()
        expected = vllm_models.reference(folders, "w4a16", prompt, 12)
        model = self.of_checkpoint(folder, "int4")
        self.assertEqual(len(self.replaced(model)), LINEARS)
        made = model.generate(PROMPT, max_new_tokens=12, min_new_tokens=12, do_sample=False, eos_token_id=None)
        self.assertEqual(made[0, len(prompt) :].tolist(), expected)
        self.of_checkpoint(folder, "int4", torch.bfloat16)  # finds the names
        self.assertEqual(self.daemon.log().count("of a model have their names"), loads + 1)
        near = self.logits(self.of_checkpoint(folder, "int4a8"))
        self.assertLess(float((near - self.logits(model)).norm() / self.logits(model).norm()), 0.03)

    def test_a_checkpoint_keeps_what_it_does_not_quantize(self):
        folder = vllm_models.make(Path(self.folder) / "mixed")["w4a16"]
        plain = load_file(Path(self.folder) / "mixed" / "plain" / "model.safetensors")
        codes = load_file(folder / "model.safetensors")
        layer = "model.layers.0.mlp.down_proj"
        mixed = {name: codes[name] for name in codes if not name.startswith(layer)}
        save_file({**mixed, f"{layer}.weight": plain[f"{layer}.weight"]}, folder / "model.safetensors")
        model = self.of_checkpoint(folder, "int4")
        self.assertNotIn(layer, self.replaced(model))
        self.assertEqual(len(self.replaced(model)), LINEARS - 1)
        self.assertTrue(torch.equal(model.get_submodule(layer).weight, plain[f"{layer}.weight"].float()))
        by_hand = LlamaForCausalLM.from_pretrained(Path(self.folder) / "mixed" / "plain")
        with self.assertRaisesRegex(errors.InvalidError, f"{layer}.*as numbers"):
            gemmclient.torch.replace_linear(by_hand, "int4", ["model.*"], session=self.session, quantized=folder)

    def test_values_come_back(self):
        make(f"{self.folder}/back", torch.bfloat16)
        plain = LlamaForCausalLM.from_pretrained(f"{self.folder}/back", dtype=torch.bfloat16)
        model = self.load("bf16", folder="back", dtype=torch.bfloat16).dequantize()
        self.assertEqual(self.replaced(model), set())
        for name, value in plain.state_dict().items():
            self.assertTrue(torch.equal(model.state_dict()[name], value), name)
        with self.assertRaises(errors.UnsupportedError):
            self.load("int8").dequantize()

    def test_rows_are_of_the_type_that_the_weights_take(self):
        with self.assertLogs("gemmclient.transformers") as logs:
            model = self.load("f16", dtype=torch.float32)
        self.assertRegex(logs.output[0], "f16 weights take rows of torch.float16.*not torch.float32")
        self.assertEqual(model.dtype, torch.float16)
        error = torch.linalg.norm(self.logits(model) - self.logits(self.plain)) / torch.linalg.norm(self.logits(self.plain))
        self.assertLess(float(error), 0.01)

    def test_int8_refuses_to_save(self):
        model = self.load("int8")
        with self.assertRaisesRegex(ValueError, "not serializable"), self.assertLogs("gemmclient.transformers") as logs:
            model.save_pretrained(f"{self.folder}/refused")
        self.assertIn("int8 weights were made of", logs.output[0])
        self.assertFalse(Path(self.folder, "refused").exists())

    def test_without_gemmd_nothing_is_loaded(self):
        config = GemmdConfig("int8", socket=f"{self.folder}/nobody")
        with self.assertRaises(errors.GemmdError):
            AutoModelForCausalLM.from_pretrained(f"{self.folder}/f32", quantization_config=config)

    def test_a_model_without_linear_layers_is_named(self):
        config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2)
        GPT2LMHeadModel(config).save_pretrained(f"{self.folder}/gpt2")
        with self.assertRaisesRegex(errors.InvalidError, "GPT2LMHeadModel has no layer for gemmd: 1 nn.Linear"):
            self.load("int8", folder="gpt2")

    def test_an_unknown_format_is_named(self):
        with self.assertRaisesRegex(ValueError, "int3"):
            GemmdConfig("int3")

    def test_two_processes_generate_with_one_copy(self):
        """The example, with and without gemmd."""
        example = ROOT / "client/python/examples/generate.py"
        daemon = Daemon()  # which has nothing of the model, whatever other tests have left
        self.addCleanup(daemon.close)
        for format in ("f16", "none"):
            command = [sys.executable, str(example), "--model", f"{self.folder}/f32", "--format", format,
                       "--dtype", "float16", "--tokens", "8", "--socket", daemon.socket]  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "client/python")}
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=10 * PATIENCE_S)
            self.assertEqual(run.returncode, 0)
            tokens = re.findall(r"^\d: .* MiB its own, (\[.*\])$", run.stdout, flags=re.M)
            self.assertEqual(len(tokens), 2, run.stdout)
            self.assertEqual(tokens[0], tokens[1])
            self.assertEqual(len(json.loads(tokens[0])), 8)
        self.assertEqual(daemon.log().count('loaded "'), LINEARS)


if __name__ == "__main__":
    unittest.main(verbosity=2)
