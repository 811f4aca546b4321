"""Products of torch tensors by a kernel that the caller has named."""

from __future__ import annotations

import warnings
from typing import Dict, Optional

import torch

from .._library import ffi
from ..direct import DirectKernel, bucket
from ..errors import GemmdError
from .direct import TYPES_HERE, Call, Layer, capturing


class CallByKernel(Call):
    """A kernel is for a bucket of rows; each is found when rows of it come for the first time. Where it cannot compute
    them the library chooses, and a warning says why."""

    def __init__(self, layer: Layer, dtype: torch.dtype, text: str):
        super().__init__(layer, dtype)
        self.text, self.dtype = text, dtype
        self.kernels: Dict[int, Optional[DirectKernel]] = {}

    def _queue(self) -> None:
        rows = bucket(self.product.m)
        if rows not in self.kernels and not (self.streams is not None and capturing()):
            self.kernels[rows] = self._find(rows)
        kernel = self.kernels.get(rows)
        self.product.kernel = kernel._handle if kernel is not None else ffi.NULL
        super()._queue()

    def _find(self, rows: int) -> Optional[DirectKernel]:
        of, bias = TYPES_HERE[self.dtype], self.layer.bias
        try:
            bias_type = TYPES_HERE[bias.dtype] if bias is not None else None
            return self.layer.weight.kernel(self.text, rows, of, of, bias_type)
        except GemmdError as error:
            name = self.layer.weight.info.name
            text = f"gemmclient.torch: {name}: {rows} rows by a kernel of the library's choice: {error}"
            warnings.warn(text, stacklevel=2)
            return None
