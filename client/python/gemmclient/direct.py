"""Products computed in this process, by gemmd's kernels on gemmd's weights (libgemmclient-direct).

    direct = Direct(session, ordinal=torch.cuda.current_device())
    weight = direct.borrow("mlp.up")
    weight.launch(m, x.data_ptr(), "bf16", y.data_ptr(), "bf16", stream=torch.cuda.current_stream().cuda_stream)

No request travels and nothing is copied; a CUDA graph can record the products. gemmclient_direct.h is the manual.
Where gemmd serves with the CPU backend, the product has been computed when launch returns.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from ._library import direct_library, ffi, lib
from .errors import UnsupportedError, error_for
from .types import Activation, ElementType, Named, WeightInfo, member, weight_info

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Direct", "DirectKernel", "DirectPlan", "DirectWeight", "bucket"]

_POINTER = ffi.typeof("void *")


class Direct:
    """One device of this process, and gemmd's weights that lie on it. Given back with the last reference to it and to
    its weights; a CUDA graph that has recorded a product holds it, too.

    `ordinal`: the device as CUDA counts it here, -1: the current one. `lanes`: how many streams may compute at the same
    time, each with memory of its own; a product of a lane must not run beside another of the same lane. `rows_most`:
    rows of x of one product. `threads`: of the CPU backend, 0: a thread for each core. `pairs_most`: rows times experts
    of one product over experts; 0: none is asked for."""

    def __init__(
        self, session: "Session", *, ordinal: int = -1, lanes: int = 1, rows_most: int = 512, threads: int = 0,
        pairs_most: int = 0,
    ):
        library = direct_library()
        if library is None:
            raise UnsupportedError("there is no libgemmclient-direct; install it or set GEMMCLIENT_DIRECT_LIBRARY")
        options = ffi.new("gemmd_direct_options *")
        options.bytes = ffi.sizeof("gemmd_direct_options")
        options.ordinal, options.lanes, options.rows_most, options.threads = ordinal, lanes, rows_most, threads
        options.pairs_most = pairs_most
        out = ffi.new("gemmd_direct **")
        with session._core as core:
            _check(library, library.gemmd_direct_open(core.session, options, out))
            core.blocks += 1
            self._core, self._handle, self._library = core, out[0], library
        self.lanes, self.rows_most, self.pairs_most = lanes, rows_most, pairs_most

    def borrow(self, name: str) -> "DirectWeight":
        """Its content stays as it is, also when the name is unloaded or replaced, or gemmd dies."""
        out = ffi.new("gemmd_direct_weight **")
        text = ffi.new("char[]", name.encode())
        with self._core as core:
            _check(self._library, self._library.gemmd_direct_borrow(self._handle, text, out))
            core.blocks += 1
        return DirectWeight(self, out[0])

    def quiet(self, milliseconds: int) -> None:
        """This process gives the device nothing to do for so long; 0, or its next product, ends that. gemmd uses such
        times to look for kernels. Before graphs are replayed again, say 0."""
        self._library.gemmd_direct_quiet(self._handle, milliseconds)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._core.drop(self._handle)


class DirectWeight:
    """From Direct.borrow. Any thread may call launch."""

    def __init__(self, direct: Direct, handle):
        self.direct = direct
        self._core, self._handle, self._library = direct._core, handle, direct._library
        self.info: WeightInfo = weight_info(self._library.gemmd_direct_get_info(handle))
        self._here = threading.local()

    @property
    def n(self) -> int:
        return self.info.n

    @property
    def k(self) -> int:
        return self.info.k

    def launch(
        self,
        m: int,
        x: int,
        x_type: Named,
        y: int,
        y_type: Named,
        *,
        stream: int = 0,
        bias: int = 0,
        bias_type: Optional[Named] = None,
        x_scale: int = 0,
        x_stride: int = 0,
        y_stride: int = 0,
        lane: int = 0,
        kernel: Optional["DirectKernel"] = None,
    ) -> None:
        """Queues y [m, n] = x [m, k] * W^T (+ bias [n]) on the stream. Tensors are addresses where the device reads and
        writes them, x and y with bytes from row to row (0: dense); they stay as they are until the stream has come by.
        `kernel`: of this weight; None: the library's choice."""
        product = getattr(self._here, "product", None)
        if product is None:
            product = self._here.product = ffi.new("gemmd_direct_product *")
            product.bytes = ffi.sizeof("gemmd_direct_product")
        product.m = m
        product.x, product.x_type = ffi.cast(_POINTER, x), member(ElementType, x_type, "x_type")
        product.y, product.y_type = ffi.cast(_POINTER, y), member(ElementType, y_type, "y_type")
        product.bias = ffi.cast(_POINTER, bias)
        product.bias_type = member(ElementType, bias_type, "bias_type") if bias else 0
        product.x_scale = ffi.cast("const float *", x_scale)
        product.x_stride, product.y_stride, product.lane = x_stride, y_stride, lane
        product.kernel = kernel._handle if kernel is not None else ffi.NULL
        self.launch_again(product, stream)

    def launch_again(self, product, stream: int) -> None:
        """The same for a gemmd_direct_product that the caller keeps."""
        status = self._library.gemmd_direct_matmul(self._handle, product, ffi.cast(_POINTER, stream))
        if status != lib.GEMMD_OK:
            _check(self._library, status)

    def kernel(
        self, text: str, m: int, x_type: Named, y_type: Named, bias_type: Optional[Named] = None
    ) -> "DirectKernel":
        """A kernel by name, for products of up to m rows of m's bucket (bucket(m)) with these types: family and
        parameters as gemmctl prints them. UnsupportedError where it cannot compute them."""
        out = ffi.new("gemmd_direct_kernel **")
        types = member(ElementType, x_type, "x_type"), member(ElementType, y_type, "y_type")
        bias = member(ElementType, bias_type, "bias_type") if bias_type is not None else 0
        name = ffi.new("char[]", text.encode())
        _check(self._library, self._library.gemmd_direct_kernel_find(self._handle, m, *types, bias, name, out))
        return DirectKernel(self, text, out[0])

    def tune(
        self,
        rows: Sequence[int],
        x_type: Named,
        y_type: Named,
        bias_type: Optional[Named] = None,
        *,
        budget_ms: int = 0,
        lane: int = 0,
    ) -> int:
        """Looks for the fastest kernels for products of so many rows by weights of this shape, here and now, for about
        `budget_ms` in all (0: 1000). They are used from then on; gemmd is told of them. Returns for how many sizes
        another kernel is used than before. No product of the lane may be under way."""
        counts = ffi.new("int64_t[]", list(rows))
        found = ffi.new("unsigned *")
        tuning = ffi.new("gemmd_direct_tuning *")
        tuning.bytes, tuning.rows, tuning.row_count = ffi.sizeof("gemmd_direct_tuning"), counts, len(counts)
        tuning.x_type, tuning.y_type = member(ElementType, x_type, "x_type"), member(ElementType, y_type, "y_type")
        tuning.bias_type = member(ElementType, bias_type, "bias_type") if bias_type is not None else 0
        tuning.budget_ms, tuning.lane = budget_ms, lane
        with self._core:
            _check(self._library, self._library.gemmd_direct_tune(self._handle, tuning, found))
        return found[0]

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._core.drop(self._handle)


