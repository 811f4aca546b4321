"""Sessions of adapters that open their own: one a process and address. A forked child has none of its parent's."""

from __future__ import annotations

import os
import threading
from typing import Dict, Optional, Tuple

from ..session import Session

_sessions: Dict[Tuple[int, Optional[str]], Session] = {}
_lock = threading.Lock()


def session_here(name: str, address: Optional[str] = None) -> Session:
    """`name`: for gemmd's log. `address`: None: $GEMMD_SOCKET, else /run/gemmd/gemmd.sock."""
    key = (os.getpid(), address)
    with _lock:
        if key not in _sessions or _sessions[key].closed:
            _sessions[key] = Session(address, name=name)
        return _sessions[key]


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forked)
