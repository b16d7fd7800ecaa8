"""The variational equations, integrated with the state: to compare the discrete tangent with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from augmented_system import (
    Augmented,
    Block,
    Filled,
    augmented_equations,
    refuse_other_forms,
)
from petsc4py import PETSc

from daeosens import Stepping, solve
from daeosens.derivatives import Sensitivities
from daeosens.errors import InputError
from daeosens.petsc import read, write
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array
from daeosens.problem import Problem
from daeosens.timestepping import Trajectory
from daeosens.verify.extrapolated_differences import unit


@dataclass(frozen=True, eq=False)
class ContinuousForward:
    """States and sensitivities from one run of the augmented equations.

    Attributes
    ----------
    trajectory : Trajectory
        Of the augmented state, on each rank [u, S_1, ..., S_K]; its steps have their own error
        control.
    augmented : Augmented
        Where the parts are.
    with_respect_to : sequence of "p", "u0"
        What the S_k are the derivatives with respect to, in this order.
    """

    problem: Problem
    trajectory: Trajectory
    augmented: Augmented
    with_respect_to: Sequence[str]

    @property
    def times(self) -> Array:
        """Times of the states [N+1]."""
        return self.trajectory.times

    def state(self, t: float | None = None) -> PETSc.Vec:
        """Return the state [n] at a step time, the last one by default."""
        out = self.problem.create_state()
        write(out, self._parts(t)[0])
        return out

    def sensitivities(self, t: float | None = None) -> Sensitivities:
        """Return du/dp and du/du0 at a step time, the last one by default; the rank's own rows."""
        columns = np.column_stack(self._parts(t)[1:])
        m = self.problem.n_parameters if "p" in self.with_respect_to else 0
        by_p = columns[:, :m] if "p" in self.with_respect_to else None
        by_u0 = columns[:, m:] if "u0" in self.with_respect_to else None
        return Sensitivities(by_u0, by_p, "continuous forward")

    @cached_property
    def p(self) -> Array:
        """Return du(T)/dp [n_local, m]."""
        parameters = self.sensitivities().p
        assert parameters is not None
        return parameters

    @cached_property
    def u0(self) -> Array:
        """Return du(T)/du0 [n_local, n]."""
        initial = self.sensitivities().u0
        assert initial is not None
        return initial

    def _parts(self, t: float | None) -> list[Array]:
        return self.augmented.split(self.trajectory.final if t is None else self.trajectory.at(t))


def continuous_forward(
    problem: Problem,
    u0: npt.ArrayLike | PETSc.Vec,
    p: npt.ArrayLike | PETSc.Vec | None,
    stepping: Stepping,
    t_eval: npt.ArrayLike | None = None,
    with_respect_to: Sequence[str] = ("p",),
    initial_p: npt.ArrayLike | None = None,
) -> ContinuousForward:
    """Integrate the variational equations S' = f_u S + f_p together with the state.

    Fails by design: each column is one more state, so the cost grows with the number of parameters;
    and with adaptive steps the result is not the derivative of the computed state, both only
    converge to the same limit, each at its own pace.  (With fixed steps it is that derivative.)
    Implicit methods use a block diagonal Newton matrix, which takes one or two iterations more.
    Collective on ``problem.comm``.

    Parameters
    ----------
    problem : Problem
        u' = f(t, u, p), without a mass matrix.
    u0, p
        As for ``solve``.
    stepping : Stepping
        For the augmented equations; tolerances apply to u and S alike.
    t_eval : array_like, optional
        Times that steps must hit.
    with_respect_to : sequence of "p", "u0"
        Which columns: m for p, n for u0.
    initial_p : array_like [n_local, m], optional
        d u(0) / d p where the initial state follows the parameters.

    Returns
    -------
    ContinuousForward

    Raises
    ------
    UnsupportedError
        A problem that is not u' = f(t, u, p).
    InputError
        Neither "p" nor "u0"; ``initial_p`` of the wrong shape.

    Examples
    --------
    >>> from daeosens import ODE, Stepping
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> continuous_forward(decay, [1.0], [0.5], Stepping((0.0, 2.0), "rk4", dt=0.1)).p.round(6)
    array([[-0.735759]])
    """
    agree(problem.comm, "continuous_forward", with_respect_to=sorted(map(str, with_respect_to)))
    refuse_other_forms(problem, "continuous_forward", "tangent or sensitivities")
    wanted = tuple(name for name in ("p", "u0") if name in with_respect_to)
    if not wanted or len(wanted) != len(set(with_respect_to)):
        raise InputError(f"with_respect_to = {with_respect_to!r}", expected='"p", "u0" or both')
    n, m = problem.size, problem.n_parameters
    state, parameters = problem.admit_state(u0), problem.admit_parameters(p)
    n_p, n_u0 = (m if "p" in wanted else 0), (n if "u0" in wanted else 0)
    augmented = Augmented([problem.state] * (1 + n_p + n_u0))
    columns = [problem.create_state() for _ in range(n_p + n_u0)]
    if n_p and initial_p is not None:
        start = np.asarray(initial_p, dtype=float)
        if start.shape != (state.local_size, m):
            raise InputError(
                f"initial_p has shape {start.shape}", expected=f"({state.local_size}, {m})"
            )
        for column, values in zip(columns, start.T, strict=False):
            write(column, values)
    columns[n_p:] = [unit(problem.state, j) for j in range(n_u0)]
    begin = augmented.join([state, *columns])
    units = [unit(problem.parameter, j) for j in range(n_p)]
    by_u = Filled(problem.rhs_u, stepping.t_span[0], state, parameters)
    by_p = Filled(problem.rhs_p, stepping.t_span[0], state, parameters) if n_p else None
    work, rate, source = (problem.create_state() for _ in range(3))

    def rhs(t: float, whole: PETSc.Vec, _p: Any, out: PETSc.Vec) -> None:
        parts, rates = augmented.split(whole), augmented.opened(out)
        write(state, parts[0])
        problem.rhs(t, state, parameters, rate)
        rates[0][...] = read(rate)
        matrix_u = by_u.at(t, state)
        matrix_p = None if by_p is None else by_p.at(t, state)
        for j, (part, result) in enumerate(zip(parts[1:], rates[1:], strict=True)):
            write(work, part)
            matrix_u.mult(work, rate)
            if matrix_p is not None and j < n_p:
                matrix_p.mult(units[j], source)
                rate.axpy(1.0, source)
            result[...] = read(rate)

    def blocks(t: float, whole: PETSc.Vec) -> list[Block]:
        write(state, augmented.split(whole)[0])
        return [Block(by_u.at(t, state))] * len(augmented.parts)

    equations = augmented_equations(problem, rhs, blocks, augmented, begin, stepping)
    return ContinuousForward(
        problem, solve(equations, begin, None, stepping, t_eval), augmented, wanted
    )