class DirectKernel:
    """From DirectWeight.kernel; lives with its weight."""

    def __init__(self, weight: DirectWeight, text: str, handle):
        self.weight, self.text, self._handle = weight, text, handle


_SMALL = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def bucket(m: int) -> int:
    """The most rows of the bucket that m rows belong to: a kernel is for one bucket."""
    for rows in _SMALL:
        if m <= rows:
            return rows
    return 1 << (m - 1).bit_length()


class DirectPlan:
    """Steps of which one's result is x of the next, over experts: (weight, y_type, activation, gated, the address of
    its bias or 0, the bias' type) each. Any thread may call launch."""

    def __init__(self, steps: Sequence[Tuple[DirectWeight, Named, Named, bool, int, Named]]):
        self._handle = None
        self.weights = tuple(step[0] for step in steps)  # which stay borrowed
        self._library = library = self.weights[0]._library
        all_steps = ffi.new("gemmd_direct_step[]", len(steps))
        for to, (weight, y_type, activation, gated, bias, bias_type) in zip(all_steps, steps):
            to.weight, to.gated = weight._handle, gated
            if bias:
                to.bias, to.bias_type = ffi.cast(_POINTER, bias), member(ElementType, bias_type, "bias_type")
            to.y_type = member(ElementType, y_type, "y_type")
            to.activation = member(Activation, activation, "activation")
        out = ffi.new("gemmd_direct_plan **")
        _check(library, library.gemmd_direct_plan_create(all_steps, len(steps), out))
        self._handle = out[0]
        self._here = threading.local()

    def launch(
        self,
        m: int,
        x: int,
        x_type: Named,
        y: int,
        y_type: Named,
        *,
        ids: int,
        routing: int = 0,
        top: int,
        x_pairs: bool = False,
        sum: bool = True,
        stream: int = 0,
        lane: int = 0,
    ) -> None:
        """Queues the layer on the stream: ids [m, top] of int32 and routing [m, top] of float32 are addresses, too, where
        the device reads them when the stream comes to it."""
        if not hasattr(self._here, "call"):
            product, experts = ffi.new("gemmd_direct_product *"), ffi.new("gemmd_direct_experts *")
            product.bytes = ffi.sizeof("gemmd_direct_product")
            experts.bytes = ffi.sizeof("gemmd_direct_experts")
            self._here.call = product, experts
        product, experts = self._here.call
        product.m, product.lane = m, lane
        product.x, product.x_type = ffi.cast(_POINTER, x), member(ElementType, x_type, "x_type")
        product.y, product.y_type = ffi.cast(_POINTER, y), member(ElementType, y_type, "y_type")
        experts.ids, experts.routing = ffi.cast("const int32_t *", ids), ffi.cast("const float *", routing)
        experts.top, experts.x_pairs, experts.sum = top, x_pairs, sum
        pointer = ffi.cast(_POINTER, stream)
        _check(self._library, self._library.gemmd_direct_experts_run(self._handle, product, experts, pointer))

    def __del__(self) -> None:
        if self._handle is not None:
            self._library.gemmd_direct_plan_free(self._handle)


def _check(library, status: int) -> None:
    if status != lib.GEMMD_OK:
        raise error_for(status, ffi.string(library.gemmd_direct_error()).decode("utf-8", "replace"))
