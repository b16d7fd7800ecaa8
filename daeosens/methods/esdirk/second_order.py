"""Second-order adjoints of ESDIRK steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from daeosens.costs.cost import Densities
from daeosens.methods.esdirk.stage_equations import DirkEquations
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.rk.time_and_size import StageTimeAndSize
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.problem.problem import Problem


class DirkSecondOrder:
    """The adjoint of an ESDIRK step, differentiated along directions.

    Parameters
    ----------
    problem : Problem
        M u' = f(t, u, p) with a constant M.
    scheme : Esdirk
        Coefficients.
    equations : DirkEquations
        Of the stages.
    """

    def __init__(self, problem: Problem, scheme: Esdirk, equations: DirkEquations) -> None:
        self._problem = problem
        self._scheme = scheme
        self._equations = equations
        create = problem.create_state
        self._weight, self._weight_dot, self._right, self._by_u = (create() for _ in range(4))
        self._by_p = problem.create_parameters()

    def carry_back(
        self,
        step: Step,
        first: Adjoint,
        directions: Sequence[SecondOrder],
        densities: Densities,
        *,
        times: bool = False,
    ) -> list[tuple[float, float]]:
        """Carry one adjoint and its derivatives along several directions back over one step.

        Parameters and result as for ``SecondOrderMap``.  One factorisation of each
        stage serves all solves.

        Source
        ------
        Forward-over-adjoint differentiation of ``adjoint``; Hager, Numerische Mathematik 87, 2000,
        for the discrete adjoint.
        """
        problem, scheme, equations = self._problem, self._scheme, self._equations
        _, h, _, _, p, _ = step
        points = equations.points(step)
        rates = equations.rates(points) if times else []
        # The matrices of all stages are kept: the tangents need them forward, the adjoints back.
        slots = [None, *(equations.slot(i, point, h) for i, point in enumerate(points[1:]))]
        tangents = [
            equations.tangents(
                h,
                points,
                slots.__getitem__,
                (sensitivity.du, sensitivity.du_next),
                sensitivity.dp_vec,
                (sensitivity.dt, sensitivity.dh),
                rates,
            )
            for sensitivity in directions
        ]
        adjoints = equations.adjoints(1 + len(directions))
        clock = StageTimeAndSize(problem, p, h, densities, len(directions)) if times else None
        known = first.kept(step)
        weight, weight_dot, right = self._weight, self._weight_dot, self._right
        for i in reversed(range(len(points))):
            point, slot, b = points[i], slots[i], float(scheme.a[-1, i])
            matrix_u, matrix_p = equations.slopes(point, by_u=clock is not None or not i)
            slopes = (None if i else matrix_u, matrix_p)
            if known is not None:
                # kept in the order of the sweep: the last stage first
                weight = known[len(points) - 1 - i]
            else:
                right.zeroEntries()
                for factor, density in densities:
                    density.add_u(factor * h * b, *point, right)
                    density.add_p(factor * h * b, *point, first.mu)
                equations.weigh(i, h, point, slot, right, first.lam, adjoints[0], weight)
                first.keep(step, weight)
                both = (first.lam, first.mu)
                equations.pull_back(h, point, slopes, weight, right, both, adjoints[0])
            if clock is not None:
                clock.read(point, b, float(scheme.c[i]), weight, rates[i])
                if known is None:
                    clock.add_first()
            for k, sensitivity in enumerate(directions, start=1):
                stage = tangents[k - 1][i]
                direction = (stage.state, sensitivity.dp)
                # h (w_i^T f_uu dU_i + w_i^T f_up dp) is the source in the equation of w_dot_i,
                # beside lam_dot; the matrix is the same as for w_i.
                problem.rhs_hessian(point, weight, direction, (self._by_u, self._by_p))
                self._by_u.copy(right)
                right.scale(h)
                sensitivity.mu_dot.axpy(h, self._by_p)
                out = (right, sensitivity.mu_dot)
                for factor, density in densities:
                    density.add_hessian(factor * h * b, point, direction, out)
                if clock is not None:
                    assert matrix_u is not None
                    clock.bend(k, sensitivity, stage, (matrix_u, matrix_p), out)
                # The derivative of the equation of w_i: same matrix, other right-hand side.
                equations.weigh(
                    i, h, point, slot, right, sensitivity.lam_dot, adjoints[k], weight_dot
                )
                both = (sensitivity.lam_dot, sensitivity.mu_dot)
                equations.pull_back(h, point, slopes, weight_dot, right, both, adjoints[k])
                if clock is not None:
                    # only now is w_dot_i known
                    clock.turn(k, weight_dot)
        for stage in chain.from_iterable(tangents):
            stage.destroy()
        return [] if clock is None else clock.slopes
