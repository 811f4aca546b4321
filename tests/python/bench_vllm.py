#!/usr/bin/python3
"""vLLM's HTTP server with gemmd and without: seconds to start, requests a second, and memory of a first and a second
server. Python is that of `make test-vllm`. Servers take turns (A B B A): one at a time is asked, the others stand
still.

    bench_vllm.py MODEL [--requests 6] [--turns 3] [--tokens 16] WAY ...

A WAY is a label and arguments of the server: "int8=--quantization gemmd_int8"; the first is what others are compared
with."""

import argparse
import concurrent.futures
import contextlib
import os
import shlex
import signal
import statistics
import time
from pathlib import Path

from support import Daemon
from vllm_server import Server, descendants, memory_bytes

CONCURRENT = (1, 8)


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
    parser.add_argument("model", type=Path)
    parser.add_argument("ways", nargs="+", metavar="WAY")
    parser.add_argument("--requests", type=int, default=6, help="of each client a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16, help="of each answer")
    parser.add_argument("--second", action="store_true", help="start a second server of each, for its memory and start")
    chosen = parser.parse_args()
    with Daemon() as daemon, contextlib.ExitStack() as stack:
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
                        rate = requests_a_second(servers[label], at_once, chosen.requests, chosen.tokens)
                        rates.setdefault((label, at_once), []).append(rate)
        first = next(iter(servers))
        print(f"{'':12} " + "  ".join(f"{at_once} at once: requests/s, best, of {first}" for at_once in CONCURRENT))
        for label in servers:
            cells = []
            for at_once in CONCURRENT:
                own, other = rates[label, at_once], rates[first, at_once]
                middle = statistics.median(own)
                ratios = f"{middle / statistics.median(other):5.2f} ({max(own) / max(other):.2f})"
                cells.append(f"{middle:6.2f} {max(own):6.2f} {ratios}")
            print(f"{label:12} " + "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
