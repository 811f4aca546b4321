#!/usr/bin/python3
"""vLLM's own HTTP server with gemmd: checkpoints in three formats, greedy tokens as the codes say, streams, requests at a
time, a second server that loads nothing, workers and gemmd killed. Python is one that has vLLM's CPU build and
gemmclient installed; a server takes minutes to start."""

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

from support import Daemon

try:
    import vllm_models
except ImportError as error:
    raise SystemExit(f"test_vllm_server.py needs vllm ({error}); make test-vllm brings it") from None

import gemmclient

START_S = 600
PROMPT, TOKENS = [5, 6, 7, 8, 9, 10], 16
LINEARS = 4 * 2  # qkv, o, gate and up, down in each of two layers


def free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """vLLM's, on a port of its own; ready when entered."""

    def __init__(self, model: Path, socket_path: str, *arguments: str, **environment: str):
        self.model, self.port = str(model), free_port()
        self.log = Path(tempfile.mkstemp(prefix="vllm-")[1])
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model, "--host", "127.0.0.1",
            "--port", str(self.port), "--skip-tokenizer-init", "--max-model-len", "256", "--max-num-seqs", "8",
            "--enforce-eager", *arguments,
        ]  # fmt: skip
        settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **settings, "GEMMD_SOCKET": socket_path, **environment}, stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> "Server":
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return self
            time.sleep(1)
        self.__exit__()
        raise AssertionError(f"vLLM has not started: {self.log.read_text()[-4000:]}")

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def ask(self, prompt=PROMPT, stream=False):
        body = {"model": self.model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True, "stream": stream}  # fmt: skip
        address, kind = f"http://127.0.0.1:{self.port}/v1/completions", {"Content-Type": "application/json"}
        request = urllib.request.Request(address, json.dumps(body).encode(), kind)
        with urllib.request.urlopen(request, timeout=120) as answer:
            if not stream:
                return json.load(answer)["choices"][0]["token_ids"]
            tokens = []
            for line in answer:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        tokens += choice["token_ids"] or []
            return tokens


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
        expected = vllm_models.reference(self.models, PROMPT, TOKENS)
        self.assertEqual(len(expected), TOKENS)
        with Server(self.models["int8"], self.daemon.socket, GEMMD_VLLM_KERNELS="first") as server:
            self.assertIn("Selected GemmdInt8Kernel", server.log.read_text())
            self.assertEqual(self.loads(), LINEARS)
            self.assertEqual(server.ask(), expected)
            self.assertEqual(server.ask(stream=True), expected)
            prompts = [[number, *PROMPT] for number in range(3, 11)]
            alone = [server.ask(prompt) for prompt in prompts]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                self.assertEqual(list(pool.map(server.ask, prompts)), alone)
            for _ in range(5):
                os.kill(self.worker(), signal.SIGKILL)
                self.assertEqual(server.ask(), expected)
            with Server(self.models["int8"], self.daemon.socket, GEMMD_VLLM_KERNELS="first") as second:
                self.assertEqual(second.ask(), expected)
                self.assertEqual(self.loads(), LINEARS)  # the second one has sent nothing
            self.daemon.kill()
            self.assertEqual(server.ask(), expected)  # what was borrowed stays
            self.daemon.start()
            self.assertEqual(server.ask(), expected)

    def test_fp8_checkpoints_with_blocks(self):
        """vLLM's CPU build has no kernel for them on processors without AMX: gemmd's is the only one."""
        with Server(self.models["fp8_block"], self.daemon.socket) as server:
            self.assertIn("Selected GemmdFp8Kernel", server.log.read_text())
            self.assertEqual(len(server.ask()), TOKENS)
            self.assertEqual(server.ask(stream=True), server.ask())

    def test_checkpoints_that_are_not_quantized(self):
        with Server(self.models["plain"], self.daemon.socket, "--quantization", "gemmd_int8") as server:
            tokens = server.ask()
            self.assertEqual(len(tokens), TOKENS)
            os.kill(self.worker(), signal.SIGKILL)
            self.assertEqual(server.ask(), tokens)


if __name__ == "__main__":
    unittest.main(verbosity=2)
