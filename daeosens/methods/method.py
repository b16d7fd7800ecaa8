"""What a time-stepping method is: facts about it, and what makes its steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from petsc4py import PETSc

from daeosens.errors import UnsupportedError
from daeosens.methods.block_steps import BlockSteps
from daeosens.methods.error_estimates import share_of_tolerance
from daeosens.methods.step import ErrorMap, Kept, QuadratureError, StepMap
from daeosens.petsc.vectors import Array
from daeosens.problem.problem import Problem

NEWTON_DEFAULTS: Mapping[str, Any] = {
    "snes_rtol": 1e-11,
    "snes_stol": 1e-14,
    "snes_max_it": 50,
    "snes_linesearch_type": "rounding",
}
"""Tight, because the derivative of a step is that of the converged step."""

WITHOUT_MASS = (
    "a regular M(p) as a part of the right-hand side, "
    "lambda t, u, p: np.linalg.solve(mass(p), rhs(t, u, p)), exactly differentiated, traced too; "
    "a singular one made constant by dividing the equations by its entries, "
    "diag(c, 0) u' = (f, g) as diag(1, 0) u' = (f / c, g)"
)
"""What to write in the place of M(p) u' = f, for methods that take no such mass."""

FEW = 4
"""Equations of so many are named in a message."""

Inside: TypeAlias = "Callable[[float, float, float], float]"
"""``inside(time, t, h)``: a stage time as callbacks see it (``Problem.inside``)."""


class Coefficients(Protocol):
    """A Butcher tableau: a [s, s], b [s], c [s] and the embedded weights [s], if any."""

    @property
    def a(self) -> Array:
        """The coefficients of the stages."""
        ...

    @property
    def b(self) -> Array:
        """The weights of the solution."""
        ...

    @property
    def c(self) -> Array:
        """The abscissae."""
        ...

    @property
    def b_embedded(self) -> Array | None:
        """The weights of the other solution, whose difference estimates the error."""
        ...

    @property
    def of_step(self) -> Coefficients:
        """The same without a last stage that serves the next step only."""
        ...


