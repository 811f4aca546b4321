#!/usr/bin/env python3
"""Makes a model repository of Triton from the weights that gemmd has: a model a weight.

    repository.py models --pattern 'llama.*' --type fp16

gemmclient for Python has to be installed. A model is called as its weight is, with '_' for what Triton's names have
not. Folders that are there already are refused; --replace writes their config.pbtxt anew."""

import argparse
import re
import sys
from pathlib import Path

import gemmclient

TYPES = {"fp32": "TYPE_FP32", "fp16": "TYPE_FP16", "bf16": "TYPE_BF16"}
CONFIG = """backend: "gemmd"
max_batch_size: {batch}
input [{{ name: "x" data_type: {type} dims: [{k}] }}]
output [{{ name: "y" data_type: {type} dims: [{n}] }}]
instance_group [{{ kind: KIND_CPU count: {instances} }}]
dynamic_batching {{ max_queue_delay_microseconds: {delay} }}
parameters {{ key: "weight" value: {{ string_value: {weight} }} }}
parameters {{ key: "rows" value: {{ string_value: "{rows}" }} }}
"""
SOCKET = 'parameters {{ key: "socket" value: {{ string_value: {socket} }} }}\n'


def quoted(text: str) -> str:
    """As text format of protocol buffers has strings."""
    safe = "".join(chr(one) if 32 <= one < 127 and one not in b'"\\' else f"\\{one:03o}" for one in text.encode())
    return f'"{safe}"'


def model_name(weight: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", weight)


def models(weights, chosen):
    """name -> text of config.pbtxt. Weights with experts are no single product."""
    made = {}
    for info in weights:
        if info.experts:
            continue
        name = model_name(info.name)
        if name in made:
            raise SystemExit(f"two weights would be called {name}; choose by --pattern")
        text = CONFIG.format(
            batch=chosen.batch, type=TYPES[chosen.type], k=info.k, n=info.n, instances=chosen.instances,
            delay=chosen.delay, weight=quoted(info.name), rows=chosen.rows,
        )  # fmt: skip
        made[name] = text + (SOCKET.format(socket=quoted(chosen.socket)) if chosen.socket else "")
    return made


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Triton's --model-repository")
    parser.add_argument("--pattern", help="of weights' names, as fnmatch(3) has them; all without it")
    parser.add_argument("--socket", help="of gemmd; without it $GEMMD_SOCKET, else /run/gemmd/gemmd.sock")
    parser.add_argument("--type", choices=TYPES, default="fp32", help="of x and y")
    parser.add_argument("--batch", type=int, default=64, help="max_batch_size")
    parser.add_argument("--delay", type=int, default=0, help="microseconds that a request waits for others")
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1024, help="that an instance computes at a time")
    parser.add_argument("--replace", action="store_true")
    chosen = parser.parse_args(arguments)
    with gemmclient.connect(chosen.socket) as session:
        made = models(session.weights(chosen.pattern), chosen)
    there = [name for name in made if (chosen.folder / name).exists()]
    if there and not chosen.replace:
        raise SystemExit(f"{chosen.folder / there[0]} is there already")
    for name, text in made.items():
        (chosen.folder / name / "1").mkdir(parents=True, exist_ok=True)
        (chosen.folder / name / "config.pbtxt").write_text(text)
    print(f"{len(made)} models in {chosen.folder}")
    return 0 if made else 1


if __name__ == "__main__":
    sys.exit(main())
