"""libgemmclient through cffi. What it declares is read from gemmclient.h itself, so that the two cannot disagree.

The library is $GEMMCLIENT_LIBRARY where that is set, else what the system's loader finds as libgemmclient.so.0.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import cffi

__all__ = ["ffi", "lib", "text"]


def _declarations(header: str) -> str:
    """A C header as cffi takes it: without the preprocessor's lines, C++ and the export macro."""
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    header = re.sub(r"#ifdef __cplusplus.*?#endif", "", header, flags=re.S)
    header = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", header, flags=re.M)
    return header.replace("GEMMD_API", "")


def _open(ffi: cffi.FFI):
    name = os.environ.get("GEMMCLIENT_LIBRARY") or "libgemmclient.so.0"
    try:
        return ffi.dlopen(name)
    except OSError as error:
        raise ImportError(
            f"cannot open {name}: {error}; install gemmd's client library or set GEMMCLIENT_LIBRARY to its path"
        ) from None


ffi: Any = cffi.FFI()
ffi.cdef(_declarations(Path(__file__).with_name("gemmclient.h").read_text(encoding="utf-8")))
lib: Any = _open(ffi)


def text(chars) -> str:
    """A C string, or an array of char, as str."""
    return ffi.string(chars).decode("utf-8", "replace")
