#!/usr/bin/python3
"""vLLM's HTTP server with gemmd and without: seconds to start, requests a second, and memory of a first and a second
server. Python is that of `make test-vllm`. Servers take turns (A B B A): one at a time is asked, the others stand
still.

    bench_vllm.py [--model FOLDER] [--requests 6] [--turns 3] [--tokens 16] [WAY ...]

A WAY is a label and arguments of the server: "int8=--quantization gemmd_int8"; the first is what others are compared
with. Without any: vLLM alone, and gemmd_int8 by name. Without a model: a Llama of random weights, whose linear layers
are nearly all of it."""

import argparse
import concurrent.futures
import contextlib
import os
import shlex
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import Daemon
import vllm_models
from processes import cpu_seconds, descendants, memory_bytes
from vllm_server import Server

CONCURRENT = (1, 8)
WAYS = ["plain=", "int8=--quantization gemmd_int8 --load-format gemmd"]


def requests_a_second(server, at_once, count, tokens):
    prompts = [[3 + number % 100, 5, 6, 7, 8, 9, 10] for number in range(count * at_once)]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        began = time.monotonic()
        list(pool.map(lambda prompt: server.ask(prompt, tokens=tokens), prompts))
        return len(prompts) / (time.monotonic() - began)


@contextlib.contextmanager
def running(server):
    """Only while it is asked: a server that waits polls."""
    for pid in descendants(server.process.pid):
        os.kill(pid, signal.SIGCONT)
    yield
    for pid in descendants(server.process.pid):
        os.kill(pid, signal.SIGSTOP)


def go_on(servers):
    for server in servers:
        for pid in descendants(server.process.pid):
            os.kill(pid, signal.SIGCONT)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("ways", nargs="*", metavar="WAY", default=WAYS)
    parser.add_argument("--requests", type=int, default=6, help="of each client a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16, help="of each answer")
    parser.add_argument("--second", action="store_true", help="start a second server of each, for its memory and start")
    chosen = parser.parse_args()
    with Daemon() as daemon, contextlib.ExitStack() as stack:
        if chosen.model is None:
            chosen.model = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-vllm-")))
            vllm_models.make_wide(chosen.model)
        servers, rates = {}, {}
        for way in chosen.ways:
            label, _, arguments = way.partition("=")
            server = stack.enter_context(Server(chosen.model, daemon.socket, *shlex.split(arguments)))
            server.ask()
            servers[label] = server
            own = memory_bytes([server.process.pid])
            print(f"{label}: started in {server.started_s:.1f} s, {own >> 20} MiB", flush=True)
            if chosen.second:
                before = memory_bytes([daemon.process.pid, server.process.pid])
                with Server(chosen.model, daemon.socket, *shlex.split(arguments)) as second:
                    second.ask()
                    more = memory_bytes([daemon.process.pid, server.process.pid, second.process.pid]) - before
                    print(f"{label}: a second one in {second.started_s:.1f} s, {more >> 20} MiB more", flush=True)
            for pid in descendants(server.process.pid):
                os.kill(pid, signal.SIGSTOP)
        stack.callback(go_on, servers.values())
        for turn in range(chosen.turns):
            for label in servers if turn % 2 == 0 else reversed(list(servers)):
                with running(servers[label]):
                    servers[label].ask()
                    for at_once in CONCURRENT:
                        roots = [servers[label].process.pid, daemon.process.pid]
                        before = cpu_seconds(roots)
                        rate = requests_a_second(servers[label], at_once, chosen.requests, chosen.tokens)
                        used = (cpu_seconds(roots) - before) / (chosen.requests * at_once)
                        rates.setdefault((label, at_once), []).append((rate, 1 / used))
        report(rates, list(servers))


def report(rates, labels):
    """A second of the clock, and of processor time: server and gemmd, for machines that others use, too."""
    for at_once in CONCURRENT:
        for place, what in enumerate(("requests/s", "requests a second of processors")):
            values = {label: [one[place] for one in rates[label, at_once]] for label in labels}
            print(f"{at_once} at once, {what}: median, best; ratios of both to {labels[0]}'s")
            for label in labels:
                middle, best = statistics.median(values[label]), max(values[label])
                first = values[labels[0]]
                print(f"  {label:12} {middle:7.3f} {best:7.3f}  {middle / statistics.median(first):.2f} "
                      f"{best / max(first):.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
