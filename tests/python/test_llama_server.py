#!/usr/bin/python3
"""An HTTP server of llama.cpp with the ggml backend: two of them with one copy of the weights, the pages of the file
given back, workers and gemmd killed while they serve. $GGML: a tree of llama.cpp that is built; where its llama-server
is not, llama-cpp-python's of the same source, which this Python has. $GGML_MAKE_MODEL: the program that makes a model
(make test-ggml)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from typing import List

from support import BUILD, PATIENCE_S, Daemon

from kills import serve_through_kills
from vllm_server import free_port

TREE = Path(os.environ.get("GGML", ""))
BIN = TREE / "build/bin"
LLAMA_SERVER = BIN / "llama-server"
LINEARS = 7 * 4 + 1
CLIENTS, TOKENS = 4, 8
PROMPTS = [f"prompt of client {client}" for client in range(CLIENTS)]
NOBODY = 65534
# llama-cpp-python looks for no backends by itself.
EMBEDDING = """
import ctypes, runpy, sys
ctypes.CDLL(sys.argv.pop(1)).ggml_backend_load_all()
runpy.run_module("llama_cpp.server", run_name="__main__")
"""


class Server:
    """llama-server on a port of its own; ready when entered. `user`: that it runs as, None: this one."""

    def __init__(self, model: Path, socket: str = "", user: int = -1):
        self.port, self.log = free_port(), Path(tempfile.mkstemp(prefix="llama-")[1])
        environment = {**os.environ, "LD_LIBRARY_PATH": str(BIN), "LLAMA_CACHE": tempfile.gettempdir()}
        if socket:
            environment.update(GGML_BACKEND_PATH=str(BUILD / "libggml-gemmd.so"), GEMMD_SOCKET=socket)
        environment.update(LLAMA_CPP_LIB_PATH=str(BIN), TMPDIR=tempfile.gettempdir())
        command = self.command(str(model))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=tempfile.gettempdir(),
                **({"user": user, "group": user, "extra_groups": []} if user >= 0 else {}),
            )  # fmt: skip

    def command(self, model: str) -> List[str]:
        here = ["--host", "127.0.0.1", "--port", str(self.port)]
        if LLAMA_SERVER.exists():
            loads = ["-ot", "none=CPU"]  # what makes it look for backends where the CPU's is linked in
            return [str(LLAMA_SERVER), "-m", model, *here, "-t", "2", "-c", "1024", "-np", str(CLIENTS), "--no-warmup", *loads]
        return [sys.executable, "-c", EMBEDDING, str(BIN / "libggml.so"), "--model", model, *here, "--n_threads", "2",
                "--n_ctx", "512", "--use_mlock", "false", "--interrupt_requests", "false"]  # fmt: skip

    def __enter__(self) -> "Server":
        end = time.monotonic() + 5 * PATIENCE_S
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=PATIENCE_S).close()
                return self
            time.sleep(0.1)
        self.__exit__()
        raise AssertionError(self.log.read_text()[-4000:])

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.said = self.log.read_text(errors="replace")
        self.log.unlink()

    def ask(self, prompt: str) -> str:
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)["choices"][0]["text"]
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from None

    def mapped_bytes(self, model: Path) -> int:
        """Of the file, in this process's memory."""
        found, total = False, 0
        for line in Path(f"/proc/{self.process.pid}/smaps").read_text().splitlines():
            if "-" in line.split(" ", 1)[0]:
                found = line.endswith(model.name)
            elif found and line.startswith("Rss:"):
                total += int(line.split()[1]) << 10
        return total


class LlamaServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon("socket_mode = 0666")
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.folder.chmod(0o755)
        folder = tempfile.TemporaryDirectory(prefix="gemmd-llama-")
        cls.addClassCleanup(folder.cleanup)
        Path(folder.name).chmod(0o755)
        cls.model = Path(folder.name) / "f16.gguf"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(BIN)}
        subprocess.run([os.environ["GGML_MAKE_MODEL"], cls.model, "f16"], check=True, env=environment)
        with Server(cls.model) as server:
            cls.expected = [server.ask(prompt) for prompt in PROMPTS]
            cls.plain_bytes = server.mapped_bytes(cls.model)

    def loads(self) -> int:
        return self.daemon.log().count('loaded "ggml/')

    def test_two_servers_and_one_copy(self):
        self.assertEqual(len(set(self.expected)), CLIENTS)
        with Server(self.model, self.daemon.socket) as first:
            self.assertEqual([first.ask(prompt) for prompt in PROMPTS], self.expected)
            self.assertEqual(self.loads(), LINEARS)
            with Server(self.model, self.daemon.socket) as second:
                self.assertEqual([second.ask(prompt) for prompt in PROMPTS], self.expected)
                self.assertEqual(self.loads(), LINEARS)
                mapped = [server.mapped_bytes(self.model) for server in (first, second)]
                print(f"MiB of the file in memory: {self.plain_bytes >> 20} without, {[m >> 20 for m in mapped]} with")
                for one in mapped:  # the embedding stays, which is an eighth of it
                    self.assertLess(one, self.plain_bytes / 4)
        self.assertIn(f"gemmd: has {LINEARS} weights", first.said)
        self.assertIn(f"products of {LINEARS} in this process", second.said)

    def killed_while_it_serves(self, server):
        ask = lambda client: server.ask(PROMPTS[client]) == self.expected[client]  # noqa: E731
        print(f"{serve_through_kills(self, self.daemon, ask, CLIENTS)} answers through kills")

    def test_y_killed_while_it_serves(self):
        with Server(self.model, self.daemon.socket) as server:
            self.killed_while_it_serves(server)

    @unittest.skipUnless(os.getuid() == 0, "needs another user, whom gemmd does not lend weights")
    def test_z_killed_while_the_worker_computes(self):
        """It gives gemmd its weights anew when that has been killed."""
        with Server(self.model, self.daemon.socket, NOBODY) as server:
            self.assertEqual([server.ask(prompt) for prompt in PROMPTS], self.expected)
            self.killed_while_it_serves(server)
        self.assertIn(f"of {LINEARS} by gemmd's worker", server.said)


if __name__ == "__main__":
    if not LLAMA_SERVER.exists() and importlib.util.find_spec("llama_cpp") is None:
        raise SystemExit("test_llama_server.py needs GGML=path of a tree of llama.cpp that is built, or llama_cpp.server")
    unittest.main(verbosity=2)
