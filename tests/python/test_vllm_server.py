#!/usr/bin/python3
"""vLLM's own HTTP server with gemmd: checkpoints in four formats, greedy tokens as the codes say, streams, requests at
a time, weights by name, a second server that loads nothing, two ranks, workers and gemmd killed. Python is one that has
vLLM's CPU build and gemmclient installed; a server takes minutes to start."""

import concurrent.futures
import os
import signal
import tempfile
import unittest
from pathlib import Path

from support import Daemon

try:
    import vllm_models
except ImportError as error:
    raise SystemExit(f"test_vllm_server.py needs vllm ({error}); make test-vllm brings it") from None

import gemmclient
from kills import serve_through_kills
from processes import memory_bytes
from vllm_server import PROMPT, TOKENS, Server

LINEARS = 4 * 2  # qkv, o, gate and up, down in each of two layers


class VllmServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        folder = tempfile.TemporaryDirectory(prefix="gemmd-vllm-")
        cls.addClassCleanup(folder.cleanup)
        cls.models = vllm_models.make(Path(folder.name))

    def loads(self) -> int:
        return self.daemon.log().count('loaded "vllm/')

    def worker(self) -> int:
        with gemmclient.connect(self.daemon.socket) as session:
            return session.status().devices[0].pid

    def test_int8_checkpoints(self):
        expected = vllm_models.reference(self.models, "int8", PROMPT, TOKENS)
        self.assertEqual(len(expected), TOKENS)
        before = self.loads()
        with Server(self.models["int8"], self.daemon.socket, GEMMD_VLLM_KERNELS="first") as server:
            self.assertIn("Selected GemmdInt8Kernel", server.log.read_text())
            self.assertEqual(self.loads(), before + LINEARS)
            self.assertEqual(server.ask(), expected)
            self.assertEqual(server.ask(stream=True), expected)
            prompts = [[number, *PROMPT] for number in range(3, 11)]
            alone = [server.ask(prompt) for prompt in prompts]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                self.assertEqual(list(pool.map(server.ask, prompts)), alone)
            with Server(self.models["int8"], self.daemon.socket, GEMMD_VLLM_KERNELS="first") as second:
                self.assertEqual(second.ask(), expected)
                self.assertEqual(self.loads(), before + LINEARS)  # the second one has sent nothing
            self.killed_while_it_serves(server, prompts, alone)

    def killed_while_it_serves(self, server, prompts, expected):
        serve_through_kills(self, self.daemon, lambda client: server.ask(prompts[client]) == expected[client], 4)

    def test_weights_by_name(self):
        expected = vllm_models.reference(self.models, "int8", PROMPT, TOKENS)
        arguments = (self.models["int8"], self.daemon.socket, "--load-format", "gemmd")
        with Server(*arguments) as server:
            self.assertEqual(len(self.names("vllm/int8-*/model.layers.*")), LINEARS)
            self.assertEqual(server.ask(), expected)
            before = self.daemon.log().count("of a model have their names")
            with Server(*arguments) as second:
                self.assertEqual(second.ask(), expected)
                self.assertEqual(self.daemon.log().count("of a model have their names"), before)
            prompts = [[number, *PROMPT] for number in range(3, 7)]
            self.killed_while_it_serves(server, prompts, [server.ask(prompt) for prompt in prompts])

    def test_weights_that_somebody_else_has_loaded(self):
        with gemmclient.connect(self.daemon.socket) as session:
            session.load_model(
                self.models["plain"], format="int8", patterns=["*proj.weight"], prefix="mine.",
                fuse=["q_proj,k_proj,v_proj=qkv_proj", "gate_proj,up_proj=gate_up_proj"],
            )  # fmt: skip
        before = self.daemon.log().count("of a model have their names")
        extra = ("--model-loader-extra-config", '{"prefix": "mine."}')
        arguments = (self.models["plain"], self.daemon.socket, "--quantization", "gemmd_int8")
        with Server(*arguments, "--load-format", "gemmd", *extra) as server:
            self.assertEqual(self.daemon.log().count("of a model have their names"), before)
            by_name = server.ask()
        with Server(*arguments) as server:
            self.assertEqual(server.ask(), by_name)

    def test_latent_attention(self):
        """DeepSeek's: it asks gemmd for the values of kv_b_proj, and fuses two projections in a class of its own."""
        prompts = [[number, *PROMPT] for number in range(3, 11)]
        with tempfile.TemporaryDirectory(prefix="gemmd-vllm-") as folder:
            vllm_models.make_latent(Path(folder))
            with Server(Path(folder), self.daemon.socket) as server:
                expected = [server.ask(prompt, tokens=8) for prompt in prompts]
            for arguments, place in (("--load-format gemmd", "*/"), ("--quantization gemmd_int8", "")):
                with self.subTest(arguments), Server(Path(folder), self.daemon.socket, *arguments.split()) as server:
                    for layer in ("kv_b_proj", "fused_qkv_a_proj"):
                        self.assertEqual(len(self.names(f"vllm/{place}model.layers.*.{layer}*")), 2)
                    self.assertEqual([server.ask(prompt, tokens=8) for prompt in prompts], expected)

    def test_two_ranks_by_name(self):
        """They answer as two ranks do that have given gemmd their own parts of the codes."""
        cores = sorted(os.sched_getaffinity(0))
        bound = {"VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}|{cores[-1]}"}  # where NUMA nodes are fewer than ranks
        arguments = (self.models["int8"], self.daemon.socket, "--tensor-parallel-size", "2")
        prompts = [[number, *PROMPT] for number in range(3, 7)]
        with Server(*arguments, GEMMD_VLLM_KERNELS="first", **bound) as server:
            expected = [server.ask(prompt) for prompt in prompts]
        with Server(*arguments, "--load-format", "gemmd", **bound) as server:
            for rank in range(2):
                self.assertEqual(len(self.names(f"vllm/int8-*/rank{rank}of2.model.layers.*")), LINEARS)
            self.assertEqual([server.ask(prompt) for prompt in prompts], expected)
            self.killed_while_it_serves(server, prompts, expected)

    def test_memory_of_a_second_server(self):
        """At most 40 % of the first one's weights, beside what a server takes whatever its model is."""
        with tempfile.TemporaryDirectory(prefix="gemmd-vllm-") as folder:
            elements = vllm_models.make_wide(Path(folder))
            small = self.growth_by_a_second(self.models["plain"])
            wide = self.growth_by_a_second(Path(folder))
        self.assertLess(wide - small, 0.4 * elements)  # bytes of INT8 codes

    def growth_by_a_second(self, model):
        arguments = (model, self.daemon.socket, "--quantization", "gemmd_int8", "--load-format", "gemmd")
        with Server(*arguments) as first:
            first.ask()
            ours = [self.daemon.process.pid, first.process.pid]
            before = memory_bytes(ours)
            with Server(*arguments) as second:
                second.ask()
                return memory_bytes([*ours, second.process.pid]) - before

    def names(self, pattern):
        with gemmclient.connect(self.daemon.socket) as session:
            return session.weights(pattern)

    def test_fp8_checkpoints_with_blocks(self):
        """vLLM's CPU build has no kernel for them on processors without AMX: gemmd's is the only one."""
        with Server(self.models["fp8_block"], self.daemon.socket) as server:
            self.assertIn("Selected GemmdFp8Kernel", server.log.read_text())
            self.assertEqual(len(server.ask()), TOKENS)
            self.assertEqual(server.ask(stream=True), server.ask())

    def test_checkpoints_of_4_bits(self):
        """W4A16 of compressed-tensors: the codes as they are, by vLLM's loader and by name."""
        expected = vllm_models.reference(self.models, "w4a16", PROMPT, TOKENS)
        with Server(self.models["w4a16"], self.daemon.socket, GEMMD_VLLM_KERNELS="first") as server:
            self.assertIn("Using GemmdInt4Kernel", server.log.read_text())
            self.assertEqual(server.ask(), expected)
            self.assertEqual(server.ask(stream=True), expected)
        with Server(self.models["w4a16"], self.daemon.socket, "--load-format", "gemmd") as server:
            self.assertEqual(len(self.names("vllm/w4a16-*/model.layers.*")), LINEARS)
            self.assertEqual(server.ask(), expected)

    def test_checkpoints_that_are_not_quantized(self):
        with Server(self.models["plain"], self.daemon.socket, "--quantization", "gemmd_int8") as server:
            tokens = server.ask()
            self.assertEqual(len(tokens), TOKENS)
            os.kill(self.worker(), signal.SIGKILL)
            self.assertEqual(server.ask(), tokens)


if __name__ == "__main__":
    unittest.main(verbosity=2)
