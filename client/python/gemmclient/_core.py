"""The part of a session that must outlive what refers to it: the library's handle, its lock and its memory.

Memory of the arena stays mapped while any array lies in it, also when the session is closed before: the library's
session ends with the last of them. Products in flight keep their tensors, whoever drops them. Objects may be dropped by
any thread at any moment, so that what they leave is only noted then, and given back by the next holder of the lock.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Deque, Dict, List, Optional

from ._library import cuda_library, direct_library, ffi, lib, look_up, text
from .errors import DisconnectedError, WrongStateError, error_for
from .types import encoded_path

if TYPE_CHECKING:
    import asyncio

    from .product import Pending


_finalizing = sys.is_finalizing
_WEIGHT, _MEMORY, _CUDA_MEMORY, _CUDA_EVENT, _DIRECT_WEIGHT, _DIRECT = (
    ffi.typeof(f"gemmd_{name} *")
    for name in ("weight", "memory", "cuda_memory", "cuda_event", "direct_weight", "direct")
)
_PLAN = ffi.typeof("gemmd_plan *")
_FREED, _RESULT = ffi.typeof("uint64_t *"), ffi.typeof("gemmd_result *")
look_up(
    lib, "GEMMD_OK", "GEMMD_BUSY", "gemmd_weight_unload", "gemmd_weight_close", "gemmd_plan_free", "gemmd_memory_close", "gemmd_free",
    "gemmd_wait_any", "gemmd_fd", "gemmd_disconnect",
)  # fmt: skip


class Block:
    """Bytes of the arena; numpy arrays hold it as their base."""

    __slots__ = ("core", "pointer", "__array_interface__", "__weakref__")

    def __init__(self, core: "Core", pointer, nbytes: int):
        self.core = core
        self.pointer = pointer
        self.__array_interface__ = {
            "data": (int(ffi.cast("uintptr_t", pointer)), False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self.core.drop(self.pointer)


class Core:
    """`with core:` holds the lock and says DISCONNECTED where the session is closed."""

    def __init__(self, address: Optional[str], options) -> None:
        out = ffi.new("gemmd_session **")
        self.lock = threading.Lock()
        self.dropped: Deque = deque()  # memory, weights, names that nothing refers to any more
        self.recorded: List = []  # the same of direct products, which a CUDA graph may hold
        self.blocks = 0  # of memory, in the arena or not, and events that somebody refers to
        self.closed = False
        self.process = os.getpid()
        self.pending: Dict[int, "Pending"] = {}  # in flight, by ticket
        self.loop: Optional["asyncio.AbstractEventLoop"] = None
        self.loop_thread = 0
        status = lib.gemmd_connect(out, ffi.NULL if address is None else encoded_path(address), options)
        self.session = out[0]
        if status != lib.GEMMD_OK:
            error = error_for(status, self.sentence() if self.session else "no memory for a session")
            self._disconnect()
            raise error

    def sentence(self) -> str:
        return text(lib.gemmd_error(self.session))

    def check(self, status: int) -> None:
        """Raises what a failed call left; the lock is held."""
        if status != lib.GEMMD_OK:
            raise error_for(status, self.sentence())

    def __enter__(self) -> "Core":
        if os.getpid() != self.process:
            raise WrongStateError("a session belongs to the process that connected; connect again after a fork")
        self.lock.acquire()
        if self.closed:
            self._leave()
            raise DisconnectedError("the session is closed")
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._sweep()
        self.lock.release()
        self._sweep_late()

    # ---- memory

    def allocate(self, nbytes: int) -> Optional[Block]:
        """None where the arena has no room. The lock is held."""
        self._sweep()
        pointer = lib.gemmd_alloc(self.session, max(nbytes, 1))
        if pointer == ffi.NULL:
            return None
        self.blocks += 1
        return Block(self, pointer, nbytes)

    def drop(self, pointer) -> None:
        """Memory of any kind, or a weight. From any thread, perhaps inside a call of this one: never waits for the lock."""
        if _finalizing():  # the session ends with the process
            return
        self.dropped.append(pointer)
        self._sweep_late()

    def drop_name(self, name: str) -> None:
        """The same of a weight's name in gemmd."""
        self.drop(name)

    def _sweep_late(self) -> None:
        # Who holds the lock sweeps before letting go; what comes after that look is found here.
        while self.dropped and self.lock.acquire(blocking=False):
            self._sweep()
            self.lock.release()

    def _sweep(self) -> None:
        if os.getpid() != self.process:
            self.dropped.clear()
            return
        while self.dropped:
            dropped = self.dropped.popleft()
            if isinstance(dropped, str):
                if not self.closed:
                    lib.gemmd_weight_unload(self.session, dropped.encode(), ffi.new(_FREED))
                continue
            kind = ffi.typeof(dropped)
            if kind is _WEIGHT:
                if not self.closed:  # with the session all weights are closed
                    lib.gemmd_weight_close(dropped)
            elif kind is _PLAN:
                if not self.closed:  # the same of plans
                    lib.gemmd_plan_free(dropped)
            elif kind is _DIRECT_WEIGHT or kind is _DIRECT:
                self.recorded.append(dropped)
            else:
                self.blocks -= 1
                self._free(dropped)
        self._give_back_recorded()
        if self.closed and self.blocks == 0:
            self._disconnect()

    def _give_back_recorded(self) -> None:
        """What a CUDA graph has recorded is busy until the graph has gone: then the next holder of the lock finds it.
        Weights go before the device that they are of."""
        if not self.recorded:
            return
        library, left = direct_library(), []
        self.recorded.sort(key=lambda one: ffi.typeof(one) is _DIRECT)
        for one in self.recorded:
            release = library.gemmd_direct_close if ffi.typeof(one) is _DIRECT else library.gemmd_direct_return
            if release(one) == lib.GEMMD_OK:
                self.blocks -= 1
            else:
                left.append(one)
        self.recorded = left

    def _free(self, memory) -> None:
        kind = ffi.typeof(memory)
        if kind is _MEMORY:
            release = lib.gemmd_memory_close
        elif kind is _CUDA_MEMORY:
            release = cuda_library().gemmd_cuda_free
        elif kind is _CUDA_EVENT:
            release = cuda_library().gemmd_cuda_event_free
        else:
            lib.gemmd_free(self.session, memory)
            return
        result = ffi.new(_RESULT)
        while release(memory) == lib.GEMMD_BUSY:  # a product was in flight when the session was closed
            lib.gemmd_wait_any(self.session, -1, result)

    # ---- the end

    def close(self) -> None:
        if os.getpid() != self.process:
            return
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.unwatch()
            for pending in list(self.pending.values()):
                pending.finish(error=DisconnectedError("the session was closed with the product in flight"))
            self._sweep()
            if self.blocks == 0:
                self._disconnect()
        self._sweep_late()

    def _disconnect(self) -> None:
        session, self.session = self.session, ffi.NULL
        lib.gemmd_disconnect(session)

    def __del__(self) -> None:
        if _finalizing() or not getattr(self, "session", None) or os.getpid() != self.process:
            return
        # Memory refers to its core; where the collector takes both at once, the last of them ends the session.
        self.closed = True
        self.unwatch()
        self._sweep()

    # ---- event loops

    def watch(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Lets the loop take in completions. The lock is held."""
        if self.loop is loop:
            return
        if self.loop is not None and not self.loop.is_closed():
            raise WrongStateError("products of one session are awaited in one event loop at a time")
        loop.add_reader(lib.gemmd_fd(self.session), self._readable)
        self.loop, self.loop_thread = loop, threading.get_ident()

    def unwatch(self) -> None:
        loop, self.loop = self.loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(lib.gemmd_fd(self.session))

    def _readable(self) -> None:
        try:
            with self:
                self.dispatch(0)
        except DisconnectedError:
            pass  # everybody who waits has been told

    def dispatch(self, timeout_ms: int) -> None:
        status = lib.gemmd_dispatch(self.session, timeout_ms)
        if status != lib.GEMMD_OK:
            error = error_for(status, self.sentence())
            self.collect()
            self.unwatch()
            for pending in list(self.pending.values()):
                pending.finish(error=error)
            raise error
        self.collect()

    def collect(self) -> None:
        """Hands out the results of all products that have finished. The lock is held."""
        result = ffi.new("gemmd_result *")
        while self.pending and lib.gemmd_wait_any(self.session, 0, result) == lib.GEMMD_OK:
            self.hand_out(result)

    def hand_out(self, result) -> None:
        error = error_for(result.status, self.sentence()) if result.status != lib.GEMMD_OK else None
        pending = self.pending.get(result.ticket)
        if pending is not None:
            pending.finish(error, result.device_ns, result.queue_ns, result.skipped)
