#!/usr/bin/python3
"""ComfyUI's nodes in ComfyUI itself, without its server: $COMFYUI is a tree of it, $PYTHON one that can import it. The model
is a small one of ComfyUI's own layers, in ComfyUI's own patcher and memory management."""

import asyncio
import os
import sys
import unittest
import warnings

from support import ROOT, Daemon

TREE = os.environ.get("COMFYUI")
if not TREE:
    raise SystemExit("test_comfyui.py needs COMFYUI=path of ComfyUI's sources; make test-comfyui says how")
sys.path.insert(0, TREE)
arguments, sys.argv = sys.argv, [sys.argv[0], "--cpu"]
sys.path.insert(0, str(ROOT / "client/python"))

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()
import comfy.hooks  # noqa: E402
import comfy.model_management  # noqa: E402
import comfy.model_patcher  # noqa: E402
import comfy.ops  # noqa: E402
import comfy.sd  # noqa: E402
import nodes  # noqa: E402
import torch  # noqa: E402

import gemmclient  # noqa: E402
from gemmclient.torch import GemmdLinear  # noqa: E402
from kills import serve_through_kills  # noqa: E402

sys.argv = arguments
SIZE = 96
CPU = torch.device("cpu")
CONFIG = dict(block_m=128, block_n=128, block_k=64, group_size_m=8, num_warps=4, num_stages=4)


class Block(torch.nn.Module):
    def __init__(self, ops):
        super().__init__()
        self.norm = ops.LayerNorm(SIZE)
        self.up = ops.Linear(SIZE, 2 * SIZE)
        self.down = ops.Linear(2 * SIZE, SIZE, bias=False)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """What ComfyUI's patcher wants of a model."""

    def __init__(self, ops=comfy.ops.disable_weight_init, dtype=torch.float32):
        super().__init__()
        self.diffusion_model = torch.nn.Sequential(*(Block(ops) for _ in range(3)))
        torch.manual_seed(5)
        for parameter in self.parameters():
            parameter.data = (torch.randn_like(parameter) / SIZE**0.5).to(dtype)
            parameter.requires_grad_(False)
        self.device, self.manual_cast_dtype = CPU, None

    def forward(self, x):
        return self.diffusion_model(x)


