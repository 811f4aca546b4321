"""One exception a status of gemmclient.h, below GemmdError and, where there is one, Python's own kind of it."""

from __future__ import annotations

from ._library import lib, text

__all__ = [
    "GemmdError", "InvalidError", "NotFoundError", "ExistsError", "PermissionDeniedError", "VersionError",
    "ProtocolError", "TooLargeError", "BusyError", "OutOfMemoryError", "DeviceLostError", "BadFileError",
    "BadDescriptorError", "UnsupportedError", "TimedOutError", "CancelledError", "ShuttingDownError",
    "DisconnectedError", "WrongStateError", "SystemCallError", "InternalError", "error_for",
]  # fmt: skip


class GemmdError(Exception):
    """`status` is the number of gemmclient.h's enum gemmd_status; str() is the library's sentence."""

    status: int = 0

    @property
    def name(self) -> str:
        """As gemmd_status_name says it: "NOT_FOUND"."""
        return text(lib.gemmd_status_name(self.status))

    @property
    def retryable(self) -> bool:
        """True where the same call may succeed later unchanged."""
        return bool(lib.gemmd_status_retryable(self.status))


class InvalidError(GemmdError, ValueError):
    """An argument; the sentence names field and value."""

    status = lib.GEMMD_INVALID


class NotFoundError(GemmdError, LookupError):
    """No weight of that name, or no such file."""

    status = lib.GEMMD_NOT_FOUND


class ExistsError(GemmdError):
    """The name stands for other content."""

    status = lib.GEMMD_EXISTS


class PermissionDeniedError(GemmdError):
    status = lib.GEMMD_PERMISSION


class VersionError(GemmdError):
    """Daemon and library have no protocol version in common."""

    status = lib.GEMMD_VERSION


class ProtocolError(GemmdError):
    """The other side sent nonsense."""

    status = lib.GEMMD_PROTOCOL


class TooLargeError(GemmdError, ValueError):
    """Over a limit."""

    status = lib.GEMMD_TOO_LARGE


class BusyError(GemmdError):
    """Try again later."""

    status = lib.GEMMD_BUSY


class OutOfMemoryError(GemmdError, MemoryError):
    """No room on the device, in the arena or in this process."""

    status = lib.GEMMD_NOMEM


class DeviceLostError(GemmdError):
    """The device failed twice under this request."""

    status = lib.GEMMD_DEVICE_LOST


class BadFileError(GemmdError):
    """The weights file is malformed."""

    status = lib.GEMMD_BAD_FILE


class BadDescriptorError(GemmdError):
    """The descriptor is no regular file."""

    status = lib.GEMMD_BAD_DESCRIPTOR


class UnsupportedError(GemmdError):
    status = lib.GEMMD_UNSUPPORTED


class TimedOutError(GemmdError, TimeoutError):
    status = lib.GEMMD_TIMEOUT


class CancelledError(GemmdError):
    status = lib.GEMMD_CANCELLED


class ShuttingDownError(GemmdError):
    status = lib.GEMMD_SHUTTING_DOWN


class DisconnectedError(GemmdError):
    """The daemon is gone, or the session was closed; connect again."""

    status = lib.GEMMD_DISCONNECTED


class WrongStateError(GemmdError):
    status = lib.GEMMD_WRONG_STATE


class SystemCallError(GemmdError):
    """A system call failed; the sentence says which."""

    status = lib.GEMMD_SYSTEM


class InternalError(GemmdError):
    status = lib.GEMMD_INTERNAL


_BY_STATUS = {kind.status: kind for kind in GemmdError.__subclasses__()}


def error_for(status: int, sentence: str) -> GemmdError:
    """The exception of a status; GemmdError itself for one that a newer library has."""
    error = _BY_STATUS.get(status, GemmdError)(sentence)
    error.status = status
    return error
