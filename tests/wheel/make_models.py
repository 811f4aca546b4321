"""What the first example of client/python's README reads: model.safetensors, and the folder llama/ with two shards."""

import json
from pathlib import Path

import numpy as np


def write(path, tensors):
    header, begin = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [begin, begin + array.nbytes]}
        begin += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(one.tobytes() for one in tensors.values()))


def random(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


write(Path("model.safetensors"), {"mlp.up.weight": random(192, 128)})
shards = {
    "model-00001-of-00002.safetensors": {"model.embed_tokens.weight": random(64, 128)},
    "model-00002-of-00002.safetensors": {"model.layers.0.mlp.up_proj.weight": random(192, 128)},
}
Path("llama").mkdir()
for name, tensors in shards.items():
    write(Path("llama", name), tensors)
index = {tensor: name for name, tensors in shards.items() for tensor in tensors}
Path("llama/model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
Path("llama/config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