class ComfyUI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        os.environ["GEMMD_SOCKET"] = cls.daemon.socket
        assert asyncio.run(nodes.load_custom_node(str(ROOT / "client/comfyui")))  # as ComfyUI finds a folder of nodes

    def setUp(self):
        self.addCleanup(comfy.model_management.unload_all_models)
        self.patcher = comfy.model_patcher.ModelPatcher(Model(), CPU, CPU)
        torch.manual_seed(6)
        self.x = torch.randn(12, SIZE)

    def node(self, name, model, **inputs):
        node = nodes.NODE_CLASS_MAPPINGS[name]()
        return getattr(node, node.FUNCTION)(model=model, **inputs)

    def served(self, model=None, format="int8", layers="diffusion_model.*"):
        return self.node("GemmdLinears", model or self.patcher, format=format, layers=layers)

    def run_model(self, patcher):
        comfy.model_management.load_models_gpu([patcher])
        with torch.inference_mode():
            return patcher.model(self.x)

    def by_hand(self, change=lambda path, weight: weight, format="int8"):
        """The same model with its layers replaced without ComfyUI."""
        model = Model(comfy.ops.disable_weight_init)
        session = gemmclient.connect(self.daemon.socket)
        self.addCleanup(session.close)
        for path, linear in list(model.named_modules()):
            if isinstance(linear, torch.nn.Linear):
                parent, _, name = path.rpartition(".")
                weight = change(path, linear.weight)
                made = GemmdLinear.from_weight(weight, linear.bias, session, path, format)
                setattr(model.get_submodule(parent), name, made)
        with torch.inference_mode():
            return model(self.x)

    def test_the_model_computes_by_gemmd(self):
        plain = self.run_model(self.patcher)
        model, text = self.served()
        self.assertRegex(text, "^6 linear layers in gemmd as int8")
        y = self.run_model(model)
        self.assertTrue(torch.equal(y, self.by_hand()))
        error = float(torch.linalg.norm(y - plain) / torch.linalg.norm(plain))
        self.assertTrue(0 < error < 0.02, error)

    def test_killed_while_it_computes(self):
        model, _ = self.served()
        expected = self.run_model(model)
        serve_through_kills(self, self.daemon, lambda _: torch.equal(self.run_model(model), expected), 1)
        again, _ = self.served(comfy.model_patcher.ModelPatcher(Model(), CPU, CPU))
        self.assertTrue(torch.equal(self.run_model(again), expected))

    def test_the_model_without_gemmd_is_as_it_was(self):
        plain = self.run_model(self.patcher)
        model, _ = self.served()
        for _ in range(2):
            self.assertFalse(torch.equal(self.run_model(model), plain))
            self.assertTrue(torch.equal(self.run_model(self.patcher), plain))

    def test_patterns_choose(self):
        model, text = self.served(layers="*.0.up, *.down")
        self.assertRegex(text, "^4 linear layers")
        self.run_model(model)
        with self.assertRaisesRegex(ValueError, "no linear layer of the model matches 'nothing'"):
            self.served(layers="nothing")

    def test_the_state_of_a_loaded_model_is_whole(self):
        before = {key: value.clone() for key, value in self.patcher.model_state_dict().items()}
        model, _ = self.served()
        self.run_model(model)
        self.assertEqual(len([1 for one in model.model.modules() if isinstance(one, torch.nn.Linear)]), 0)
        after = model.model_state_dict()
        self.assertEqual(list(after), list(before))
        for key, value in before.items():
            self.assertTrue(torch.equal(after[key], value), key)

    def lora(self, rank=4):
        torch.manual_seed(8)
        down = torch.randn(rank, SIZE) / SIZE**0.5
        up = torch.randn(2 * SIZE, rank)
        return {"diffusion_model.1.up.lora_down.weight": down, "diffusion_model.1.up.lora_up.weight": up}, up @ down

    def with_lora(self, model, strength=0.5):
        patches, change = self.lora()
        from comfy.weight_adapter import LoRAAdapter

        up, down = patches["diffusion_model.1.up.lora_up.weight"], patches["diffusion_model.1.up.lora_down.weight"]
        adapter = LoRAAdapter(set(), (up, down, None, None, None, None))
        clone = model.clone()
        taken = clone.add_patches({"diffusion_model.1.up.weight": adapter}, strength)
        self.assertEqual(taken, ["diffusion_model.1.up.weight"])
        return clone, strength * change

    def check_lora(self, model, change):
        y = self.run_model(model)
        expected = self.by_hand(lambda path, weight: weight + change if path == "diffusion_model.1.up" else weight)
        self.assertLess(float(torch.linalg.norm(y - expected) / torch.linalg.norm(expected)), 1e-3)
        return y

    def test_a_lora_behind_the_node_is_in_the_weights(self):
        served, _ = self.served()
        without = self.run_model(served)
        model, change = self.with_lora(served)  # while the model is loaded, as in a second run of a graph
        y = self.check_lora(model, change)
        self.assertGreater(float(torch.linalg.norm(y - without) / torch.linalg.norm(without)), 0.01)
        self.assertTrue(torch.equal(self.run_model(served), without))

    def test_a_lora_before_the_node_is_in_the_weights(self):
        model, change = self.with_lora(self.patcher)
        self.check_lora(self.served(model)[0], change)

    def test_hooks_and_wrappers_of_weights_are_refused_by_name(self):
        model, _ = self.served()
        wrapped = model.clone()
        wrapped.add_weight_wrapper("diffusion_model.2.down.weight", lambda weight: weight)
        with self.assertRaisesRegex(ValueError, "diffusion_model.2.down: a weight wrapper"):
            self.run_model(wrapped)
        hooked, hook = model.clone(), comfy.hooks.WeightHook()
        hooked.add_hook_patches(hook, {"diffusion_model.0.up.weight": (torch.zeros(2 * SIZE, SIZE),)})
        with self.assertRaisesRegex(ValueError, "diffusion_model.0.up: a LoRA hook"):
            self.run_model(hooked)
        self.assertTrue(torch.equal(self.run_model(model), self.by_hand()))

    def test_offloading_goes_on(self):
        model, _ = self.served()
        y = self.run_model(model)
        self.assertLess(model.model_size(), self.patcher.model_size() / 10)
        comfy.model_management.unload_all_models()
        self.assertIsInstance(self.patcher.model.diffusion_model[0].up, torch.nn.Linear)
        self.assertTrue(torch.equal(self.run_model(model), y))
        # as where the device has too little room
        comfy.model_management.unload_all_models()
        model.patch_model(CPU, lowvram_model_memory=64)
        with torch.inference_mode():
            self.assertTrue(torch.equal(model.model(self.x), y))
        model.unpatch_model(CPU)

    def test_fp8_models_are_taken(self):
        for dtype in (torch.float8_e4m3fn, torch.bfloat16):
            patcher = comfy.model_patcher.ModelPatcher(Model(comfy.ops.manual_cast, dtype), CPU, CPU)
            plain = self.run_model(patcher)
            error = torch.linalg.norm(self.run_model(self.served(patcher)[0]) - plain) / torch.linalg.norm(plain)
            self.assertTrue(0 < float(error) < 0.03, error)

    def test_configurations_name_the_kernel_of_each_model(self):
        """Several in a graph: before the layers are moved, behind that, and none."""
        first, text = self.node("GemmdInt8KernelConfig", self.patcher, **{**CONFIG, "block_m": 32})
        self.assertEqual(text, "the manual values")
        before, _ = self.served(first)
        plain, _ = self.served()
        behind, _ = self.node("GemmdInt8KernelConfig", plain, **{**CONFIG, "block_m": 64})
        expected = self.by_hand()
        for model, kernel in ((before, "cpu block_m=32"), (behind, "cpu block_m=64"), (plain, None)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a kernel that cannot be had is told of
                self.assertTrue(torch.equal(self.run_model(model), expected))
            self.assertEqual({one.current.kernel for one in model.object_patches.values()}, {kernel})

    def test_the_microbench_chooses_and_tells_three(self):
        model, text = self.node(
            "GemmdInt8KernelConfig", self.patcher, run_microbench=True, bench_m=64, bench_n=128, bench_k=128,
            bench_warmup=1, bench_iterations=3, include_scalar=True, **CONFIG,
        )  # fmt: skip
        lines = text.splitlines()
        self.assertEqual(lines[0], "m=64 n=128 k=128")
        self.assertEqual([line[:2] for line in lines[1:4]], ["1.", "2.", "3."], text)
        chosen = model.get_attachment("gemmd.kernel").text("cpu") or "gemmd's own choice"
        self.assertTrue(lines[1].startswith(f"1. {chosen}: "), text)
        self.run_model(self.served(model)[0])
        session = gemmclient.connect(self.daemon.socket)
        self.addCleanup(session.close)
        self.assertEqual([info.name for info in session.weights() if "microbench" in info.name], [])

    def test_a_microbench_that_fails_leaves_the_manual_values(self):
        os.environ["GEMMD_SOCKET"] = "/nowhere"
        self.addCleanup(os.environ.__setitem__, "GEMMD_SOCKET", self.daemon.socket)
        from gemmclient._torch import session as _torch_session

        known = dict(_torch_session._sessions)
        _torch_session._sessions.clear()
        self.addCleanup(_torch_session._sessions.update, known)
        model, text = self.node("GemmdInt8KernelConfig", self.patcher, run_microbench=True, **{**CONFIG, "block_m": 48})
        self.assertIn("manual values", text)
        self.assertEqual(model.get_attachment("gemmd.kernel").config.block_m, 48)


if __name__ == "__main__":
    unittest.main(verbosity=2)
