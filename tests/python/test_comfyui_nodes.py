#!/usr/bin/python3
"""ComfyUI's nodes as far as they need neither ComfyUI nor torch: inputs, kernels' names, what is compared, what is told,
and the manual values where there is no gemmd. test_comfyui.py has them in ComfyUI itself."""

import importlib.util
import sys
import unittest

from support import BUILD, ROOT

FOLDER = ROOT / "client/comfyui"
spec = importlib.util.spec_from_file_location("gemmd_comfyui", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)])
pack = importlib.util.module_from_spec(spec)
sys.modules["gemmd_comfyui"] = pack
spec.loader.exec_module(pack)
from gemmd_comfyui import config, microbench  # noqa: E402
from gemmd_comfyui.config import Choice, KernelConfig  # noqa: E402


class Nodes(unittest.TestCase):
    def test_inputs_have_the_names_and_values_of_the_node_that_users_know(self):
        inputs = pack.NODE_CLASS_MAPPINGS["GemmdInt8KernelConfig"].INPUT_TYPES()["required"]
        self.assertEqual(inputs.pop("model"), ("MODEL",))
        self.assertEqual(
            {name: options["default"] for name, (_, options) in inputs.items()},
            {
                "block_m": 128, "block_n": 128, "block_k": 64, "group_size_m": 8, "num_warps": 4, "num_stages": 4,
                "run_microbench": False, "bench_m": 4096, "bench_n": 4096, "bench_k": 4096,
                "bench_warmup": 10, "bench_iterations": 25, "include_scalar": False,
            },
        )  # fmt: skip
        self.assertEqual(pack.NODE_DISPLAY_NAME_MAPPINGS["GemmdInt8KernelConfig"], "gemmd INT8 Kernel Config")

    def test_every_node_takes_and_gives_a_model(self):
        for name, node in pack.NODE_CLASS_MAPPINGS.items():
            self.assertEqual(node.INPUT_TYPES()["required"]["model"], ("MODEL",))
            self.assertEqual(node.RETURN_TYPES, ("MODEL", "STRING"))
            self.assertTrue(callable(getattr(node(), node.FUNCTION)))
            self.assertIn(name, pack.NODE_DISPLAY_NAME_MAPPINGS)

    def test_defaults_lie_in_their_ranges(self):
        for name, range in config.PARAMETERS.items():
            self.assertEqual(getattr(KernelConfig(), name), range.default)
            self.assertTrue(range.least <= range.default <= range.most)
            self.assertEqual((range.default - range.least) % range.step, 0)

    def test_kernels_are_named_as_gemmd_names_them(self):
        self.assertEqual(
            KernelConfig(block_n=256).text("cuda"),
            "tile block_m=128 block_n=256 block_k=64 group_size_m=8 num_warps=4 num_stages=4",
        )
        self.assertEqual(KernelConfig(block_m=64).text("cpu"), "cpu block_m=64")
        self.assertIsNone(Choice(None).text("cuda"))

    def test_what_is_compared_begins_with_the_manual_values_and_has_nothing_twice(self):
        for backend in ("cuda", "cpu"):
            manual = KernelConfig(block_m=48, group_size_m=4)
            compared = config.candidates(manual, backend)
            self.assertEqual(compared[0], manual)
            names = [one.text(backend) for one in compared]
            self.assertEqual(len(names), len(set(names)))
            self.assertGreater(len(names), 5)
            self.assertEqual(config.candidates(compared[3], backend)[0], compared[3])

    def test_the_fastest_three_are_told(self):
        timed = [
            microbench.Timed(Choice(KernelConfig(block_m=rows)), f"cpu block_m={rows}", (seconds, seconds))
            for rows, seconds in ((16, 0.004), (32, 0.001), (64, 0.003), (128, 0.002))
        ]
        self.assertEqual([one.choice.config.block_m for one in microbench.rank(timed)], [32, 128, 64, 16])
        text = microbench.report(microbench.Size(64, 128, 256), timed, ["no room"])
        lines = text.splitlines()
        self.assertEqual(lines[1], "1. cpu block_m=32: 1.000 ms, 1.000 ms, 0.00 TOPS")
        self.assertEqual([line[:2] for line in lines[1:4]], ["1.", "2.", "3."])
        self.assertNotIn("block_m=16", text)
        self.assertIn("no room", lines[4])

    def test_where_there_is_no_gemmd_the_manual_values_stand(self):
        manual = KernelConfig(block_m=256)
        outcome = microbench.run(
            manual, microbench.Size(64, 64, 64), warmup=1, iterations=2, include_scalar=False, device="cpu",
            address=str(BUILD / "no-socket"),
        )  # fmt: skip
        self.assertEqual(outcome.choice, Choice(manual))
        self.assertIn("failed", outcome.text)
        self.assertIn("manual values", outcome.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
