"""Memory of this process's own that gemmd maps, too: x and y of products may lie in it, as they do in the arena.

On a GPU it is device memory, whose contents never pass through the host:

    memory = CudaMemory(session, 64 << 20)
    x, y = memory.rows(0, 16, weight.k, "f16"), memory.rows(1 << 20, 16, weight.n, "f16")
    event = CudaEvent(session)
    torch.as_tensor(x, device="cuda").copy_(...)             # CuPy and Numba see it, too: __cuda_array_interface__
    event.record(torch.cuda.current_stream().cuda_stream)    # or wait for the stream, and give no event
    weight.submit_rows(x, y, after=event).wait()
    torch.as_tensor(y, device="cuda")

On the CPU backend it is a memfd: SharedMemory.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Optional

from ._library import cuda_library, ffi, lib
from .errors import InvalidError, UnsupportedError, error_for
from .types import ElementType, Named, member, numpy_type

if TYPE_CHECKING:
    from .session import Session

__all__ = ["CudaEvent", "CudaMemory", "Memory", "Rows", "SharedMemory"]

_ALIGN = 16  # bytes; of tensors


class Memory:
    """Of one session; given back with the last reference to it and to rows in it."""

    address: int
    nbytes: int
    on_gpu: bool

    def rows(self, offset: int, rows: int, columns: int, type: Named) -> "Rows":
        """A matrix that begins `offset` bytes into the memory, dense."""
        return Rows(self, offset, rows, columns, member(ElementType, type, "type"))


class Rows:
    """A place in a Memory: [rows, columns] of `type`. Others see it by __array_interface__, or on a GPU by
    __cuda_array_interface__; bf16 and e4m3, which these do not know, as integers of their size."""

    def __init__(self, memory: Memory, offset: int, rows: int, columns: int, type: ElementType):
        dtype = numpy_type(type)
        if offset < 0 or offset % _ALIGN or offset + rows * columns * dtype.itemsize > memory.nbytes:
            raise InvalidError(
                f"{rows} x {columns} {type.name.lower()} at byte {offset} do not lie in memory of {memory.nbytes} bytes, "
                f"at a multiple of {_ALIGN}"
            )
        self.memory, self.type, self.shape = memory, type, (rows, columns)
        self.address = memory.address + offset
        signed = dtype.str.replace("u", "i") if type is ElementType.BF16 else dtype.str  # torch has no u2
        interface = {"data": (self.address, False), "shape": self.shape, "typestr": signed, "version": 3}
        setattr(self, "__cuda_array_interface__" if memory.on_gpu else "__array_interface__", interface)


class SharedMemory(Memory):
    """A memfd, or another file of a tmpfs, sealed against shrinking; for the CPU backend. Without a descriptor a new
    one of `nbytes` is made; the caller's stays the caller's."""

    on_gpu = False

    def __init__(self, session: "Session", nbytes: int = 0, *, fd: Optional[int] = None, device: int = 0):
        own = _sealed(nbytes) if fd is None else os.dup(fd)
        try:
            self._map = mmap.mmap(own, nbytes or os.fstat(own).st_size)
            self.nbytes = len(self._map)
            self.address = int(ffi.cast("uintptr_t", ffi.from_buffer(self._map)))
            out = ffi.new("gemmd_memory **")
            with session._core as core:
                place = ffi.cast("void *", self.address)
                core.check(lib.gemmd_memory_open(core.session, device, own, place, self.nbytes, out))
                core.blocks += 1
                self._core, self._handle = core, out[0]
        finally:
            os.close(own)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._core.drop(self._handle)


class CudaMemory(Memory):
    """Device memory of the GPU that CUDA counts as `ordinal` here and that gemmd counts as `device`. Whoever uses CUDA
    in this thread (torch, CuPy) must have made a context of that GPU current before. Needs libgemmclient-cuda
    ($GEMMCLIENT_CUDA_LIBRARY, else libgemmclient-cuda.so.0): UnsupportedError without it or a driver."""

    on_gpu = True

    def __init__(self, session: "Session", nbytes: int, *, device: int = 0, ordinal: int = 0):
        library = _cuda()
        out = ffi.new("gemmd_cuda_memory **")
        with session._core as core:
            _check(library, library.gemmd_cuda_alloc(core.session, device, ordinal, nbytes, out))
            core.blocks += 1
            self._core, self._handle = core, out[0]
        self.address = int(ffi.cast("uintptr_t", library.gemmd_cuda_address(out[0])))
        self.nbytes = nbytes

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._core.drop(self._handle)


class CudaEvent:
    """A point in a CUDA stream that products wait for (`after`), in gemmd and not here. Of the device whose context is
    current in this thread, which must be the one that gemmd counts as `device`. PermissionDeniedError where gemmd runs
    as another user: CUDA shares events between processes of one."""

    def __init__(self, session: "Session", *, device: int = 0):
        self._library = _cuda()
        out = ffi.new("gemmd_cuda_event **")
        with session._core as core:
            _check(self._library, self._library.gemmd_cuda_event_create(core.session, device, out))
            core.blocks += 1
            self._core, self._handle = core, out[0]

    def record(self, stream: int) -> None:
        """`stream`: its handle, as torch.cuda.Stream.cuda_stream. What it has queued by now is what products that are
        asked for from now on wait for."""
        _check(self._library, self._library.gemmd_cuda_event_record(self._handle, ffi.cast("void *", stream)))

    @property
    def shared(self):
        """For gemmd_product's `after`."""
        return self._library.gemmd_cuda_event_get(self._handle)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._core.drop(self._handle)


def _cuda():
    library = cuda_library()
    if library is None:
        raise UnsupportedError("there is no libgemmclient-cuda; install it or set GEMMCLIENT_CUDA_LIBRARY")
    return library


def _check(library, status: int) -> None:
    if status != lib.GEMMD_OK:
        raise error_for(status, ffi.string(library.gemmd_cuda_error()).decode("utf-8", "replace"))


def _sealed(nbytes: int) -> int:
    fd = os.memfd_create("gemmclient", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd
