"""Second-order adjoints of ESDIRK and IMEX steps."""

from __future__ import annotations

from collections.abc import Sequence

from daeosens.costs.cost import Densities
from daeosens.methods.esdirk.stage_equations import StageEquations, destroy
from daeosens.methods.esdirk.tableau import Esdirk
from daeosens.methods.rk.time_and_size import StageTimeAndSize
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.problem.problem import Problem


class DirkSecondOrder:
    """The adjoint of an ESDIRK or IMEX step, differentiated along directions.

    Parameters
    ----------
    problem : Problem
        M u' = f(t, u, p) with a constant M.
    scheme : Esdirk
        Coefficients.
    equations : StageEquations
        Of the stages.
    """

    def __init__(self, problem: Problem, scheme: Esdirk, equations: StageEquations) -> None:
        self._scheme = scheme
        self._equations = equations
        create = problem.create_state
        self._weights = [create() for _ in equations.parts]
        self._weights_dot = [create() for _ in equations.parts]
        self._source, self._by_u = create(), create()
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
        scheme, equations, (_, h, _, _, p, _) = self._scheme, self._equations, step
        parts = equations.parts
        points = equations.points(step)
        rates = equations.rates(points) if times else []
        # The matrices of all stages are kept: the tangents need them forward, the adjoints back.
        slots = equations.slots(points, h)
        tangents = [
            equations.tangents(
                h,
                points,
                slots,
                (along.du, along.du_next),
                along.dp_vec,
                (along.dt, along.dh),
                rates,
            )
            for along in directions
        ]
        adjoints = equations.adjoints(1 + len(directions))
        # running costs have the weights of the implicit part
        clocks = [
            StageTimeAndSize(part, p, h, () if k else densities, len(directions))
            for k, part in enumerate(parts)
            if times
        ]
        known, source = first.kept(step), self._source
        values = list(zip(points, slots, scheme.b.tolist(), scheme.c.tolist(), strict=True))
        for i in reversed(range(len(points))):
            point, slot, b, c = values[i]
            slopes = equations.slopes(i, point, times=times)
            if known is not None:
                # kept in the order of the sweep: the last stage first, one weight of each part
                place = len(parts) * (len(points) - 1 - i)
                weights = known[place : place + len(parts)]
            else:
                weights = self._weights
                source.zeroEntries()
                for factor, density in densities:
                    density.add_u(factor * h * b, *point, source)
                    density.add_p(factor * h * b, *point, first.mu)
                both = (first.lam, first.mu)
                equations.carry(i, h, point, slot, slopes, source, both, adjoints[0], weights)
                for weight in weights:
                    first.keep(step, weight)
            for k, clock in enumerate(clocks):
                clock.read(point, b, c, weights[k], rates[i][k])
                if known is None:
                    clock.add_first()
            for k, along in enumerate(directions, start=1):
                stages = tangents[k - 1][i]
                direction = (stages[0].state, along.dp)
                source.zeroEntries()
                out = (source, along.mu_dot)
                # h (w_i^T f_uu dU_i + w_i^T f_up dp) of each part is the source in the equation of
                # w_dot_i, beside lam_dot; the matrix is the same as for w_i.
                for part, weight in zip(parts, weights, strict=True):
                    part.rhs_hessian(point, weight, direction, (self._by_u, self._by_p))
                    source.axpy(h, self._by_u)
                    along.mu_dot.axpy(h, self._by_p)
                for factor, density in densities:
                    density.add_hessian(factor * h * b, point, direction, out)
                for clock, stage, (matrix_u, matrix_p) in zip(clocks, stages, slopes, strict=False):
                    assert matrix_u is not None
                    clock.bend(k, along, stage, (matrix_u, matrix_p), out)
                # The derivative of the equation of w_i: same matrix, other right-hand side.
                both, dots = (along.lam_dot, along.mu_dot), self._weights_dot
                equations.carry(i, h, point, slot, slopes, source, both, adjoints[k], dots)
                for clock, weight_dot in zip(clocks, dots, strict=False):
                    # only now is w_dot_i known
                    clock.turn(k, weight_dot)
        for stages in tangents:
            destroy(stages)
        return [
            (sum(by_t), sum(by_h))
            for pairs in zip(*(clock.slopes for clock in clocks), strict=True)
            for by_t, by_h in [zip(*pairs, strict=True)]
        ]