@dataclass(frozen=True)
class Method(ABC):
    """A one-step method.

    A family of methods is a folder with a subclass; ``registry`` names its members.

    Attributes
    ----------
    name : str
        As in ``Stepping(method=...)``.
    order : int
        Order of accuracy for smooth problems.
    """

    name: str
    order: int

    explicit: ClassVar[bool] = False
    """Whether a step needs no equation solved; its map ``TakesSteps`` then."""

    stagewise: ClassVar[bool] = False
    """Whether a step solves for one stage after the other."""

    tsadjoint: ClassVar[bool] = True
    """Whether PETSc's TSAdjoint knows these steps."""

    in_blocks: ClassVar[str] = ""
    """Why steps cannot be linearised as blocks of arrays; empty if they can."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    """PETSc's options of the equations of a step."""

    adaptive_defaults: ClassVar[Mapping[str, Any]] = {}
    """More of them where an error estimate chooses the steps."""

    @property
    def adaptive(self) -> bool:
        """Whether there is an error estimate, so that ``rtol`` and ``atol`` mean something."""
        return True

    def share_of_tolerance(self, problem: Problem) -> float:
        """Return the part of the tolerances that error estimates are compared with.

        Below 1 where errors are larger beside them than those of other methods.
        """
        del problem
        return share_of_tolerance(self.name, self.explicit)

    @property
    def tableau(self) -> Coefficients | None:
        """The coefficients of a Runge-Kutta method, whose steps have stages and know no others.

        None of theta methods: their error estimate reads the step before.
        """
        return None

    @property
    def n_stages(self) -> int:
        """At how many points of a step the equations are evaluated."""
        tableau = self.tableau
        return 1 if tableau is None else len(tableau.b)

    @property
    def chain(self) -> tuple[Array, Array, Array] | None:
        """What passes over vectors read: a_{i,i-1}, b and c, if each stage reads no other rate."""
        return None

    @property
    def carried(self) -> float:
        """By what a step multiplies the errors of algebraic variables, in absolute value."""
        return 0.0

    @property
    def holds_at_end(self) -> bool:
        """Whether algebraic equations hold at the end of a step."""
        return True

    @property
    def forgets(self) -> bool:
        """Whether errors of algebraic variables die out, be it over several steps."""
        # ``carried`` below 1 they die out, of 1 they stay and alternate, above 1 they grow; with
        # stages (and carried = 0) the equations of later stages take them up
        return 0.0 < self.carried < 1.0 or (not self.carried and self.tableau is None)

    @property
    def starts_from_algebraic(self) -> bool:
        """Whether a step depends on algebraic variables, or their equations, at its start."""
        return self.tableau is not None or self.carried > 0.0

    @property
    def estimates_oscillate(self) -> bool:
        """Whether error estimates of algebraic variables do not fall with the step size."""
        return self.carried == 1.0 and not self.holds_at_end

    @property
    def functions(self) -> frozenset[str]:
        """Which functions of the equations a step calls."""
        return frozenset({"rhs"} if self.explicit else {"rhs", "jacobian"})

    def refuse_index(self, index: int, rows: Sequence[int], *, adaptive: bool) -> None:
        """Refuse a DAE whose index is too high for these steps.

        Parameters
        ----------
        index : int
            0 where there is no algebraic equation.
        rows : sequence of int
            The algebraic equations that hold no algebraic variable.
        adaptive : bool
            Whether error estimates choose the steps.

        Raises
        ------
        UnsupportedError
            Theta below 1/2 for any algebraic equation: each step multiplies their error by
            (1 - theta)/theta.  Index 2 and more where error estimates choose the steps: those of
            hidden variables fall slowly with the step, below some size they grow.  Index 2 by the
            midpoint rule, 3 by "cn" and ESDIRK methods: they do not converge.
        """
        if index and self.carried > 1.0:
            raise UnsupportedError(
                f'method = "{self.name}" for algebraic equations',
                expected="theta >= 0.5: with less their errors grow in each step",
                remedy='"cn", "beuler" or "theta:0.6"',
            )
        converges = self.forgets or index < (3 if self.holds_at_end else 2)
        if index < 2 or (converges and not adaptive):
            return
        some = ", ".join(map(str, rows[:FEW])) + (" ..." if len(rows) > FEW else "")
        which = f"equations {some} hold" if len(rows) > 1 else f"equation {some} holds"
        deeper = ", nor do their derivatives in time" if index > 2 else ""
        steps = f'adaptive "{self.name}"' if converges else f'method = "{self.name}"'
        raise UnsupportedError(
            f"{steps} for a DAE of index {index}: algebraic {which} no algebraic variable{deeper}",
            expected="algebraic equations that give the algebraic variables (index 1): others give "
            "them with errors that fall slowly with the step, or grow",
            remedy="the derivatives in time of these equations in their place, with right-hand "
            "sides for rates (of x^2 + y^2 - 1: 2 x x' + 2 y y'), again until they hold algebraic "
            "variables, and a start that satisfies all; or fixed steps, dt alone, of "
            f'"{self.name if converges else "beuler"}"',
        )

    @abstractmethod
    def takes(self, problem: Problem) -> bool:
        """Return whether these steps take the form of the equations."""

    @abstractmethod
    def refusal(self, problem: Problem) -> UnsupportedError:
        """Return why they do not."""

    def refuse(self, problem: Problem) -> None:
        """Refuse equations of another form.

        Raises
        ------
        UnsupportedError
            A mass or F(t, u, u', p) = 0 with an explicit method; F, or parameters in the mass,
            with an ESDIRK method.
        """
        if not self.takes(problem):
            raise self.refusal(problem)

    def averaged(self, problem: Problem) -> float:
        """Return the weight of the end of steps where F is a mean over both ends, else 0."""
        del problem
        return 0.0

    def stepped(self, problem: Problem) -> tuple[Problem, Problem | None]:
        """Return what TS takes by the method, and what it is to add explicitly, if anything."""
        return problem, None

    @abstractmethod
    def set_type(self, ts: PETSc.TS, problem: Problem) -> Any:
        """Make a TS take these steps; return what it needs as long as it lives."""

    def type_of(self, ts: PETSc.TS) -> str:
        """Return the name of the method that a TS has, perhaps by options."""
        # options of the command line may have made another method of it than was asked for
        kind = ts.getType()
        if kind == PETSc.TS.Type.RK:
            return f"{kind}{ts.getRKType()}"
        if kind == PETSc.TS.Type.THETA:
            form = "endpoint" if ts.getThetaEndpoint() else "one-stage"
            return f"theta ({form}, {ts.getTheta():g})"
        return kind

    @abstractmethod
    def step_map(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> StepMap:
        """Return the map that a step is, with its work space.

        Parameters
        ----------
        problem : Problem
            What is stepped.
        options : mapping
            PETSc options; those of the linear solver (``ksp_...``, ``pc_...``) are used, and of
            Newton's method where stages are solved for again.
        kept : mapping, optional
            Stage states of Runge-Kutta steps by the number of the step.

        Raises
        ------
        UnsupportedError
            A method that does not take the form of the equations.
        """

    @abstractmethod
    def instant_map(self, problem: Problem, options: Mapping[str, Any]) -> StepMap:
        """Return the map of a step of size 0, with its first two derivatives in that size."""

    @abstractmethod
    def quadrature_error(
        self, problem: Problem, options: Mapping[str, Any], kept: Kept | None = None
    ) -> QuadratureError:
        """Return the estimated errors of running costs, where there is an error estimate."""

    def error_map(self, problem: Problem, options: Mapping[str, Any]) -> ErrorMap:
        """Return the tangents of the error estimates of steps with embedded weights."""
        raise NotImplementedError  # no such method is asked

    def no_blocks(self, problem: Problem) -> str:
        """Return why steps of these equations cannot be linearised as blocks; empty if they can."""
        del problem
        return self.in_blocks

    def block_steps(
        self, problem: Problem, inside: Inside | None, mass: Array | None
    ) -> BlockSteps:
        """Return the steps of M u' = f in blocks, M [n, n] or None for the identity."""
        raise NotImplementedError  # ``no_blocks`` says why

    def grid_passes(self, problem: Problem, options: Mapping[str, Any]) -> Any:
        """Return the transposed steps between given ends on a grid; None if Python has a part."""
        del problem, options

    @property
    def recurrence(self) -> Coefficients | None:
        """The coefficients that adjoints in C go over; None if steps are not made of stages."""
        return None if self.tableau is None else self.tableau.of_step
