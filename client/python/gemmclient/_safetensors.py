"""As much of the safetensors format as this package needs: 8 bytes of length, a JSON header, the tensors' bytes."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import IO, Dict, Iterable, List, Mapping, Tuple, Union

from .errors import BadFileError, NotFoundError

__all__ = ["Reader", "file_of", "write"]

LENGTH_BYTES = 8
HEADER_BYTES_MOST = 100 << 20  # safetensors' own limit
Buffer = Union[bytes, memoryview]


def write(file: IO[bytes], tensors: Mapping[str, Tuple[str, Iterable[int], Buffer]]) -> None:
    """name -> (type as safetensors calls it, shape, bytes)."""
    header, begin = {}, 0
    for name, (kind, shape, data) in tensors.items():
        end = begin + memoryview(data).nbytes
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
    for _, _, data in tensors.values():
        file.write(data)


class Reader:
    """The header of a file, and its tensors' bytes as they lie there."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]):
        self.path = Path(path)
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if length > HEADER_BYTES_MOST:
                raise BadFileError(f"{path}: a header of {length} bytes")
            try:
                self._header: Dict = json.loads(file.read(length))
            except ValueError as error:
                raise BadFileError(f"{path}: the header is no JSON: {error}") from None
        self._begin = LENGTH_BYTES + length

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def names(self) -> List[str]:
        return [name for name in self._header if name != "__metadata__"]

    def about(self, name: str) -> Tuple[str, List[int]]:
        """Type, as safetensors calls it, and shape."""
        if name not in self:
            raise NotFoundError(f"{self.path} has no tensor {name}")
        return self._header[name]["dtype"], self._header[name]["shape"]

    def data(self, name: str) -> bytes:
        return bytes(self.view(name)[2])

    def view(self, name: str) -> Tuple[str, List[int], memoryview]:
        """What `write` takes; the bytes are read from the file as they are used."""
        kind, shape = self.about(name)
        begin, end = (self._begin + at for at in self._header[name]["data_offsets"])
        if begin == end:
            return kind, shape, memoryview(b"")
        with self.path.open("rb") as file:
            first = begin // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            memory = mmap.mmap(file.fileno(), end - first, access=mmap.ACCESS_READ, offset=first)
        return kind, shape, memoryview(memory)[begin - first :]


def file_of(path: Union[str, "os.PathLike[str]"], names: Iterable[str]) -> Path:
    """Of a folder the file that has one of the tensors; a file is itself."""
    folder = Path(path)
    if not folder.is_dir():
        return folder
    index = folder / "model.safetensors.index.json"
    try:
        where = json.loads(index.read_text())["weight_map"] if index.exists() else {}
        name = next((where[name] for name in names if name in where), "model.safetensors")
    except (ValueError, KeyError, TypeError):
        raise BadFileError(f"{index} has no weight_map") from None
    if Path(name).name != name:
        raise BadFileError(f"{index}: {name!r} is no file of the folder")
    return folder / name
