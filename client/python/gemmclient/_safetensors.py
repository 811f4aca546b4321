"""As much of the safetensors format as this package needs: 8 bytes of length, a JSON header, the tensors' bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Dict, Iterable, Mapping, Tuple, Union

from .errors import BadFileError, NotFoundError

__all__ = ["Reader", "write"]

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

    def data(self, name: str) -> bytes:
        if name not in self._header:
            raise NotFoundError(f"{self.path} has no tensor {name}")
        begin, end = self._header[name]["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self._begin + begin)
            return file.read(end - begin)
