"""Sessions of adapters that open their own: one a process and address. A forked child has none of its parent's."""

from __future__ import annotations

import os
import threading
from typing import Dict, Optional, Tuple

from ..errors import DisconnectedError
from ..session import Session

_sessions: Dict[Tuple[int, Optional[str]], Session] = {}
_lock = threading.Lock()


def session_here(name: str, address: Optional[str] = None) -> Session:
    """`name`: for gemmd's log. `address`: None: $GEMMD_SOCKET, else /run/gemmd/gemmd.sock."""
    key = (os.getpid(), address)
    with _lock:
        if key not in _sessions or not _goes_on(_sessions[key]):
            _sessions[key] = Session(address, name=name)
        return _sessions[key]


def _goes_on(session: Session) -> bool:
    """Not where gemmd was gone for too long: it has ended then, though what was borrowed by it works on."""
    if session.closed:
        return False
    try:
        session.ping()
    except DisconnectedError:
        return False
    return True


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forked)
