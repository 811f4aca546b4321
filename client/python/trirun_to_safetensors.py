#!/usr/bin/env python3
"""A TriRun checkpoint (.pt) as a safetensors file, from which gemmd loads its layers:

    python trirun_to_safetensors.py model.pt model.safetensors
    gemmctl load model.safetensors --tensor layer.B --name layer --format int2

The checkpoint is read by torch's weights-only loader, which executes nothing that is in it. Needs torch.
"""

import argparse
import json
import os
import sys

import torch

TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


def tensors(state, prefix=""):
    """The tensors of nested dictionaries by their names, joined by dots."""
    found = {}
    for key, value in state.items():
        name = f"{prefix}{key}"
        inner = {name: value} if isinstance(value, torch.Tensor) else {}
        if isinstance(value, dict):
            inner = tensors(value, name + ".")
        for each in inner:
            if each in found:
                raise ValueError(f"two tensors are named {each}")
        found.update(inner)
    return found


def layers(found):
    """Names of the layers that TriRun has packed."""
    names = []
    for name, tensor in found.items():
        stem, _, last = name.rpartition(".")
        scales = found.get(f"{stem}.s" if stem else "s")
        packed = last == "B" and tensor.dtype == torch.int32 and tensor.dim() == 2
        if packed and scales is not None and scales.dtype == torch.float16:
            names.append(name)
    return names


def write(found, path):
    header, offset = {}, 0
    for name, tensor in found.items():
        if tensor.dtype not in TYPES:
            raise ValueError(f"tensor {name} is {tensor.dtype}, which safetensors files do not hold")
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = f"{path}.part"
    with open(part, "xb") as out:  # nobody's until now
        try:
            out.write(len(text).to_bytes(8, "little") + text)
            for tensor in found.values():
                out.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
            out.flush()
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise


def convert(source, target):
    """Writes `target` and returns the names of the packed layers' codes."""
    if os.path.exists(target) and os.path.samefile(source, target):
        raise ValueError(f"{target} is read, and would be overwritten")
    state = torch.load(source, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise ValueError(f"{source} holds {type(state).__name__}, not a dictionary of tensors")
    found = tensors(state)
    names = layers(found)
    if not names:
        raise ValueError(f"{source} has no layer of TriRun: no I32 tensor B with an F16 tensor s beside it")
    write(found, target)
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("safetensors")
    arguments = parser.parse_args()
    try:
        for name in convert(arguments.checkpoint, arguments.safetensors):
            print(name)
    except Exception as error:  # whatever a damaged or hostile file makes torch raise
        sys.exit(f"{arguments.checkpoint}: {error}")


if __name__ == "__main__":
    main()
