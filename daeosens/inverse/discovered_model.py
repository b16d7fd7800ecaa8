"""What model discovery has come to: the terms that are left, their model, and the path to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError
from daeosens.functional.parameter import Parameter
from daeosens.functional.parameters import Parameters
from daeosens.inverse.term_elimination import Step
from daeosens.petsc.vectors import Array, finite_array


@dataclass(frozen=True, eq=False, repr=False)
class Discovered:
    """The terms that are left; prints itself.

    Attributes
    ----------
    model : Model
        An ordinary traced model with these terms alone: ``fit`` goes on with it.
    estimate : dict of str to float
        Coefficients, and parameters inside of terms.
    equations : tuple of str
        What each rate is the sum of.
    path : tuple of Step
        All sets of terms that were tried, the largest first.
    inclusion : dict of str to float
        Of an ensemble, the share of members in which each term was.

    Examples
    --------
    >>> import numpy as np
    >>> from daeosens.inverse import Discovery, polynomials
    >>> t = np.linspace(0.0, 4.0, 41)
    >>> data = {"t": t, "x": 2.0 * np.exp(-0.5 * t)}
    >>> discovered = Discovery(polynomials(["x"]), threshold=0.01).fit(data)
    >>> discovered.equations, round(discovered.estimate["x: x"], 5)
    (("x' = -0.5 x",), -0.5)
    """

    model: Any
    estimate: dict[str, float]
    equations: tuple[str, ...]
    path: tuple[Step, ...]
    _rates: Callable[[Array, Array], Array] = field(repr=False)
    inclusion: dict[str, float] = field(default_factory=dict[str, float])

    def predict(self, states: npt.ArrayLike, times: npt.ArrayLike | None = None) -> Array:
        """Return rates [Q, n] at states [Q, n]."""
        n = self.model.size
        points = finite_array(states, "states")
        if points.ndim != 2 or points.shape[1] != n:
            raise InputError(f"states have shape {points.shape}", expected=f"(Q, {n})")
        moments = np.zeros(len(points)) if times is None else times
        return self._rates(finite_array(moments, "times", (len(points),)), points)

    def score(
        self, states: npt.ArrayLike, rates: npt.ArrayLike, times: npt.ArrayLike | None = None
    ) -> float:
        """Return the share of the variance of rates [Q, n] that is predicted (R squared)."""
        predicted = self.predict(states, times)
        truth = finite_array(rates, "rates", predicted.shape)
        spread = float(np.sum((truth - truth.mean(axis=0)) ** 2)) if truth.size else 0.0
        if spread == 0.0:
            raise InputError("the rates are all the same", expected="rates that have a variance")
        return 1.0 - float(np.sum((truth - predicted) ** 2)) / spread

    def parameters(self, initial_state: Any) -> Parameters:
        """Return the coefficients as starts of a fit."""
        entries = {name: Parameter(self.estimate[name]) for name in self.model.parameter_names}
        return Parameters(entries, initial_state)

    def table(self) -> str:
        """Return the path as a table."""
        lines = ["terms   half the sum of squares          AIC          BIC   smallest  dropped"]
        lines += [
            f"{len(step.terms):5d} {step.value:25.5g} {step.aic:12.5g} {step.bic:12.5g} "
            f"{step.smallest:10.3g}  {', '.join(step.dropped)}"
            for step in self.path
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return the equations."""
        return "\n".join(self.equations)
