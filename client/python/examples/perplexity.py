#!/usr/bin/env python3
"""Perplexity of a transformers model before and after its linear layers are gemmd's.

    perplexity.py --model DIR --text FILE --format fp8 --format int2 --format int2,ternary
    perplexity.py --model DIR --text FILE --format int2 --layers 'model.layers.*.mlp.*'
    perplexity.py --model DIR --text FILE --format int2 --quantized FOLDER             # of `gemmctl quantize`

DIR is a local folder with a causal language model. Without a tokenizer in it tokens are the bytes of the text. Windows
of --window tokens, one behind the other, each predicts its own; the perplexity is the exponential of the mean of
-log p over all tokens but each window's first.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Optional, Sequence

import torch
from transformers import AutoModelForCausalLM, logging

import gemmclient
import gemmclient.torch
from gemmclient.quantize import tokens_of

logging.set_verbosity_error()
logging.disable_progress_bar()


@torch.no_grad()
def perplexity(model: torch.nn.Module, tokens: torch.Tensor, window: int) -> float:
    total, count = 0.0, 0
    for begin in range(0, len(tokens) - 1, window):
        part = tokens[begin : begin + window][None].to(model.device)
        if part.shape[1] < 2:
            break
        logits = model(part).logits[0, :-1].double()
        total += torch.nn.functional.cross_entropy(logits, part[0, 1:], reduction="sum").item()
        count += part.shape[1] - 1
    return math.exp(total / count)


def load(chosen: argparse.Namespace) -> torch.nn.Module:
    model = AutoModelForCausalLM.from_pretrained(chosen.model, dtype=getattr(torch, chosen.dtype)).eval()
    return model.cuda() if torch.cuda.is_available() else model


def served(chosen: argparse.Namespace, session: gemmclient.Session, wanted: str, tokens: torch.Tensor) -> dict:
    """What the model gives with layers of FORMAT[,SCALE][,METHOD]."""
    options = {"scale": "default", "method": "default"}
    format, *more = wanted.split(",")
    for word in more:
        options["scale" if word in ("one", "row", "block", "group") else "method"] = word.replace("-", "_")
    model = load(chosen)
    paths = gemmclient.torch.replace_linear(
        model,
        format,
        chosen.layers or ("*",),
        session=session,
        prefix="perplexity",
        quantized=chosen.quantized,
        release=True,
        **options,
    )
    return {"format": wanted, "layers": len(paths), "perplexity": perplexity(model, tokens, chosen.window)}


def main(words: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--text", required=True, type=Path, metavar="FILE")
    parser.add_argument("--format", required=True, action="append", metavar="FORMAT[,SCALE][,METHOD]", help="may be repeated")
    parser.add_argument("--quantized", type=Path, metavar="FOLDER", help="that gemmctl quantize has made, or a file")
    parser.add_argument("--layers", action="append", metavar="PATTERN", help="paths of layers; may be repeated (*)")
    parser.add_argument("--dtype", default="float32", help="of the model: float32, bfloat16, float16")
    parser.add_argument("--window", type=int, default=512, help="tokens (512)")
    parser.add_argument("--socket", help="of gemmd")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(words)
    tokens = tokens_of(chosen.model, chosen.text)
    said = {"tokens": len(tokens), "before": perplexity(load(chosen), tokens, chosen.window), "after": []}
    with gemmclient.connect(chosen.socket) as session:
        for wanted in chosen.format:
            said["after"].append(served(chosen, session, wanted, tokens))
    if chosen.json:
        json.dump(said, sys.stdout)
        print()
        return 0
    print(f"{len(tokens)} tokens: {said['before']:.4f}")
    for one in said["after"]:
        print(f"{one['format']:<20} {one['layers']:>4} layers: {one['perplexity']:.4f}, {one['perplexity'] / said['before']:.4f} of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
