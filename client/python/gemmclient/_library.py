"""libgemmclient through cffi. What it declares is read from gemmclient.h itself, so that the two cannot disagree.

The library is $GEMMCLIENT_LIBRARY where that is set, else the one that this package's wheel carries, else what the
system's loader finds as libgemmclient.so.0; likewise for memory of GPUs $GEMMCLIENT_CUDA_LIBRARY and
libgemmclient-cuda.so.0, and for products in this process $GEMMCLIENT_DIRECT_LIBRARY and libgemmclient-direct.so.0, when
they are first asked for.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

import cffi

from . import _native

__all__ = ["cuda_library", "direct_library", "ffi", "lib", "text"]


def _declarations(header: str) -> str:
    """A C header as cffi takes it: without the preprocessor's lines, C++ and the export macro."""
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    header = re.sub(r"#ifdef __cplusplus.*?#endif", "", header, flags=re.S)
    header = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", header, flags=re.M)
    return header.replace("GEMMD_API", "")


def _open(ffi: cffi.FFI):
    name = os.environ.get("GEMMCLIENT_LIBRARY") or _native.library("libgemmclient.so.0")
    try:
        return ffi.dlopen(name)
    except OSError as error:
        raise ImportError(
            f"cannot open {name}: {error}; install gemmd's client library or set GEMMCLIENT_LIBRARY to its path"
        ) from None


def _header(name: str) -> str:
    return _declarations(Path(__file__).with_name(name).read_text(encoding="utf-8"))


ffi: Any = cffi.FFI()
ffi.cdef(_header("gemmclient.h"))
ffi.cdef(_header("gemmclient_cuda.h"))
ffi.cdef(_header("gemmclient_direct.h"))
lib: Any = _open(ffi)


@functools.lru_cache(maxsize=None)
def cuda_library() -> Any:
    """libgemmclient-cuda; None where there is none."""
    return _open_part("cuda", "gemmd_cuda_free", "gemmd_cuda_event_free")


@functools.lru_cache(maxsize=None)
def direct_library() -> Any:
    """libgemmclient-direct; None where there is none."""
    return _open_part("direct", "gemmd_direct_close", "gemmd_direct_return")


def _open_part(part: str, *finalizers: str) -> Any:
    named = os.environ.get(f"GEMMCLIENT_{part.upper()}_LIBRARY")
    try:
        library = ffi.dlopen(named or _native.library(f"libgemmclient-{part}.so.0"))
    except OSError:
        return None
    look_up(library, *finalizers)
    return library


def look_up(library: Any, *names: str) -> None:
    """cffi holds a lock while it looks a name up for the first time, and parses a type. The collector may come by just
    then: what finalizers use has to be known by then, or they wait for the lock of their own thread."""
    for name in names:
        getattr(library, name)


def text(chars) -> str:
    """A C string, or an array of char, as str."""
    return ffi.string(chars).decode("utf-8", "replace")
