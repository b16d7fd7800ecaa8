"""Second-order adjoints of IMEX steps."""

from __future__ import annotations

from collections.abc import Sequence

from daeosens.costs.cost import Densities
from daeosens.methods.imex.stage_equations import ImexEquations, destroy
from daeosens.methods.imex.tableau import Additive
from daeosens.methods.rk.time_and_size import StageTimeAndSize
from daeosens.methods.step import Adjoint, SecondOrder, Step
from daeosens.problem.problem import Problem


class ImexSecondOrder:
    """The adjoint of an IMEX step, differentiated along directions.

    Parameters
    ----------
    problem : Problem
        u' = f + g.
    scheme : Additive
        Coefficients.
    equations : ImexEquations
        Of the stages.
    """

    def __init__(self, problem: Problem, scheme: Additive, equations: ImexEquations) -> None:
        self._scheme = scheme
        self._equations = equations
        create = problem.create_state
        self._weights, self._weights_dot = (create(), create()), (create(), create())
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

        Parameters and result as for ``SecondOrderMap``.  One factorisation of each stage serves all
        solves.

        Source
        ------
        Forward-over-adjoint differentiation of ``adjoint``.
        """
        scheme, equations, (_, h, _, _, p, _) = self._scheme, self._equations, step
        parts = equations.implicit, equations.explicit
        points = equations.points(step)
        rates = equations.rates(points) if times else []
        # the matrices of all stages are kept: the tangents need them forward, the adjoints back
        slots = equations.slots(points, h)
        tangents = [
            equations.tangents(
                h, points, slots, along.du, along.dp_vec, (along.dt, along.dh), rates
            )
            for along in directions
        ]
        adjoints = equations.adjoints(1 + len(directions))
        # running costs are the implicit part's business
        clocks = [
            StageTimeAndSize(part, p, h, costs, len(directions))
            for part, costs in zip(parts, (densities, ()), strict=True)
            if times
        ]
        known, source = first.kept(step), self._source
        for i in reversed(range(len(points))):
            point, slot, b, c = points[i], slots[i], float(scheme.b[i]), float(scheme.c[i])
            slopes = (
                equations.of_implicit.at(point, by_u=bool(times) or not i),
                equations.of_explicit.at(point) if scheme.reads[i] or times else (None, None),
            )
            # an implicit stage has f_u in its matrix
            pulled = (None if i else slopes[0][0], slopes[0][1])
            if known is not None:
                # kept in the order of the sweep: the last stage first, two weights each
                place = 2 * (len(points) - 1 - i)
                weights = known[place], known[place + 1]
            else:
                weights = self._weights
                source.zeroEntries()
                for factor, density in densities:
                    density.add_u(factor * h * b, *point, source)
                    density.add_p(factor * h * b, *point, first.mu)
                equations.weigh_explicit(i, first.lam, adjoints[0], weights[1])
                equations.pull_back(h, slopes[1], weights[1], source, first.mu)
                equations.weigh_implicit(i, h, slot, source, first.lam, adjoints[0], weights[0])
                equations.pull_back(h, pulled, weights[0], source, first.mu)
                for weight in weights:
                    first.keep(step, weight)
                if not i:
                    equations.start(source, first.lam, adjoints[0])
            for clock, weight, rate in zip(
                clocks, weights, rates[i] if times else (), strict=False
            ):
                clock.read(point, b, c, weight, rate)
                if known is None:
                    clock.add_first()
            for k, along in enumerate(directions, start=1):
                stages = tangents[k - 1][i]
                direction = (stages[0].state, along.dp)
                source.zeroEntries()
                out = (source, along.mu_dot)
                # h (w_i^T f_uu + v_i^T g_uu) dU_i and so on is the source in the equation of the
                # derivative of w_i, beside that of lam
                for part, weight in zip(parts, weights, strict=True):
                    part.rhs_hessian(point, weight, direction, (self._by_u, self._by_p))
                    source.axpy(h, self._by_u)
                    along.mu_dot.axpy(h, self._by_p)
                for factor, density in densities:
                    density.add_hessian(factor * h * b, point, direction, out)
                for clock, stage, (matrix_u, matrix_p) in zip(clocks, stages, slopes, strict=False):
                    assert matrix_u is not None
                    clock.bend(k, along, stage, (matrix_u, matrix_p), out)
                # the derivatives of the weights: same matrix, other right-hand side
                dots = self._weights_dot
                equations.weigh_explicit(i, along.lam_dot, adjoints[k], dots[1])
                equations.pull_back(h, slopes[1], dots[1], source, along.mu_dot)
                equations.weigh_implicit(i, h, slot, source, along.lam_dot, adjoints[k], dots[0])
                equations.pull_back(h, pulled, dots[0], source, along.mu_dot)
                for clock, weight_dot in zip(clocks, dots, strict=False):
                    clock.turn(k, weight_dot)
                if not i:
                    equations.start(source, along.lam_dot, adjoints[k])
        for stages in tangents:
            destroy(stages)
        return [
            (sum(by_t), sum(by_h))
            for pairs in zip(*(clock.slopes for clock in clocks), strict=True)
            for by_t, by_h in [zip(*pairs, strict=True)]
        ]
