"""Products y = x * W^T by gemmd, with numpy arrays in memory that the daemon maps too.

import gemmclient, numpy as np

with gemmclient.connect() as session:
    session.load("model.safetensors", tensor="mlp.up.weight", name="mlp.up", format="int8")
    with session.open("mlp.up") as weight:
        x = session.empty((4, weight.k), np.float32)
        x[:] = 1
        y = weight.matmul(x)             # in the arena as x is: nothing is copied
        pending = weight.submit(x)       # or several in flight: pending.wait(), or await pending
"""

from ._library import lib as _lib, text as _text
from .errors import *  # noqa: F401,F403
from .direct import Direct, DirectKernel, DirectWeight
from .errors import __all__ as _errors
from .memory import CudaEvent, CudaMemory, Rows, SharedMemory
from .product import Pending
from .session import Session, connect
from .tuning import TuneReport, TuneShape, TuneTrial
from .types import Activation, DaemonInfo, DeviceInfo, ElementType, Format, Method, ModelResult, Placement, Priority, Scale, WeightInfo
from .weight import Weight

__version__ = "0.1.0"


def library_version() -> str:
    """Of libgemmclient, as it was found."""
    return _text(_lib.gemmd_version())


__all__ = [
    "Activation", "CudaEvent", "CudaMemory", "DaemonInfo", "DeviceInfo", "Direct", "DirectKernel", "DirectWeight", "ElementType", "Format", "Method", "ModelResult", "Pending", "Placement", "Priority", "Rows",
    "Scale", "Session", "SharedMemory", "TuneReport", "TuneShape", "TuneTrial", "Weight", "WeightInfo", "connect", "library_version", *(name for name in _errors if name != "error_for"),
]  # fmt: skip
