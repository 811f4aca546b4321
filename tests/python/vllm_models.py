"""Small Llamas with random weights, as checkpoints of vLLM's in the formats that people have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, List, Tuple

import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, LlamaConfig, LlamaForCausalLM

E4M3_MOST = 448.0
BLOCK = 128
GROUP = 128
FORMATS = ("plain", "int8", "fp8", "fp8_block", "w4a16")


def make(folder: Path) -> Dict[str, Path]:
    """One model in each of the formats: the quantized ones from the plain one's values."""
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    plain = folder / "plain"
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(plain)
    folders = {"plain": plain}
    tensors = load_file(plain / "model.safetensors")
    settings = json.loads((plain / "config.json").read_text())
    for format in FORMATS[1:]:
        to = folders[format] = folder / format
        to.mkdir()
        made = {}
        for name, tensor in tensors.items():
            if name.endswith("proj.weight") and format == "w4a16":
                made.update(_four_bits(name, tensor.float()))
            elif name.endswith("proj.weight"):
                made[name], scale_name, made_scale = _quantized(tensor.float(), format)
                made[name.removesuffix("weight") + scale_name] = made_scale
            else:
                made[name] = tensor
        save_file(made, to / "model.safetensors")
        (to / "config.json").write_text(json.dumps({**settings, "quantization_config": _settings(format)}))
    return folders


def _quantized(w: torch.Tensor, format: str) -> Tuple[torch.Tensor, str, torch.Tensor]:
    if format == "int8":
        scale = w.abs().amax(1, keepdim=True) / 127
        return torch.round(w / scale).to(torch.int8), "weight_scale", scale
    if format == "fp8":
        scale = w.abs().amax() / E4M3_MOST
        return (w / scale).to(torch.float8_e4m3fn), "weight_scale", scale
    blocks = w.reshape(w.shape[0] // BLOCK, BLOCK, w.shape[1] // BLOCK, BLOCK)
    scale = blocks.abs().amax((1, 3)) / E4M3_MOST
    return (blocks / scale[:, None, :, None]).reshape(w.shape).to(torch.float8_e4m3fn), "weight_scale_inv", scale


def _four_bits(name: str, w: torch.Tensor) -> Dict[str, torch.Tensor]:
    """As compressed-tensors has them: code c for c - 8, eight a word."""
    groups = w.reshape(w.shape[0], -1, GROUP)
    scale = (groups.abs().amax(2) / 7).to(torch.bfloat16)
    codes = (torch.round(groups / scale.float()[:, :, None]).clamp(-8, 7) + 8).to(torch.int32).reshape(w.shape[0], -1, 8)
    return {
        f"{name}_packed": (codes << torch.arange(0, 32, 4, dtype=torch.int32)).sum(2, dtype=torch.int32),
        f"{name}_scale": scale,
        f"{name}_shape": torch.tensor(w.shape),
    }


def _settings(format: str) -> dict:
    if format == "fp8":
        return {"quant_method": "fp8", "activation_scheme": "dynamic"}
    if format == "fp8_block":
        return {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
    if format == "w4a16":
        weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
        return {
            "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"],
        }  # fmt: skip
    eight = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**eight, "strategy": "channel", "dynamic": False},
        "input_activations": {**eight, "strategy": "token", "dynamic": True},
    }
    return {
        "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
        "config_groups": {"group_0": group}, "ignore": ["lm_head"],
    }  # fmt: skip


def make_wide(folder: Path) -> int:
    """A plain one whose linear layers are nearly all of it. How many elements they have."""
    torch.manual_seed(12)
    config = LlamaConfig(
        vocab_size=512, hidden_size=2048, intermediate_size=5632, num_hidden_layers=3, num_attention_heads=16,
        num_key_value_heads=4, max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    return sum(one.numel() for name, one in model.named_parameters() if name.endswith("proj.weight"))


def make_latent(folder: Path) -> None:
    """A plain DeepSeek of two dense layers, whose attention is by a latent that kv_b_proj expands."""
    torch.manual_seed(13)
    config = DeepseekV2Config(
        vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, q_lora_rank=128, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, first_k_dense_replace=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    DeepseekV2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def reference(folders: Dict[str, Path], format: str, prompt: List[int], count: int) -> List[int]:
    """Greedy tokens as the codes say, products in float32, by transformers: of INT8 x by rows to 8 bits, of 4 bits x as
    it is."""
    model = LlamaForCausalLM.from_pretrained(folders["plain"], dtype=torch.float32).eval()
    codes = load_file(folders[format] / "model.safetensors")
    for name, module in model.named_modules():
        if name.endswith("proj") and format == "int8":
            module.weight.data = codes[f"{name}.weight"].float() * codes[f"{name}.weight_scale"]
            module.register_forward_pre_hook(lambda _, inputs: (_rounded(inputs[0]), *inputs[1:]))
        elif name.endswith("proj"):
            words = codes[f"{name}.weight_packed"][:, :, None] >> torch.arange(0, 32, 4, dtype=torch.int32) & 15
            scale = codes[f"{name}.weight_scale"].float().repeat_interleave(GROUP, 1)
            module.weight.data = (words.reshape(scale.shape).float() - 8) * scale
    made = model.generate(
        torch.tensor([prompt]), max_new_tokens=count, min_new_tokens=count, do_sample=False, eos_token_id=None
    )
    return made[0, len(prompt) :].tolist()


def _rounded(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale) * scale
