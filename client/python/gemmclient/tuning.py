"""Which kernels compute what: what a session can look at, look for and set by hand."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import List, Optional

import numpy as np

from ._library import ffi, lib, text
from .errors import GemmdError, InvalidError, NotFoundError, UnsupportedError
from .types import ElementType, Format, Named, Scale, encoded, member

__all__ = ["TuneReport", "TuneShape", "TuneTrial", "Tuning"]

# What microbench compares with where no kernel is given, by backend: a family at its parameters' defaults.
_MANUAL = {"cuda": "tile", "cpu": "cpu"}
_SIDE_MOST, _K_MOST = 16384, 1 << 24


@dataclass(frozen=True)
class TuneShape:
    """A shape that a device has served; times of one product in ns, 0: not measured."""

    shape: str
    kernel: str
    state: str
    why: str
    serves: bool
    confirmed: bool
    tuning: bool
    calls: int
    device_ns: int
    own_ns: int
    tuned_ns: int
    library_ns: int
    roof_ns: int


@dataclass(frozen=True)
class TuneTrial:
    """A candidate of a search. `state`: "timed", "untried", "refused", "failed" or "wrong", with the reason in `why`;
    `error`: of the worst row of y against the plain kernel, None: not compared; `filling`: slices of K with which its
    blocks fill the device once, 0: not known."""

    kernel: str
    state: str
    why: str
    ns: int
    spread: float
    samples: int
    error: Optional[float]
    workspace: int
    filling: int
    own: bool
    incumbent: bool
    winner: bool
    library_first: bool
    hand: bool


@dataclass(frozen=True)
class TuneReport:
    """What came of a search. `trials`: all candidates, fastest first, those without a time last. `manual_ns`: of the
    kernel that was given by hand; 0: it was not timed, and `why` says why."""

    shape: str
    kernel: str
    search: int
    device: int
    checked: int
    wrong: int
    timed: int
    spent_ns: int
    roof_ns: int
    library_first_ns: int
    library_ns: int
    manual_ns: int
    why: str
    trials: List[TuneTrial] = field(repr=False)

    @property
    def best(self) -> List[TuneTrial]:
        """The fastest three that were timed."""
        return [trial for trial in self.trials if trial.state == "timed"][:3]


def _from(kind, struct):
    """A dataclass of a struct whose fields have the same names."""

    def value(name):
        of = getattr(struct, name)
        return text(of) if isinstance(of, ffi.CData) else of

    return kind(**{name: value(name) for name in kind.__dataclass_fields__})


def _trial(struct) -> TuneTrial:
    trial = _from(TuneTrial, struct)
    return trial if trial.error >= 0 else TuneTrial(**{**trial.__dict__, "error": None})


def _random(n: int, k: int, format: Format):
    """Sign and mantissa at random, below 1, of the type that the format is made from."""
    bits = np.frombuffer(secrets.token_bytes(4096), np.uint16)
    base = 0x3000 if format == Format.F16 else 0x3D00
    values = (np.resize(bits, (n, k)) & np.uint16(0x807F)) | np.uint16(base)
    return (values.view(np.float16), "f16") if format == Format.F16 else (values, "bf16")


class Tuning:
    """Part of Session."""

    _core: object

    def tune_list(self, device: int = 0) -> List[TuneShape]:
        """All shapes that the device has served, or remembers."""
        found: List[TuneShape] = []

        @ffi.callback("bool(void *, const gemmd_tune_shape *)")
        def each(_, shape):
            found.append(_from(TuneShape, shape))
            return True

        with self._core as core:
            core.check(lib.gemmd_tune_list(core.session, device, each, ffi.NULL))
        return found

    def tune(
        self,
        name: str,
        m: int,
        x_type: Named = "f16",
        y_type: Named = "f16",
        bias_type: Optional[Named] = None,
        *,
        kernel: Optional[str] = None,
        exhaustive: bool = False,
        warmup: int = 0,
        iterations: int = 0,
    ) -> TuneReport:
        """Looks for the fastest kernel of a weight for so many rows now. `kernel`: one more candidate by hand, as in
        "any block_m=64 split_k=4". `warmup`, `iterations`: products of each candidate that are not timed, and samples
        at least; 0: as few as decide. Exhaustively, and for weights of others, for admins."""
        request, texts = ffi.new("gemmd_tune_request *"), [ffi.new("char[]", encoded(one)) for one in (name, kernel or "")]
        search, report = ffi.new("gemmd_tune_search *"), ffi.new("gemmd_tune_report *")
        request.weight, request.kernel = texts[0], texts[1] if kernel else ffi.NULL
        request.m, request.exhaustive = m, exhaustive
        request.x_type = member(ElementType, x_type, "x_type")
        request.y_type = member(ElementType, y_type, "y_type")
        request.bias_type = 0 if bias_type is None else member(ElementType, bias_type, "bias_type")
        search.warmup, search.iterations = warmup, iterations
        with self._core as core:
            core.check(lib.gemmd_tune_measured(core.session, request, search, report))
        trials = self.tune_trials(search.device, search.number) if search.number else []
        same = ("checked", "wrong", "timed", "spent_ns", "roof_ns", "library_first_ns", "library_ns")
        return TuneReport(
            shape=text(report.shape),
            kernel=text(report.kernel),
            why=text(report.why),
            search=search.number,
            device=search.device,
            manual_ns=next((trial.ns for trial in trials if trial.hand), 0),
            trials=trials,
            **{one: getattr(report, one) for one in same},
        )

    def tune_trials(self, device: int = 0, search: int = 0) -> List[TuneTrial]:
        """The table of the device's last search, or of the one of that number: NotFoundError where another has begun
        since."""
        found: List[TuneTrial] = []
        which = ffi.new("gemmd_tune_search *")
        which.device, which.number = device, search

        @ffi.callback("bool(void *, const gemmd_tune_trial *)")
        def each(_, trial):
            found.append(_trial(trial))
            return True

        with self._core as core:
            core.check(lib.gemmd_tune_trials(core.session, which, each, ffi.NULL))
        return found

    def pin(self, pattern: str, kernel: Optional[str]) -> int:
        """Sets a kernel for all weights, present and future, whose names match the fnmatch(3) pattern; None: takes it
        off. It serves once it has been checked. Returns how many weights there are now. For admins."""
        weights = ffi.new("uint32_t *")
        with self._core as core:
            chosen = ffi.NULL if kernel is None else ffi.new("char[]", encoded(kernel))
            core.check(lib.gemmd_tune_pin(core.session, encoded(pattern), chosen, weights))
        return weights[0]

    def microbench(
        self,
        m: int,
        n: int,
        k: int,
        format: Named = "int8",
        scale: Named = Scale.DEFAULT,
        *,
        x_type: Optional[Named] = None,
        y_type: Named = "f16",
        kernel: Optional[str] = None,
        warmup: int = 2,
        iterations: int = 6,
        device: int = 0,
        pin: Optional[str] = None,
        on_failure: str = "raise",
    ) -> Optional[TuneReport]:
        """The fastest kernels for a linear of any size, with a weight of random data that goes again. `kernel`: manual
        parameters to compare with; None: the backend's defaults, where it takes them. `pin`: a pattern of weights that
        the winner is set for; with on_failure="manual" the manual parameters are set for them where the search fails,
        and None is returned."""
        format = member(Format, format, "format")
        for what, size, most in (("m", m, _SIDE_MOST), ("n", n, _SIDE_MOST), ("k", k, _K_MOST)):
            if not 64 <= size <= most or size % 64:
                raise InvalidError(f"{what} must be 64..{most} in steps of 64, got {size}")
        if on_failure not in ("raise", "manual"):
            raise InvalidError(f'on_failure must be "raise" or "manual", got {on_failure!r}')
        if on_failure == "manual" and pin is None:
            raise InvalidError('on_failure="manual" sets the manual parameters for the weights of `pin`')
        x_type = x_type if x_type is not None else "bf16" if format == Format.BF16 else "f16"
        manual = kernel or _MANUAL.get(self.status().backend)
        name = f"microbench.{secrets.token_hex(8)}"
        array, element = _random(n, k, format)
        if pin is not None:
            self.pin(name, None)  # an admin's right, of which the search should not be in vain: there is no such pin
        self.load_array(array, name=name, format=format, scale=scale, element=element, device=device)
        options = dict(x_type=x_type, y_type=y_type, warmup=warmup, iterations=iterations)
        try:
            try:
                report = self.tune(name, m, kernel=manual, **options)
            except (UnsupportedError, NotFoundError):
                if kernel is not None:
                    raise
                report = self.tune(name, m, **options)
        except GemmdError:
            if on_failure != "manual" or manual is None:
                raise
            self.pin(pin, manual)
            return None
        finally:
            self.unload(name)
        if pin is not None:
            self.pin(pin, report.kernel)
        return report
