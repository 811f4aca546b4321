"""A connection to gemmd with an arena of shared memory in which tensors lie."""

from __future__ import annotations

import os
from typing import IO, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import _safetensors, tensors
from ._core import Core
from ._library import ffi, lib, text
from .errors import InvalidError
from .memory import Rows
from .product import Pending
from .types import (
    DaemonInfo,
    Format,
    Method,
    ModelResult,
    Named,
    Placement,
    Scale,
    WeightInfo,
    daemon_info,
    element_type,
    encoded,
    encoded_path,
    member,
    numpy_type,
    weight_info,
)
from .tuning import Tuning
from .weight import Weight, allocate

__all__ = ["Session", "connect"]

Source = Union[str, "os.PathLike[str]", int, IO[bytes]]
_NEVER = 0xFFFFFFFF  # spin_us: never spins; reconnect_ms: never
# As safetensors calls them, by element type.
_SAFETENSORS = {"F32": "F32", "F16": "F16", "BF16": "BF16", "INT8": "I8", "E4M3": "F8_E4M3"}


class Session(Tuning):
    """Its methods may be called from any thread; they take turns, so that threads that compute at the same time are
    better served by a session each. After a fork the child connects anew. close() ends it; arrays in its memory stay
    readable as long as they are referred to, and hold the connection open until then."""

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        arena_bytes: int = 0,
        entries: int = 0,
        spin_us: Optional[int] = None,
        timeout: float = 10.0,
        reconnect: float = 30.0,
        name: str = "python",
    ):
        """`address`: a socket's path; None: $GEMMD_SOCKET, else /run/gemmd/gemmd.sock; "embedded:" starts a daemon
        that ends with the session. `arena_bytes`: for tensors, 0: 64 MiB. `entries`: products in flight, a power of
        two up to 256; 0: 64. `spin_us`: how long a wait spins before it sleeps; None: 50; 0: never spins. `timeout`:
        seconds for the daemon's answer to control calls other than loads. `reconnect`: seconds that a daemon which is
        killed or replaced is waited for, to go on with the next one; 0: not at all. `name`: who asks, for the daemon's
        log."""
        self._chosen = dict(address=address, arena_bytes=arena_bytes, entries=entries, spin_us=spin_us,
                            timeout=timeout, reconnect=reconnect, name=name)  # fmt: skip
        options = ffi.new("gemmd_options *")
        chosen_name = ffi.new("char[]", encoded(name))
        options.arena_bytes = arena_bytes
        options.entries = entries
        options.spin_us = 0 if spin_us is None else spin_us or _NEVER
        options.timeout_ms = max(1, int(timeout * 1000))
        options.reconnect_ms = max(1, int(reconnect * 1000)) if reconnect > 0 else _NEVER
        options.name = chosen_name
        self._core = Core(address, options)

    def _again(self) -> "Session":
        """Another one like it, as a forked process needs it."""
        return Session(**self._chosen)

    def close(self) -> None:
        self._core.close()

    @property
    def closed(self) -> bool:
        return self._core.closed

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- tensors

    def empty(self, shape: Union[int, Sequence[int]], dtype: object = np.float32) -> np.ndarray:
        """A new array in the arena, contents undefined; its memory is given back with the last reference. `dtype`:
        numpy's, or an element type's name ("bf16": an array of uint16)."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        with self._core as core:
            return allocate(core, sizes, numpy_type(dtype))

    def array(self, values: object, dtype: object = None) -> np.ndarray:
        """A copy of `values` in the arena."""
        source = np.asarray(values, None if dtype is None else numpy_type(dtype))
        copy = self.empty(source.shape, source.dtype)
        copy[...] = source
        return copy

    # ---- weights

    def load(
        self,
        source: Source,
        *,
        tensor: str,
        name: str,
        format: Named,
        scale_tensor: Optional[str] = None,
        scale: Named = Scale.DEFAULT,
        method: Named = Method.DEFAULT,
        replace: bool = False,
        placement: Named = Placement.SINGLE,
        device: int = -1,
        devices: int = 0,
        more: Sequence[str] = (),
        experts: int = 0,
        expert: int = 0,
        progress: Optional[Callable[[int, int], None]] = None,
    ) -> WeightInfo:
        """Loads a tensor of a safetensors file: a path, an open file or a descriptor. Takes as long as it takes;
        `progress(done, total)` hears of it in bytes and must not use the session. The rows of `more` tensors follow.
        With `experts` the weight has so many: "{}" in the names is the number of each, from `expert` on, and a name
        without it a tensor [.., n, k] that has them stacked."""
        load = ffi.new("gemmd_load *")
        texts = [ffi.new("char[]", encoded(one)) for one in (name, tensor, scale_tensor or "")]
        load.name, load.tensor = texts[0], texts[1]
        load.scale_tensor = texts[2] if scale_tensor else ffi.NULL
        load.format = member(Format, format, "format")
        load.scale = member(Scale, scale, "scale")
        load.method = member(Method, method, "method")
        load.replace = replace
        load.placement = member(Placement, placement, "placement")
        load.device, load.devices = device, devices
        more_texts = [ffi.new("char[]", encoded(one)) for one in more]
        more_list = ffi.new("const char *[]", more_texts)
        load.more, load.more_count = more_list, len(more_texts)
        load.experts, load.expert = experts, expert
        if progress is not None:
            hear = progress
            report = ffi.callback("void(void *, uint64_t, uint64_t)", lambda _, done, total: hear(done, total))
            load.progress = report
        info = ffi.new("gemmd_weight_info *")
        with self._core as core:
            if isinstance(source, (str, os.PathLike)):
                core.check(lib.gemmd_weight_load_file(core.session, encoded_path(source), load, info))
            else:
                fd = source if isinstance(source, int) else source.fileno()
                core.check(lib.gemmd_weight_load(core.session, fd, load, info))
        return weight_info(info)

    def take(
        self,
        rows: Rows,
        *,
        name: str,
        format: Named,
        scale: Named = Scale.DEFAULT,
        method: Named = Method.DEFAULT,
        replace: bool = False,
        placement: Named = Placement.SINGLE,
        device: int = -1,
        devices: int = 0,
    ) -> WeightInfo:
        """The same of a matrix in memory that gemmd has mapped, f32, f16 or bf16: on a GPU (CudaMemory) it is quantized
        there. The values stay as they are meanwhile: whoever copied them there has waited for that."""
        load = ffi.new("gemmd_load *")
        chosen_name = ffi.new("char[]", encoded(name))
        load.name = chosen_name
        load.format = member(Format, format, "format")
        load.scale = member(Scale, scale, "scale")
        load.method = member(Method, method, "method")
        load.replace = replace
        load.placement = member(Placement, placement, "placement")
        load.device, load.devices = device, devices
        info, place = ffi.new("gemmd_weight_info *"), ffi.cast("void *", rows.address)
        n, k = rows.shape
        with self._core as core:
            core.check(lib.gemmd_weight_take(core.session, load, place, int(rows.type), n, k, info))
        return weight_info(info)

    def load_array(
        self, array: np.ndarray, *, name: str, format: Named, element: Optional[Named] = None, **options
    ) -> WeightInfo:
        """The same from an array [n, k], or [experts, n, k], by way of a file in memory. `element` names its type where
        its dtype does not; `options` are load's, but for tensors of scales."""
        if array.ndim not in (2, 3):
            raise InvalidError(f"a weight must be [n, k] or [experts, n, k], got shape {array.shape}")
        if array.ndim == 3:
            options.setdefault("experts", array.shape[0])
        kind = element_type(array.dtype, element, "weight").name
        if kind not in _SAFETENSORS:
            raise InvalidError(f"a weight must be one of {', '.join(_SAFETENSORS).lower()}, got {kind.lower()}")
        with os.fdopen(os.memfd_create("gemmclient", os.MFD_CLOEXEC), "wb") as file:
            _safetensors.write(file, {"weight": (_SAFETENSORS[kind], array.shape, np.ascontiguousarray(array).data)})
            file.flush()
            return self.load(file, tensor="weight", name=name, format=format, **options)

    def load_model(
        self,
        *paths: Union[str, "os.PathLike[str]"],
        format: Optional[Named] = None,
        scale: Named = Scale.DEFAULT,
        method: Named = Method.DEFAULT,
        rules: Sequence[Tuple[str, Named]] = (),
        patterns: Sequence[str] = (),
        exclude: Sequence[str] = (),
        fuse: Sequence[str] = (),
        rank: int = 0,
        ranks: int = 0,
        columns: Sequence[str] = (),
        prefix: str = "",
        replace: bool = False,
        keep_going: bool = False,
        join_experts: bool = False,
        split_experts: bool = False,
        placement: Named = Placement.SINGLE,
        device: int = -1,
        devices: int = 0,
        trust_size_and_time: bool = False,
        progress: Optional[Callable[[int, int], None]] = None,
    ) -> ModelResult:
        """Loads the weights of a model: a folder, or files, of safetensors or GGUF. All of them or none; their names,
        `prefix` and what the model calls them, come to be together. `rules`: (pattern, format) pairs, of which the
        first that matches counts; `format` is for the rest, "stored" stands for what is in the file. `patterns` and
        `exclude` choose weights, `fuse` ("q_proj,k_proj,v_proj=qkv_proj") makes one of several, `rank` of `ranks` takes
        that part of every weight's rows, or of columns where `columns` match. With `keep_going` what cannot be loaded
        is listed in the result. With `trust_size_and_time` files that look as in an earlier load of this user's count as
        what they were, and are not read. With `join_experts` weights that differ in the number behind "experts." alone
        become one with experts, with `split_experts` a rank takes its share of them, whole. `progress(done, total)`
        hears of bytes and must not use the session."""
        model, kept = ffi.new("gemmd_model *"), []

        def texts(values):
            each = [ffi.new("char[]", encoded(value)) for value in values]
            kept.extend(each)
            kept.append(ffi.new("const char *[]", each))
            return kept[-1], len(each)

        def of_format(value):
            return 0 if value == "stored" else member(Format, value, "format")

        chosen = [(pattern, of_format(value), 0, 0) for pattern, value in rules]
        if format is not None:
            chosen.append(("*", of_format(format), member(Scale, scale, "scale"), member(Method, method, "method")))
        all_rules = ffi.new("gemmd_model_rule[]", max(1, len(chosen)))
        for rule, (pattern, *rest) in zip(all_rules, chosen):
            kept.append(ffi.new("char[]", encoded(pattern)))
            rule.pattern = kept[-1]
            rule.format, rule.scale, rule.method = rest
        model.rules, model.rule_count = all_rules, len(chosen)
        model.paths, model.path_count = texts(os.fsdecode(path) for path in paths)
        model.patterns, model.pattern_count = texts(patterns)
        model.excludes, model.exclude_count = texts(exclude)
        model.fuses, model.fuse_count = texts(fuse)
        model.columns, model.column_count = texts(columns)
        model.rank, model.ranks, model.replace, model.keep_going = rank, ranks, replace, keep_going
        model.join_experts, model.split_experts = join_experts, split_experts
        model.placement = member(Placement, placement, "placement")
        model.device, model.devices = device, devices
        model.trust_size_and_time = trust_size_and_time
        prefix_text = ffi.new("char[]", encoded(prefix))
        model.prefix = prefix_text
        names: List[str] = []
        failed: List[Tuple[str, str]] = []
        loaded = ffi.callback("void(void *, const gemmd_weight_info *)", lambda _, info: names.append(text(info.name)))
        fails = ffi.callback(
            "void(void *, const char *, int, const char *)",
            lambda _, name, status, sentence: failed.append((text(name), text(sentence))),
        )
        model.loaded, model.failed = loaded, fails
        if progress is not None:
            hear = progress
            report = ffi.callback(
                "void(void *, const gemmd_model_progress *)", lambda _, now: hear(now.bytes_done, now.bytes)
            )
            model.progress = report
        result = ffi.new("gemmd_model_result *")
        with self._core as core:
            core.check(lib.gemmd_model_load(core.session, model, result))
        return ModelResult(sorted(names), failed, result.shared, result.dropped, result.bytes)

    def unload(self, name: str) -> int:
        """Drops the name. The memory is freed with the last name and the last open handle: the bytes freed now."""
        freed = ffi.new("uint64_t *")
        with self._core as core:
            core.check(lib.gemmd_weight_unload(core.session, encoded(name), freed))
        return freed[0]

    def stat(self, name: str) -> WeightInfo:
        info = ffi.new("gemmd_weight_info *")
        with self._core as core:
            core.check(lib.gemmd_weight_stat(core.session, encoded(name), info))
        return weight_info(info)

    def weights(self, pattern: Optional[str] = None) -> List[WeightInfo]:
        """All weights that match the fnmatch(3) pattern, by name."""
        found: List[WeightInfo] = []

        @ffi.callback("bool(void *, const gemmd_weight_info *)")
        def each(_, info):
            found.append(weight_info(info))
            return True

        with self._core as core:
            text = ffi.NULL if pattern is None else encoded(pattern)
            core.check(lib.gemmd_weight_list(core.session, text, each, ffi.NULL))
        return found

    def open(self, name: str) -> Weight:
        """A weight for products. Its content stays while it is open, also when its name is unloaded or replaced."""
        out = ffi.new("gemmd_weight **")
        with self._core as core:
            core.check(lib.gemmd_weight_open(core.session, encoded(name), out))
        return Weight(self._core, out[0])

    def matmul_tensors(self, x: np.ndarray, w: np.ndarray, **options) -> np.ndarray:
        """y = x * w^T of two arrays. `options` are submit_tensors'."""
        return self.submit_tensors(x, w, **options).wait()

    def submit_tensors(
        self,
        x: np.ndarray,
        w: np.ndarray,
        *,
        out: Optional[np.ndarray] = None,
        add: bool = False,
        x_type: Optional[Named] = None,
        y_type: Optional[Named] = None,
        device: int = 0,
    ) -> Pending:
        """Asks for y = x * w^T, x [m, k] and w [n, k], or with one more dimension in front as many products.

        Both are f16 or bf16, and either may be a transposed view: what lies in this session's arena by rows or by columns
        is used where it is, anything else is copied there. The gradient of a weight is matmul_tensors(dy.T, x.T). `out`
        is [m, n] in the arena; with `add` the product is added to it. y is of `y_type`, else of out's type, else f32."""
        with self._core as core:
            return tensors.submit(
                core, x, w, out=out, add=add, x_type=x_type, y_type=y_type, device=device
            )

    # ---- event loops other than asyncio's, which needs nothing but `await`

    def fileno(self) -> int:
        """Polls readable when dispatch has something to do."""
        with self._core as core:
            return lib.gemmd_fd(core.session)

    def dispatch(self, timeout: float = 0.0) -> None:
        """Takes in what has arrived, waiting up to `timeout` seconds for something; finished products are `done`."""
        with self._core as core:
            core.dispatch(int(timeout * 1000))

    # ---- the daemon

    def ping(self) -> float:
        """Seconds of a round trip to the supervisor."""
        ns = ffi.new("uint64_t *")
        with self._core as core:
            core.check(lib.gemmd_ping(core.session, ns))
        return ns[0] * 1e-9

    def status(self) -> DaemonInfo:
        info = ffi.new("gemmd_daemon_info *")
        with self._core as core:
            core.check(lib.gemmd_daemon_status(core.session, info))
        return daemon_info(info)

    def formats(self, device: int = 0) -> List[Format]:
        """Of weights that the device's backend has kernels for."""
        bits = ffi.new("uint32_t *")
        with self._core as core:
            core.check(lib.gemmd_device_formats(core.session, device, bits))
        return [one for one in Format if bits[0] >> one & 1]


def connect(address: Optional[str] = None, **options) -> Session:
    """A session; see Session for address and options."""
    return Session(address, **options)
