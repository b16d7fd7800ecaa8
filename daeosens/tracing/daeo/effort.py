"""How much is searched and proven along a run of a DAEO: what may be overridden."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan

from daeosens.errors import InputError, is_real, is_whole
from daeosens.petsc.vectors import MOST, as_float


@dataclass(frozen=True)
class SearchEffort:
    """How much a run of a DAEO searches for optimisers, and proves of those that it knows.

    When all optimisers are searched for again follows from what can be proven: that they only move.
    The numbers here are limits of that; ``run.report`` tells what was done.

    Parameters
    ----------
    boxes : int, optional
        So many boxes a single search may look at: 1 000 000, or 10 000 with constraints.
    proof : int
        So many boxes may be looked at for proofs at the start of a run, and be saved up later.
        With 0 nothing is proven: all are searched for where the run looks at its steps.
    proof_per_step : int
        So many more after every step.
    interval : float
        After so much time there is another search, proven or not: 0 for one after every step.
    apart : float
        Points that are nearer than this part of the box are one optimiser, and a state whose
        optimiser is farther than that from the one that is followed has lost it.

    Raises
    ------
    InputError
        A number that is out of range.

    Examples
    --------
    >>> import daeosens as ds
    >>> model = ds.DAEO(
    ...     lambda t, x, y, p: -y,
    ...     lambda t, x, y, p: (y[0] - x[0]) ** 2,
    ...     size=(1, 1),
    ...     box=[(-2.0, 2.0)],
    ...     effort=ds.tracing.SearchEffort(interval=0.25),
    ... )
    >>> run = ds.solve(model, [1.0], [], ds.Stepping((0.0, 1.0), "rk4", dt=0.125))
    >>> run.report.searches
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """

    boxes: int | None = None
    proof: int = 30_000
    proof_per_step: int = 300
    interval: float = inf
    apart: float = 1e-6

    def __post_init__(self) -> None:
        least = {"boxes": 1, "proof": 0, "proof_per_step": 0}
        for name, low in least.items():
            value: object = getattr(self, name)
            if value is None and name == "boxes":
                continue
            if not (is_whole(value) and low <= value <= MOST):
                raise InputError(
                    f"SearchEffort(..., {name}={value!r})",
                    expected=f"a whole number from {low}",
                    remedy=f"{name}=30000",
                )
            object.__setattr__(self, name, int(value))
        if not _is_number(self.interval) or self.interval < 0.0:
            raise InputError(
                f"SearchEffort(..., interval={self.interval!r})",
                expected="a time from 0",
                remedy="interval=0.1, or none: then proofs say when to search",
            )
        if not _is_number(self.apart) or not 0.0 < self.apart < 1.0:
            raise InputError(
                f"SearchEffort(..., apart={self.apart!r})",
                expected="a part of the box, between 0 and 1",
                remedy="apart=1e-6",
            )
        object.__setattr__(self, "interval", as_float(self.interval))


def _is_number(value: object) -> bool:
    return is_real(value) and not isnan(as_float(value))
