"""What functions of points compare, at all quadrature points: for looks at kinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daeosens.petsc.vectors import Array, write
from daeosens.problem.branches import Decisions
from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.tracing.weak_form.parameters import Fields, Numbers
from daeosens.tracing.weak_form.term import Term


class PointBranches:
    """What decides in some terms; ``function`` is what users wrote."""

    def __init__(
        self,
        space: FiniteElements,
        parameters: Numbers | Fields,
        terms: Sequence[Term],
        function: Callable[..., Any],
    ) -> None:
        self._space, self._parameters, self.function = space, parameters, function
        self._terms, self._state = terms, space.create_vec()

    def __call__(self, t: float, u: Array, p: Array, *, in_time: bool = False) -> Decisions:
        """Return what decides at (t, u, p); by t alone too if ``in_time``.  Collective."""
        numbers, of_fields = self._parameters.split(p)
        write(self._state, u)
        at = self._space.coefficients(self._state)
        parts = [term.decided(term.at(t, at, of_fields), numbers) for term in self._terms]
        values = np.concatenate([part[0].ravel() for part in parts])
        whole = np.concatenate([np.tile(whole, len(table)) for table, whole, _ in parts])
        moves = np.concatenate([np.tile(moves, len(table)) for table, _, moves in parts])
        # points follow one another, with all that is compared at each
        firsts = np.cumsum([0, *(part[0].shape[1] for part in parts)])
        kinds = np.concatenate(
            [
                first + np.tile(np.arange(part[0].shape[1]), len(part[0]))
                for first, part in zip(firsts, parts, strict=False)
            ]
        )
        return Decisions(values, whole, None if in_time else moves, kinds)


def branches_of(
    space: FiniteElements,
    parameters: Numbers | Fields,
    terms: Sequence[Term],
    function: Callable[..., Any],
) -> Any:
    """Return what decides in terms, or None where nothing does."""
    deciding = [term for term in terms if term.decide is not None]
    if not deciding:
        return None
    return PointBranches(space, parameters, deciding, function)
