#!/usr/bin/env python3
"""A Qwen3-MoE of random weights writes a text, by torch alone and with its experts served by gemmd.

    python experts.py [--format int8] [--size small|large] [--tokens 32] [--device cuda]
                      [--socket PATH]

Prints tokens a second of both, how far apart their logits are, and how many of torch's greedy tokens gemmd's experts
choose, too, when they read the same text. Needs torch and transformers 5; without --socket a gemmd of its own runs.
"""

from __future__ import annotations

import argparse
import copy
import time

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import gemmclient
import gemmclient.torch

SIZES = {
    "small": dict(hidden_size=256, moe_intermediate_size=128, num_experts=16, num_hidden_layers=2),
    "large": dict(hidden_size=1024, moe_intermediate_size=768, num_experts=64, num_hidden_layers=4),
}


def make_model(size: str, dtype: torch.dtype) -> Qwen3MoeForCausalLM:
    config = Qwen3MoeConfig(
        vocab_size=4096, num_attention_heads=8, num_key_value_heads=4, head_dim=32, intermediate_size=512,
        num_experts_per_tok=8, norm_topk_prob=True, max_position_embeddings=1024, **SIZES[size],
    )  # fmt: skip
    torch.manual_seed(1)
    return Qwen3MoeForCausalLM(config).to(dtype).eval()


def write(model: Qwen3MoeForCausalLM, prompt: torch.Tensor, tokens: int):
    """The text, and tokens a second of the second time: the first has what comes once."""
    for _ in range(2):
        begin = time.perf_counter()
        text = model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0).cpu()
        speed = tokens / (time.perf_counter() - begin)
    return text.to(prompt.device), speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", default="int8")
    parser.add_argument("--dtype", default="bfloat16", help="of the model")
    parser.add_argument("--size", default="small", choices=SIZES)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--device", default="cpu", help="of the model")
    parser.add_argument("--socket", default="embedded:")
    options = parser.parse_args()
    model = make_model(options.size, getattr(torch, options.dtype)).to(options.device)
    prompt = torch.randint(0, 4096, (1, 16)).to(options.device)
    with gemmclient.connect(options.socket) as session, torch.inference_mode():
        ours = copy.deepcopy(model)
        paths = gemmclient.torch.replace_experts(ours, options.format, session=session, release=True)
        text, torch_speed = write(model, prompt, options.tokens)
        _, our_speed = write(ours, prompt, options.tokens)
        right, got = model(text).logits.double(), ours(text).logits.double()
        off = float((got - right).norm() / right.norm())
        new = slice(prompt.shape[1] - 1, -1)
        alike = int((got.argmax(-1) == text.roll(-1, 1))[:, new].sum())
        print(f"{len(paths)} layers of experts as {options.format}")
        print(f"torch       {torch_speed:8.1f} tokens a second")
        print(f"with gemmd  {our_speed:8.1f} tokens a second")
        print(f"logits differ by {off:.2e}; {alike} of {options.tokens} greedy tokens are the same")
        del ours


if __name__ == "__main__":
    main()
