"""vLLM's HTTP server as a process of its own, asked over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import List

START_S = 600
PROMPT, TOKENS = [5, 6, 7, 8, 9, 10], 16


def free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """vLLM's, on a port of its own; ready when entered. `started_s`: how long that took."""

    def __init__(self, model: Path, socket_path: str, *arguments: str, **environment: str):
        self.model, self.port = str(model), free_port()
        self.log = Path(tempfile.mkstemp(prefix="vllm-")[1])
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model, "--host", "127.0.0.1",
            "--port", str(self.port), "--skip-tokenizer-init", "--max-model-len", "256", "--max-num-seqs", "8",
            "--enforce-eager", *arguments,
        ]  # fmt: skip
        settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        self.began = time.monotonic()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **settings, "GEMMD_SOCKET": socket_path, **environment}, stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> "Server":
        while time.monotonic() < self.began + START_S and self.process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                self.started_s = time.monotonic() - self.began
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

    def ask(self, prompt: List[int] = PROMPT, stream: bool = False, tokens: int = TOKENS) -> List[int]:
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True, "stream": stream}  # fmt: skip
        address, kind = f"http://127.0.0.1:{self.port}/v1/completions", {"Content-Type": "application/json"}
        request = urllib.request.Request(address, json.dumps(body).encode(), kind)
        with urllib.request.urlopen(request, timeout=120) as answer:
            if not stream:
                return json.load(answer)["choices"][0]["token_ids"]
            found = []
            for line in answer:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        found += choice["token_ids"] or []
            return found
