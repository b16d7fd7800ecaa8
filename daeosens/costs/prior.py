"""What was known of parameters before, as a cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from petsc4py import PETSc

from daeosens.costs.cost import START, Cost
from daeosens.costs.objective import Addable
from daeosens.costs.prior_residual import FieldPriorResidual, NumbersPriorResidual
from daeosens.costs.sum_of_squares import SumOfSquares
from daeosens.errors import InputError, UnsupportedError, is_one_of, name_list, nearest
from daeosens.petsc.vectors import Array, finite_array, keep_unshared
from daeosens.problem.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class Prior(Addable):
    """1/2 sum_i ((s(p_i) - mean_i) / sigma_i)^2, with s the identity or the logarithm.

    Parameters
    ----------
    mean : array_like [k] or Vec [m]
        Expected values; if ``scale="log"`` those of the natural logarithm, log(0.6) for a parameter
        of about 0.6, as the prior tells where it is printed.  A Vec for a field parameter, of which
        a copy is kept (collective).
    sigma : float or array_like [k]
        Standard deviations; if ``scale="log"`` of the logarithm, about the relative ones.
    names : sequence of str, optional
        The k parameters meant; all of them by default.  The name of a vector or matrix of a traced
        model stands for all its entries, by rows.
    scale : "linear" or "log"
        Normal or log-normal prior.

    Examples
    --------
    >>> Prior([0.5], 0.1, names=["rate"]).times
    ()
    >>> Prior([np.log(0.6)], 0.2, names=["efficiency"], scale="log")
    Prior of logarithms: efficiency about 0.6 (0.491 to 0.733)
    """

    mean: Any
    sigma: npt.ArrayLike = 1.0
    names: Sequence[str] | None = None
    scale: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        if self.names is not None:
            object.__setattr__(self, "names", name_list(self.names, "prior names"))
        keep_unshared(self, "mean", "sigma", "names")

    def __repr__(self) -> str:
        """Return what is expected; of a log-normal prior in the parameters' own unit."""
        if isinstance(self.mean, PETSc.Vec) or self.scale != "log":
            told = f"mean={self.mean!r}, sigma={self.sigma!r}, names={self.names!r}"
            return f"Prior({told}, scale={self.scale!r})"
        # exp(mean -+ sigma): one standard deviation to either side in the unit of the parameter.
        mean, sigma = np.broadcast_arrays(np.atleast_1d(self.mean), np.asarray(self.sigma))
        names = self.names or [f"parameter {k}" for k in range(mean.size)]
        bands = [
            f"{name} about {np.exp(m):.3g} ({np.exp(m - s):.3g} to {np.exp(m + s):.3g})"
            for name, m, s in zip(names, mean.tolist(), sigma.tolist(), strict=False)
        ]
        return f"Prior of logarithms: {', '.join(bands)}"

    @property
    def times(self) -> tuple[float, ...]:
        """None."""
        return ()

    def numbers(self, known: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the numbers meant, of those known: for a block its entries."""
        if self.names is None:
            return tuple(known)
        # The name of a block only where no parameter is called just so.
        blocks = {name.partition("[")[0] for name in known} - {*known}
        return tuple(
            number
            for name in self.names
            for number in (
                [entry for entry in known if entry.startswith(f"{name}[")]
                if name in blocks
                else [name]
            )
        )

    def laws(self, known: Sequence[str]) -> list[tuple[str, float, float]]:
        """Return (name, mean, sigma) of each number meant, of those known."""
        names = self.numbers(known)
        means, sigmas = (
            _for_all(finite_array(values, f"prior {word}"), names, f"prior {word}").tolist()
            for word, values in (("mean", self.mean), ("sigma", self.sigma))
        )
        return list(zip(names, means, sigmas, strict=True))

    def lower(self, problem: Problem, final_time: float) -> Cost:
        """Return a scalar of the parameters alone."""
        sigma = finite_array(self.sigma, "prior sigma")
        if (sigma <= 0).any():
            raise InputError(f"prior sigma = {sigma.min():g}", expected="sigma > 0")
        if not is_one_of(self.scale, "linear", "log"):
            raise InputError(f"prior scale = {self.scale!r}", expected='"linear" or "log"')
        if problem.field_parameter:
            if not isinstance(self.mean, PETSc.Vec) or sigma.ndim or self.scale == "log":
                raise UnsupportedError(
                    "this prior for a field parameter",
                    expected='mean as a Vec, one number as sigma, scale="linear"',
                )
            residual: Any = FieldPriorResidual(self.mean, float(sigma))
        else:
            residual = self._of_numbers(problem, sigma)
        # At the start, where the parameters are as they were given: an event may change them on
        # the way.
        return Cost(points=((START, 1.0, SumOfSquares(residual, problem.comm)),))

    def _of_numbers(self, problem: Problem, sigma: Array) -> NumbersPriorResidual:
        known = problem.parameter_names
        names = self.numbers(known)
        for name in names:
            if name not in known:
                raise InputError(
                    f'prior names parameter "{name}"',
                    expected=", ".join(known),
                    remedy=nearest(name, known),
                )
        mean = _for_all(finite_array(self.mean, "prior mean"), names, "prior mean")
        sigma = _for_all(sigma, names, "prior sigma")
        return NumbersPriorResidual(
            names,
            [known.index(name) for name in names],
            mean,
            sigma,
            problem.comm,
            logarithmic=self.scale == "log",
        )


def _for_all(values: Array, numbers: Sequence[str], name: str) -> Array:
    """Return the values, one for each number, by rows of a block; a single one stands for all."""
    count = len(numbers)
    admitted: list[tuple[int, ...]] = [(count,)]
    if count and len({label.partition("[")[0] for label in numbers}) == 1 and "[" in numbers[-1]:
        admitted.append(shape_of(numbers[-1]))
    if values.shape not in ((), *admitted):
        shapes = " or ".join(map(str, dict.fromkeys(admitted)))
        raise InputError(
            f"{name} has shape {values.shape}", expected=f"a number, or shape {shapes}"
        )
    return np.broadcast_to(values.ravel() if values.ndim else values, (count,))


def shape_of(last: str) -> tuple[int, ...]:
    """Return the shape of a block whose last entry has this name.

    Examples
    --------
    >>> shape_of("A[1,2]")
    (2, 3)
    """
    return tuple(int(index) + 1 for index in last.partition("[")[2].rstrip("]").split(","))
