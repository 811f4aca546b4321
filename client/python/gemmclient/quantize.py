"""Quantizes a whole transformers model by GPTQ, layer by layer over what the quantized layers before it put out.

    python3 -m gemmclient.quantize MODEL --format int2 --calibration TEXT --output FOLDER

`gemmctl quantize MODEL ...` starts it. MODEL is a local folder with safetensors; the model is computed by transformers,
on the GPU where torch has one, and each layer's codes are found by `gemmctl quantize` on rows that it saw. FOLDER gets
the model's files with codes and scales in place of the weights: `gemmctl load FOLDER --format stored` takes it, and
`replace_linear(model, format, quantized=FOLDER)`. Blocks are quantized in their order; layers outside of them (the head,
embeddings) stay as they are. gemmd need not run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import torch
from torch import nn

from . import _safetensors
from ._model_blocks import Blocks, find_blocks
from ._native import library
from ._torch.module import as_array
from ._torch.replace import matching, tensor_name
from .errors import ExistsError, GemmdError, InvalidError, NotFoundError

__all__ = ["Made", "quantize_model", "tokens_of"]

Made = Dict[str, object]  # {name, n, k, rows, rounded, gptq}, as gemmctl prints it

_REAL = ("F32", "F16", "BF16")


def tokens_of(model: str, text: Path) -> torch.Tensor:
    """By the folder's tokenizer; where it has none, the text's bytes."""
    from transformers import AutoTokenizer

    if (Path(model) / "tokenizer.json").exists():
        return AutoTokenizer.from_pretrained(model)(text.read_text(), return_tensors="pt").input_ids[0]
    return torch.tensor(list(text.read_bytes()))


def windows_of(tokens: torch.Tensor, length: int, most: int) -> List[torch.Tensor]:
    """Windows of `length` tokens, none overlapping another, spread evenly where there are more than `most`."""
    whole = len(tokens) // length
    if whole == 0:
        raise InvalidError(f"the calibration has {len(tokens)} tokens; a window takes {length}")
    count = min(whole, most)
    return [tokens[at * length : (at + 1) * length] for at in (i * whole // count for i in range(count))]


class _Gemmctl:
    """`gemmctl quantize` for the layers of one stage, which see the same rows."""

    def __init__(self, folder: Path, options: Sequence[str]):
        self.folder, self.options = folder, list(options)
        self.program = os.environ.get("GEMMCTL") or library("gemmctl")
        if shutil.which(self.program) is None:
            raise NotFoundError(f"{self.program} cannot be run: $GEMMCTL says where gemmctl is that is not in $PATH")

    def quantize(self, number: int, linears: Dict[str, nn.Linear], rows: torch.Tensor) -> List[Made]:
        model, seen, codes = (self.folder / f"{name}.safetensors" for name in ("weights", "rows", f"codes{number}"))
        names = {path: tensor_name(path) for path in linears}
        _write(model, {names[path]: linear.weight for path, linear in linears.items()})
        _write(seen, {name: rows for name in names.values()})
        command = [self.program, "quantize", model, "--calibration", seen, "--output", codes, "--json", *self.options]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise InvalidError(done.stderr.strip().removeprefix("gemmctl: ") or f"gemmctl ended with {done.returncode}")
        reader = _safetensors.Reader(codes)
        for path, linear in linears.items():
            values = dequantized(reader, names[path])
            linear.weight.data = values.to(linear.weight.dtype).to(linear.weight.device)
        return json.loads(done.stdout)["tensors"]


def _write(file: Path, tensors: Dict[str, torch.Tensor]) -> None:
    made = {}
    for name, tensor in tensors.items():
        values, element = as_array(tensor)
        made[name] = (element.upper(), values.shape, values.data)
    with file.open("wb") as out:
        _safetensors.write(out, made)


def dequantized(file: _safetensors.Reader, name: str) -> torch.Tensor:
    """The numbers that codes and scales of a file of `gemmctl quantize` stand for, f32."""
    kind, (n, columns) = file.about(name)
    scale_kind, (_, scales) = file.about(f"{name}_scale")
    raw = torch.frombuffer(bytearray(file.data(name)), dtype=torch.int8 if kind == "I8" else torch.uint8)
    scale = torch.frombuffer(
        bytearray(file.data(f"{name}_scale")), dtype=torch.float16 if scale_kind == "F16" else torch.float32
    ).reshape(n, scales)
    codes = raw.reshape(n, -1)
    if kind == "U16":
        codes = (codes[:, :, None] >> torch.tensor([0, 4], dtype=torch.uint8) & 15).reshape(n, 4 * columns).int() - 8
    elif kind == "U8":
        codes = (codes[:, :, None] >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8) & 3).reshape(n, 4 * columns).int() - 1
    width = 128 if scales > 1 else codes.shape[1]
    return codes.float() * scale.float().repeat_interleave(width, 1)[:, : codes.shape[1]]


def _rounds_rows(_: nn.Module, inputs: tuple) -> tuple:
    """x as gemmd's INT8 weights get it: a row's largest magnitude is 127."""
    x = inputs[0]
    scale = x.abs().amax(-1, keepdim=True).float() / 127
    return (torch.where(scale > 0, (x / scale).round() * scale, x).to(x.dtype), *inputs[1:])


class _Source:
    """The tensors of a folder's safetensors files."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.files = [_safetensors.Reader(path) for path in sorted(folder.glob("*.safetensors"))]
        if not self.files:
            raise NotFoundError(f"{folder} has no safetensors")
        self.at = {name: file for file in self.files for name in file.names()}

    def check(self, name: str, linear: nn.Linear) -> None:
        if name not in self.at:
            raise NotFoundError(f"{self.folder} has no tensor {name}, the model's name of it")
        kind, shape = self.at[name].about(name)
        if kind not in _REAL or tuple(shape) != tuple(linear.weight.shape):
            raise InvalidError(f"{name} is {kind} {list(shape)} in the file, {list(linear.weight.shape)} in the model")

    def write(self, out: Path, codes: Dict[str, _safetensors.Reader]) -> None:
        """Each file with codes and scales in place of the weights that have become them, and all that is no tensor."""
        where = {}
        for file in self.files:
            tensors = {}
            for name in file.names():
                made = codes.get(name)
                names = [f"{name}_scale", name] if made is not None else [name]
                tensors.update({one: (made or file).view(one) for one in names})
            with (out / file.path.name).open("wb") as shard:
                _safetensors.write(shard, tensors)
            where.update(dict.fromkeys(tensors, file.path.name))
        if len(self.files) > 1:
            index = {"metadata": {}, "weight_map": where}
            (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
        for path in self.folder.iterdir():
            if path.is_file() and path.suffix in (".json", ".txt", ".model", ".jinja") and not (out / path.name).exists():
                if not path.name.endswith(".safetensors.index.json"):
                    shutil.copyfile(path, out / path.name)


def quantize_model(
    model: nn.Module,
    folder: Path,
    windows: Sequence[torch.Tensor],
    output: Path,
    options: Sequence[str],
    *,
    patterns: Sequence[str] = (),
    rows: int = 4096,
    int8: bool = False,
) -> List[Made]:
    """Quantizes `model`, which was loaded from `folder` and whose weights become what the codes stand for, and writes
    `output`, which must not exist. `options`: of `gemmctl quantize`, beside its files. `patterns`: of layers' paths; none:
    all in the model's blocks. `rows`: of activations a layer, at most. `int8`: rows of x are rounded as gemmd does."""
    if output.exists():
        raise ExistsError(f"{output} exists")
    source = _Source(folder)
    every = [one.path for one in matching(model, patterns or ("*",))]
    blocks = find_blocks(model, every, strict=bool(patterns))
    for block in blocks:
        for path, linear in block.linears.items():
            source.check(tensor_name(path), linear)
    output.parent.mkdir(parents=True, exist_ok=True)
    made: List[Made] = []
    codes: Dict[str, _safetensors.Reader] = {}
    run = Blocks(model, blocks, windows)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.part.", dir=output.parent) as part:
        (Path(part) / "codes").mkdir()
        (Path(part) / "model").mkdir()
        gemmctl = _Gemmctl(Path(part) / "codes", options)
        for number, block in enumerate(blocks):
            for stage in run.stages(number):
                linears = {path: block.linears[path] for path in stage}
                seen = run.rows(number, linears[stage[0]], rows)
                file = len(codes)
                made += gemmctl.quantize(file, linears, seen)
                reader = _safetensors.Reader(gemmctl.folder / f"codes{file}.safetensors")
                codes.update({tensor_name(path): reader for path in stage})
                for linear in linears.values():
                    if int8:
                        linear.register_forward_pre_hook(_rounds_rows)
                if sys.stderr.isatty():
                    print(f"\r{len(codes)} layers, {block.path}\x1b[K", end="", file=sys.stderr, flush=True)
            run.advance(number)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        source.write(Path(part) / "model", codes)
        (Path(part) / "model").rename(output)
    return made


def _parse(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gemmclient.quantize", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--format", required=True, choices=["int2", "int4", "int8"])
    parser.add_argument("--scale", choices=["row", "group"], help="of int2 and int4: group (if not given), row")
    parser.add_argument("--calibration", required=True, type=Path, metavar="TEXT", help="a text file")
    parser.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="must not exist")
    parser.add_argument("--tensor", action="append", default=[], metavar="PATTERN", help="which weights; all in blocks")
    parser.add_argument("--windows", type=int, default=64, help="of the text, at most (64)")
    parser.add_argument("--window", type=int, default=512, help="tokens of one; no more than the model takes (512)")
    parser.add_argument("--rows", type=int, default=4096, help="of activations a layer, at most (4096)")
    parser.add_argument("--damping", help="as of gemmctl quantize")
    parser.add_argument("--threads", help="as of gemmctl quantize")
    parser.add_argument("--dtype", default="float32", help="that the model is computed in (float32)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def _report(made: List[Made], as_json: bool) -> None:
    if as_json:
        json.dump({"tensors": made}, sys.stdout)
        print()
        return
    width = max(len(str(one["name"])) for one in made)
    print(f"{'TENSOR':<{width}} {'N':>6} {'K':>6} {'ROWS':>6} {'ROUNDED':>8} {'GPTQ':>8}")
    for one in made:
        print(f"{one['name']:<{width}} {one['n']:>6} {one['k']:>6} {one['rows']:>6} {one['rounded']:>8.4f} {one['gptq']:>8.4f}")


def main(words: Optional[Sequence[str]] = None) -> int:
    chosen = _parse(words)
    from transformers import AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    options = ["--format", chosen.format]
    for name in ("scale", "damping", "threads"):
        if getattr(chosen, name) is not None:
            options += [f"--{name}", getattr(chosen, name)]
    patterns = [pattern.removesuffix(".weight") for pattern in chosen.tensor]
    try:
        if not Path(chosen.model).is_dir():
            raise NotFoundError(f"{chosen.model} is no folder")
        model = AutoModelForCausalLM.from_pretrained(chosen.model, dtype=getattr(torch, chosen.dtype)).eval()
        length = min(chosen.window, getattr(model.config, "max_position_embeddings", chosen.window))
        windows = windows_of(tokens_of(chosen.model, chosen.calibration), length, chosen.windows)
        model = model.cuda() if torch.cuda.is_available() else model
        made = quantize_model(
            model, Path(chosen.model), windows, chosen.output, options,
            patterns=patterns, rows=chosen.rows, int8=chosen.format == "int8",
        )  # fmt: skip
    except (GemmdError, OSError, ValueError) as error:
        print(f"gemmclient.quantize: {error}", file=sys.stderr)
        return 1
    _report(made, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
