"""How to step: method, step sizes, tolerances and PETSc options, checked all at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError, OptionError, is_one_of, is_real, is_whole, together
from daeosens.methods.method import Method
from daeosens.methods.registry import find_method
from daeosens.petsc.option_names import RESERVED
from daeosens.petsc.options import validate_names
from daeosens.petsc.vectors import MOST, Array, as_float
from daeosens.timestepping.step_times import (
    apart_from,
    at_ends,
    beside,
    increasing,
    snapped,
    span_rounding,
)

FIRST_STEP, LONGEST_FIRST_STEP, SHORT_STEP = 1e-6, 1e-2, 1e-3
"""Parts of the span: of first adaptive steps, where nothing is known of the equations and at most,
and of a step over which little happens."""


def refuse_reserved(names: Iterable[str], where: str) -> None:
    """Refuse PETSc options in whose place a field of ``Stepping`` or an argument stands.

    Raises
    ------
    OptionError
        Names each option and the field.
    """
    reserved = [name for name in names if isinstance(name, str) and name.lower() in RESERVED]
    if reserved:
        raise OptionError(
            f"{where}: {', '.join(reserved)} would contradict the Stepping",
            expected="times that the sweeps know of",
            remedy=", ".join(f"{RESERVED[name.lower()]}=..." for name in reserved),
        )


@dataclass(frozen=True)
class Stepping:
    """How to step: method, step sizes, tolerances, PETSc options.

    Parameters
    ----------
    t_span : (float, float)
        First and last time [time unit].
    method : str
        "rk1fe", "rk2a", "rk2b", "rk3", "rk3bs", "rk4", "rk5f", "rk5dp", "rk5bs", "rk6vr", "rk7vr",
        "rk8vr" (PETSc's TSRK types, also without "rk"), "esdirk3" ... "esdirk6", "beuler", "cn",
        "theta:<value>" or "midpoint".  "auto", with adaptive steps: "rk6vr", or "esdirk5" where the
        equations are stiff or have a mass ("cn" for F(t, u, u', p) = 0); runs say which and why.
        By default "auto" for adaptive steps, "cn" for fixed ones.
    dt : float
        Step size, or the first one if steps are adaptive (by default then what the rates at the
        start allow, at most a hundredth of the span; a millionth by theta methods and with a
        mass).
    rtol, atol : float, optional
        Either makes the steps adaptive.  ``rtol`` is 1e-6 unless given, ``atol`` a thousandth of
        it, but at most 1e-9: components that pass through zero gain from a smaller ``rtol`` too.
    max_step : float, optional
        Largest adaptive step.
    max_steps : int
        More accepted steps than this are an error.
    options : mapping
        PETSc options without the leading dash: ``{"snes_monitor": None}``.  The command line wins.
    t_eval : sequence of float
        Increasing times inside the span that the steps of every run hit, those of ``Reduced`` and
        ``fit`` too: with ``dt`` as long as the span, a list of steps.
    control : str or sequence of (str or int)
        Whose error estimates choose adaptive steps: those of the "states", or with "sensitivities"
        also those of their derivatives in all parameters and initial states, or in some:
        ``["rate", 0]``, names of parameters, names or numbers of states.
    cut : bool
        Whether steps end at the times of costs and at ``t_eval`` of ``solve``.  False: costs see
        the states between the ends of steps, ``run(t)``, and derivatives are those of that; for
        many data in few steps.  Not with events or delays.

    Raises
    ------
    InputError
        All that is wrong, at once.

    Examples
    --------
    >>> Stepping((0.0, 1.0), "rk4", dt=0.1).adaptive
    False
    """

    t_span: tuple[float, float]
    method: str = ""
    dt: float | None = None
    rtol: float | None = None
    atol: float | None = None
    max_step: float | None = None
    max_steps: int = 1_000_000
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    t_eval: Sequence[float] = ()
    control: str | Sequence[str | int] = "states"
    cut: bool = True
    choice: str = field(default="", init=False, compare=False, repr=False)
    shares: Sequence[Array] = field(default=(), init=False, compare=False, repr=False)
    of_adaptive: bool = field(default=False, init=False, compare=False, repr=False)

    def of_shares(self, shares: Sequence[Array], pinned: Array) -> Stepping:
        """Return the stepping of runs of a delay equation that divide each piece as one has.

        ``shares`` are the ends of steps of each piece between two cuts, 1 at its end; ``pinned``
        [K] are those of the cuts that stay where they are: times of data, and kinks.
        """
        result = replace(self, t_eval=tuple(pinned.tolist()))
        object.__setattr__(result, "shares", tuple(shares))
        return result

    def __post_init__(self) -> None:
        complaints: list[str] = []
        # dataclasses are frozen: what users may leave out is put in by ``object.__setattr__``
        if self.options is None:  # pyright: ignore[reportUnnecessaryComparison]
            object.__setattr__(self, "options", {})
        if self.t_eval is None:  # pyright: ignore[reportUnnecessaryComparison]
            object.__setattr__(self, "t_eval", ())
        span: Any = self.t_span
        listed = isinstance(span, list) or (isinstance(span, np.ndarray) and span.ndim == 1)
        if listed and len(span) == 2:
            object.__setattr__(self, "t_span", tuple(span))
        if isinstance(self.method, str) and not self.method:
            object.__setattr__(self, "method", "auto" if self.adaptive else "cn")
        try:
            method = find_method(self.method)
            if self.adaptive and not method.adaptive:
                complaints.append(
                    f'method = "{self.method}" has no error estimate, so rtol and atol mean '
                    'nothing; try: dt alone, or "rk3bs", "rk6vr", "cn"'
                )
        except InputError as error:
            complaints.append(_one_line(error))
        if is_one_of(self.method, "auto") and not self.adaptive:
            complaints.append('method = "auto" with fixed steps; expected: rtol or atol')
        complaints += _span_complaints(self)
        for name in ("rtol", "atol", "max_step"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value > 0):
                complaints.append(f"{name} = {value!r}; expected: a positive number")
        if self.max_step is not None and not self.adaptive:
            complaints.append(
                f"max_step = {self.max_step!r} without rtol or atol; expected: adaptive steps; "
                "try: dt"
            )
        if not is_whole(self.max_steps):
            complaints.append(f"max_steps = {self.max_steps!r}; expected: an integer")
        elif self.max_steps < 1:
            complaints.append(f"max_steps = {self.max_steps}; expected: at least 1")
        elif self.max_steps > MOST:
            complaints.append(f"max_steps = {self.max_steps}; expected: at most {MOST}")
        complaints += _control_complaints(self)
        if not isinstance(self.cut, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            complaints.append(f"cut = {self.cut!r}; expected: True or False")
        try:
            if not isinstance(self.options, Mapping):
                raise InputError(  # noqa: TRY301
                    f"options = {self.options!r}", expected='a mapping: {"snes_rtol": 1e-10}'
                )
            refuse_reserved(self.options, "options")
            validate_names(self.options, "options")
        except InputError as error:
            complaints.append(_one_line(error))
        try:
            if not complaints:
                # whole numbers would make arrays of whole numbers
                object.__setattr__(self, "t_span", tuple(float(time) for time in self.t_span))
                times = increasing(self.t_span, self.t_eval)
                object.__setattr__(self, "t_eval", tuple(times.tolist()))  # which can be compared
        except InputError as error:
            complaints.append(_one_line(error))
        if complaints:
            raise together(complaints, heading="Stepping")
        object.__setattr__(self, "options", dict(self.options))
        if not isinstance(self.control, str):
            object.__setattr__(self, "control", tuple(self.control))

    @cached_property
    def adaptive(self) -> bool:
        """Whether an error estimate chooses the steps."""
        return self.rtol is not None or self.atol is not None

    @cached_property
    def tolerances(self) -> tuple[float, float]:
        """The relative and the absolute tolerance of adaptive steps."""
        rtol = 1e-6 if self.rtol is None else self.rtol
        # an atol well below rtol times a state of size one: small unknowns are controlled as well
        return rtol, min(1e-9, 1e-3 * rtol) if self.atol is None else self.atol

    @cached_property
    def choices(self) -> dict[tuple[str, int | None], Stepping]:
        """What ``method="auto"`` was last taken for: steps, by method and how many at most."""
        return {}

    @cached_property
    def resolved_method(self) -> Method:
        """What the name of the method stands for."""
        return find_method(self.method)

    @cached_property
    def first_step(self) -> float:
        """Size of the first step that is tried where nothing is known of the equations."""
        # derivatives at the start may change faster than the state, whose errors alone are known
        return self._at_most(FIRST_STEP) if self.dt is None else self._limited(self.dt)

    @property
    def least_first_step(self) -> float:
        """A first step that needs no judge."""
        return self._at_most(FIRST_STEP)

    @property
    def longest_first_step(self) -> float:
        """The largest first step that rates at the start may ask for."""
        return self._at_most(LONGEST_FIRST_STEP)

    @cached_property
    def short_step(self) -> float:
        """A step over which event functions are taken for linear: the first one, if chosen."""
        # implicit methods are for stiff equations, whose fast parts may move an event function at
        # once
        share = SHORT_STEP if self.resolved_method.explicit else FIRST_STEP
        return self._at_most(share) if self.dt is None else self._limited(self.dt)

    def _at_most(self, share: float) -> float:
        first, last = self.t_span
        return self._limited(share * (last - first))

    def _limited(self, step: float) -> float:
        return step if self.max_step is None else min(step, self.max_step)


def pinned_times(
    stepping: Stepping, t_eval: npt.ArrayLike | None, breakpoints: Sequence[float] = ()
) -> Array:
    """Return the times [K] that steps have to hit: ``t_eval``, checked, and breakpoints inside.

    None stands for no times.

    Raises
    ------
    InputError
        Decreasing, or outside the span.
    """
    t_eval = () if t_eval is None else t_eval
    if isinstance(t_eval, tuple) and not (t_eval or breakpoints or stepping.t_eval):
        return np.empty(0)
    first, last = stepping.t_span
    times = increasing(stepping.t_span, t_eval)
    marks = np.array(breakpoints, dtype=float)
    marks = at_ends(stepping.t_span, marks)
    inside, rounding = marks[(first < marks) & (marks < last)], span_rounding(stepping.t_span)
    # a breakpoint and an observation that rounding tells apart would leave a step of 1e-16
    for mark in inside[beside(inside, times, rounding)]:
        times = snapped(times, float(mark), last, rounding)  # 3 * 0.1 is 0.3
    times = np.union1d(times, inside)
    return np.union1d(times, apart_from(np.array(stepping.t_eval, dtype=float), times))


def _one_line(error: InputError) -> str:
    text = str(error).replace("\n  - ", " ")
    return text.replace("\n  expected", "; expected").replace("\n  try", "; try")


def _span_complaints(stepping: Stepping) -> list[str]:
    span: Any = stepping.t_span
    if not (isinstance(span, (tuple, list)) and len(span) == 2 and all(map(_is_number, span))):
        return [f"t_span = {span!r}; expected: two finite numbers"]
    first, last = float(span[0]), float(span[1])
    complaints: list[str] = []
    if not first < last:
        complaints.append(
            f"t_span = ({first:g}, {last:g}) is reversed or empty; expected: first < last"
        )
    dt: Any = stepping.dt
    if dt is None:
        if not stepping.adaptive:
            complaints.append("dt is missing; expected: dt, or rtol and atol for adaptive steps")
    elif not (_is_number(dt) and dt > 0):
        complaints.append(f"dt = {dt!r}; expected: a positive number")
    elif first < last and dt > (last - first) * (1 + 1e-12):
        complaints.append(
            f"dt = {dt:g} is larger than the span {last - first:g}; expected: dt <= span"
        )
    return complaints


def _control_complaints(stepping: Stepping) -> list[str]:
    control: Any = stepping.control
    expected = 'expected: "states", "sensitivities", or a list of parameters and numbers of states'
    if isinstance(control, str):
        known = is_one_of(control, "states", "sensitivities")
    else:
        entries: list[Any] = list(control) if isinstance(control, (list, tuple)) else []
        known = bool(entries) and all(
            isinstance(entry, (str, int, np.integer)) and not isinstance(entry, bool)
            for entry in entries
        )
    if not known:
        return [f"control = {control!r}; {expected}"]
    if control != "states" and not stepping.adaptive:
        return [f"control = {control!r} without rtol or atol; expected: adaptive steps; try: rtol"]
    return []


def _is_number(value: Any) -> bool:
    kinds = (int, float, np.integer, np.floating)  # no fractions: step control is in floats
    return isinstance(value, kinds) and is_real(value) and math.isfinite(as_float(value))
