#!/usr/bin/env python3
"""A Llama of transformers by gemmd: tokens a second beside the same model in bf16, in one run.

    GEMMD_BUILD=build/gemmd-0.1.0-x86_64 tests/gpu_llama.py [--formats fp8,int2] [--batches 1,16] [--tokens 128]

The 8B shape (32 layers of 4096, 14336, 32 and 8 heads, 128256 words) with random weights; --distinct layers have weights
of their own and stand for the others, too, which changes nothing of the time. generate() with a static cache, which compiles the
decoding step and records it as a CUDA graph. All linear layers of the blocks go to gemmd; the head stays. A line a batch:
tokens a second of all rows, decoding alone (the time of a long answer less that of a short one)."""

import argparse
import copy
import statistics
import sys
import tempfile
import time
from pathlib import Path

import gpu_engine as engine  # finds the libraries
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import gemmclient.torch

SHORT = 16  # tokens, of the answer whose time is taken off


def standing_for(layer, number):
    """A layer with the weights of another one, and a place of its own in the cache."""
    layer, attention = shallow(layer), shallow(layer.self_attn)
    attention.layer_idx = number
    layer.self_attn = attention
    return layer


def shallow(module):
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin


def made(distinct, layers, small):
    config = LlamaConfig(
        hidden_size=256 if small else 4096,
        intermediate_size=512 if small else 14336,
        num_hidden_layers=distinct,
        num_attention_heads=4 if small else 32,
        num_key_value_heads=2 if small else 8,
        vocab_size=512 if small else 128256,
        max_position_embeddings=4096,
    )
    torch.manual_seed(1)
    with torch.device(engine.DEVICE):
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    model.model.layers = nn.ModuleList([standing_for(model.model.layers[i % distinct], i) for i in range(layers)])
    model.config.num_hidden_layers = layers
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def answer_s(model, ids, tokens):
    if engine.DEVICE.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    out = model.generate(
        ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, cache_implementation="static"
    )
    if engine.DEVICE.type == "cuda":
        torch.cuda.synchronize()
    assert out.shape[1] == ids.shape[1] + tokens, out.shape
    return time.perf_counter() - begin


def rate(model, batch, tokens):
    """Tokens a second, median of three; what compiles and records comes before."""
    ids = torch.arange(1, 1 + batch * 8, device=engine.DEVICE).reshape(batch, 8) % 500
    for count in (tokens, SHORT, tokens):
        answer_s(model, ids, count)
    times = [answer_s(model, ids, tokens) - answer_s(model, ids, SHORT) for _ in range(3)]
    return batch * (tokens - SHORT) / statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default="fp8,int2")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--distinct", type=int, default=4)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--small", action="store_true", help="a model that shows that the script works")
    parser.add_argument("--backend", default="cuda")
    arguments = parser.parse_args()
    engine.DEVICE = torch.device(arguments.backend)
    batches = [int(one) for one in arguments.batches.split(",")]
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        daemon, session = engine.start_gemmd(Path(folder), arguments.backend)
        try:
            model = made(arguments.distinct, arguments.layers, arguments.small)
            plain = {batch: rate(model, batch, arguments.tokens) for batch in batches}
            for batch in batches:
                print(f"bf16 batch {batch}: {plain[batch]:.1f} tokens/s", flush=True)
            for format in arguments.formats.split(","):
                del model
                torch._dynamo.reset()
                model = made(arguments.distinct, arguments.layers, arguments.small)
                begin = time.perf_counter()
                replaced = gemmclient.torch.replace_linear(model.model, format, session=session, prefix=format)
                print(f"{format}: {len(replaced)} layers replaced in {time.perf_counter() - begin:.1f} s", flush=True)
                for batch in batches:
                    ours = rate(model, batch, arguments.tokens)
                    print(f"{format} batch {batch}: {ours:.1f} tokens/s, by bf16's {ours / plain[batch]:.2f}", flush=True)
        finally:
            print((Path(folder) / "log").read_text()[-600:], file=sys.stderr)
            daemon.terminate()


if __name__ == "__main__":
    main()
