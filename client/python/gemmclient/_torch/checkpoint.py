"""Checkpoints that other tools have quantized (GPTQ, AWQ, compressed-tensors): gemmd loads them, layers open them by name."""

from __future__ import annotations

import json
from pathlib import Path as Folder
from typing import Dict, List, Sequence, Set, Tuple

from .. import _safetensors
from .._vllm_plan import literal, prefix_of
from ..errors import BadFileError, NotFoundError
from ..session import Session
from ..types import Format, Named, member
from .module import Path

_REAL = ("F32", "F16", "BF16")


def is_checkpoint(path: Path) -> bool:
    """A folder whose configuration says how it is quantized."""
    config = Folder(path) / "config.json"
    try:
        return config.is_file() and "quantization_config" in json.loads(config.read_text())
    except (OSError, ValueError):
        raise BadFileError(f"{config} cannot be read as JSON") from None


def _files(folder: Path) -> List[Folder]:
    return sorted(Folder(folder).glob("*.safetensors"))


def real_layers(folder: Path) -> Set[str]:
    """Paths of layers whose weights were left as numbers."""
    found = set()
    for file in map(_safetensors.Reader, _files(folder)):
        names = [name for name in file.names() if name.endswith(".weight")]
        found |= {name.removesuffix(".weight") for name in names if file.about(name)[0] in _REAL}
    return found


def load_layers(
    folder: Path, layers: Sequence[str], session: Session, prefix: str, format: Named
) -> Tuple[Dict[str, str], bool]:
    """The names in gemmd of the layers' weights, and whether they were loaded for it; all or none are."""
    files = list(map(str, _files(folder)))
    if not files:
        raise NotFoundError(f"{folder} has no safetensors")
    chosen = member(Format, format, "format").name.lower()
    begin = prefix_of(files, Folder(folder).resolve().name, chosen, prefix)
    names = {layer: f"{begin}{layer}.weight" for layer in layers}
    try:
        for name in names.values():
            session.stat(name)
        return names, False
    except NotFoundError:
        patterns = [literal(f"{layer}.weight") for layer in layers]
        session.load_model(folder, format=chosen, patterns=patterns, prefix=begin)
        return names, True
