#!/usr/bin/env python3
"""Processes that generate with one model of transformers, whose weights gemmd has once.

    generate.py --model DIR --format fp8 --processes 2 --prompt "The daemon"
    generate.py --model DIR --format none --processes 2       # the same without gemmd, to compare

Prints how long each process took until it could serve; then all generate at once, and it prints for each the tokens a
second, the memory that is its own, and its tokens. DIR is a folder that save_pretrained has made, or a model's folder as it comes from a hub. Without a tokenizer in
it the prompt is the tokens 1, 2, 3 ...
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

logging.set_verbosity_error()
logging.disable_progress_bar()


def own_mib() -> float:
    """Of this process alone: not what it shares with others, as files that are mapped and weights that are lent."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def prompt_of(chosen: argparse.Namespace) -> torch.Tensor:
    if (Path(chosen.model) / "tokenizer.json").exists():
        return AutoTokenizer.from_pretrained(chosen.model)(chosen.prompt, return_tensors="pt").input_ids
    return torch.arange(1, 17)[None]


def serve(chosen: argparse.Namespace) -> None:
    """What one process does: says when it is ready, and generates once for each line that it is sent."""
    begin = time.monotonic()
    options = {}
    if chosen.format != "none":
        from gemmclient.transformers import GemmdConfig

        options["quantization_config"] = GemmdConfig(chosen.format, socket=chosen.socket)
    model = AutoModelForCausalLM.from_pretrained(chosen.model, dtype=getattr(torch, chosen.dtype), **options).eval()
    if torch.cuda.is_available():
        model = model.cuda()
    prompt = prompt_of(chosen).to(model.device)

    def generate(count: int) -> list:
        made = model.generate(
            prompt, max_new_tokens=count, min_new_tokens=count, do_sample=False, cache_implementation="static"
        )
        return made[0, prompt.shape[1] :].tolist()

    generate(2)
    say({"start_s": time.monotonic() - begin})
    for _ in sys.stdin:
        begin = time.monotonic()
        tokens = generate(chosen.tokens)
        say({"tokens_per_s": chosen.tokens / (time.monotonic() - begin), "own_mib": own_mib(), "tokens": tokens})


def say(what: dict) -> None:
    print(json.dumps(what), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--format", default="int8", help="int8, fp8, int2a8, f16, bf16; none: torch computes")
    parser.add_argument("--dtype", default="float32", help="torch's, of what is between the products")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", default="The daemon")
    parser.add_argument("--socket", help="of gemmd; without it $GEMMD_SOCKET, else /run/gemmd/gemmd.sock")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen)
        return 0
    command = [sys.executable, __file__, *sys.argv[1:], "--serve"]
    processes = []
    for number in range(chosen.processes):  # one after the other, as replicas start
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        print(f"{number}: ready after {answer(process)['start_s']:.1f} s", flush=True)
    for process in processes:  # all at once
        process.stdin.write("\n")
        process.stdin.flush()
    for number, process in enumerate(processes):
        said = answer(process)
        print(f"{number}: {said['tokens_per_s']:.1f} tokens/s, {said['own_mib']:.0f} MiB its own, {said['tokens']}")
    for process in processes:
        process.stdin.close()
        process.wait()
    return 0


def answer(process: subprocess.Popen) -> dict:
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a process has ended; what it said stands above")
    return json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
