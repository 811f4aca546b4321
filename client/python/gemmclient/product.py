"""One product in flight."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Generator, List, Optional, Tuple, Union

import numpy as np

from ._core import Core
from ._library import ffi, lib
from .errors import GemmdError, TimedOutError, error_for
from .memory import Rows

_RESULT = ffi.typeof("gemmd_result *")
# How long the library waits at a time, so that Python takes its signals in between.
_SLICE_MS = 100


class Pending:
    """What Weight.submit returns. `wait` it, or `await` it in an asyncio event loop; both give y.

    Its tensors belong to the daemon until then. A product nobody waits for is finished all the same.
    """

    def __init__(
        self, core: Core, weight: object, ticket: int, y: Union[np.ndarray, Rows], tensors: Tuple[object, ...]
    ):
        self.ticket = ticket
        self.weight = weight  # stays open for it
        self.device_ns = 0  # the backend's own time of the product
        self.queue_ns = 0  # waited inside the daemon before that
        self.skipped = 0  # of a product over experts: pairs whose id is no expert
        self._core = core
        self._y = y
        self._tensors = tensors
        self._done = False
        self._error: Optional[GemmdError] = None
        self._futures: List["asyncio.Future[None]"] = []
        core.pending[ticket] = self

    @property
    def done(self) -> bool:
        """True where wait() would not wait. Does not look; `Session.dispatch` does."""
        return self._done

    def finish(
        self, error: Optional[GemmdError], device_ns: int = 0, queue_ns: int = 0, skipped: int = 0
    ) -> None:
        """By the holder of the core's lock."""
        self._core.pending.pop(self.ticket, None)
        self._done, self._error = True, error
        self.device_ns, self.queue_ns, self.skipped = device_ns, queue_ns, skipped
        self._tensors = ()
        for future in self._futures:
            loop = future.get_loop()
            if loop.is_closed():
                continue
            if threading.get_ident() == self._core.loop_thread:
                _wake(future)
            else:
                loop.call_soon_threadsafe(_wake, future)
        self._futures.clear()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """y (an array, or the Rows that submit_rows was given), or the product's error. TimedOutError after `timeout` seconds, with the product still in flight."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._done:
            left_ms = _SLICE_MS if end is None else max(0, int((end - time.monotonic()) * 1000))
            with self._core as core:
                if not self._done:
                    self._wait_slice(core, min(left_ms, _SLICE_MS))
            if not self._done and end is not None and time.monotonic() >= end:
                raise TimedOutError(f"the product was not finished within {timeout} s")
        return self._result()

    def cancel(self) -> None:
        """Asks that it be dropped. If it has not begun it ends with CancelledError, else as it would have anyway; until
        it has ended its tensors are the daemon's."""
        with self._core as core:
            if not self._done:
                core.check(lib.gemmd_cancel(core.session, self.ticket))

    def settle(self) -> None:
        """Waits, whatever becomes of it."""
        try:
            self.wait()
        except GemmdError:
            pass

    def _wait_slice(self, core: Core, timeout_ms: int) -> None:
        result = ffi.new(_RESULT)
        status = lib.gemmd_wait(core.session, self.ticket, timeout_ms, result)
        if result.ticket != 0:
            core.hand_out(result)
        elif status != lib.GEMMD_TIMEOUT:
            self.finish(error_for(status, core.sentence()))
        if core.pending:  # what finished meanwhile is ready now, and nobody would be woken for it again
            core.collect()

    def _result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._y

    def __await__(self) -> Generator[object, None, Any]:
        loop = asyncio.get_running_loop()
        future = None
        with self._core as core:
            core.collect()
            if not self._done:
                core.watch(loop)
                future = loop.create_future()
                self._futures.append(future)
        if future is not None:
            yield from future
        return self._result()


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
