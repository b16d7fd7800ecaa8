"""Equations of two parts, u' = f + g, of which IMEX methods step one implicitly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from petsc4py import PETSc

from daeosens.errors import require, together
from daeosens.petsc.ranks import agree
from daeosens.petsc.vectors import Array
from daeosens.problem.branches import Decisions, joined
from daeosens.problem.breakpoints import admit_breakpoints
from daeosens.problem.callback_guard import on_every_rank
from daeosens.problem.hessian_products import residual_hessian, residual_time_hessian
from daeosens.problem.implicit_matrix import SumMatrix
from daeosens.problem.lowering import DIFFERENCES
from daeosens.problem.matrices import Derivative, dense, shell
from daeosens.problem.problem import AUTONOMOUS, Problem, TimeHessian, VecFunction

_MAT: Any = PETSc.Mat  # the stubs of petsc4py 3.26 give enumerations the wrong type


def imex(*, implicit: Problem, explicit: Problem) -> Problem:
    """Describe u' = f(t, u, p) + g(t, u, p), to be stepped implicitly for f and explicitly for g.

    For stiff equations with a part that is not stiff, or not worth an implicit solve: diffusion and
    reactions with advection at steps that resolve it.  IMEX methods ("ars222", "arkimex3",
    "arkimex4", "arkimex5") tell the parts apart; for all other methods it is their sum.

    Collective on the communicator of the parts.

    Parameters
    ----------
    implicit, explicit : Problem
        u' = f and u' = g, of the same unknowns and parameters: from ``ODE``, ``trace``,
        ``trace_stencil`` and so on.  Matrices of f alone are factorised; g needs products with its
        derivatives for adjoints.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        A part that is no ODE, has events or a mass, or parts that do not fit together.

    Examples
    --------
    >>> from daeosens import ODE, Stepping, solve
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["fast", "slow"])
    >>> growth = ODE(lambda t, u, p: p[1] * u, size=1, parameters=["fast", "slow"])
    >>> both = imex(implicit=decay, explicit=growth)
    >>> run = solve(both, [1.0], [20.0, 1.0], Stepping((0.0, 0.1), "arkimex4", dt=0.01))
    >>> bool(abs(run.u[-1, 0] - 0.14956861922263506) < 1e-5)  # exp(-1.9)
    True
    """
    for name, part in (("implicit", implicit), ("explicit", explicit)):
        require(part, Problem, name, "imex(implicit=ODE(f, ...), explicit=ODE(g, ...))")
    agree(implicit.comm, "imex")
    with on_every_rank(implicit.comm):
        _refuse_others(implicit, explicit)
    explicit = _noting_faults(explicit, implicit.faults)
    parts = implicit, explicit
    assert implicit.rhs_function is not None
    assert explicit.rhs_function is not None
    rhs = _sum_of_functions(implicit, implicit.rhs_function, explicit.rhs_function)
    columns = {"u": (implicit.state, implicit.state), "p": (implicit.state, implicit.parameter)}
    derivatives = {
        f"{of}_{by}": sum_of_derivatives(
            getattr(implicit, f"{of}_{by}"), getattr(explicit, f"{of}_{by}"), columns[by]
        )
        for of in ("rhs", "residual")
        for by in ("u", "p")
    }
    rhs_t = _sum_of_functions(implicit, implicit.rhs_t_function, explicit.rhs_t_function)
    rhs_hessian = _sum_of_hessians(implicit, explicit)
    time_hessian = _sum_of_time_hessians(implicit, explicit)

    def residual_t(t: float, u: PETSc.Vec, _udot: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        rhs_t(t, u, p, out)
        out.scale(-1.0)

    return replace(
        implicit,
        rhs_function=rhs,
        **derivatives,
        rhs_t_function=rhs_t,
        residual_t_function=residual_t,
        rhs_hessian_function=rhs_hessian,
        residual_hessian_function=residual_hessian(rhs_hessian, None),
        rhs_time_hessian_function=time_hessian,
        residual_time_hessian_function=residual_time_hessian(time_hessian),
        # C functions and arrays of points are those of a part: the sum is one of vectors
        batch=None,
        native={},
        stencil=None,
        branches=_sum_of_branches(parts),
        sources=_sources(implicit, explicit),
        state_names=implicit.state_names or explicit.state_names,
        breakpoints=admit_breakpoints(sorted({t for part in parts for t in part.breakpoints})),
        parts=(replace(implicit, native={}), replace(explicit, native={})),
    )


def _sum_of_branches(parts: Sequence[Problem]) -> Callable[..., Decisions] | None:
    """Return what decides in any of the parts, one after the other; None if nothing is known."""
    asked = [part.branches for part in parts if part.branches is not None]
    if not asked:
        return None

    def decide(t: float, u: Array, p: Array, *, in_time: bool = False) -> Decisions:
        return joined([branches(t, u, p, in_time=in_time) for branches in asked])

    return decide


def _refuse_others(implicit: Problem, explicit: Problem) -> None:
    complaints: list[str] = []
    for name, part in (("implicit", implicit), ("explicit", explicit)):
        reasons = {
            "a mass or F(t, u, u', p) = 0": part.form != "rhs",
            "delays": part.delays is not None,
            "events of its own": bool(part.events or part.modes),
            "optimisers that are followed": part.monitor is not None,
            'jacobian = "coloring"': part.coloring,
            "parts of its own": part.parts is not None,
        }
        complaints += [
            f"the {name} part has {reason}; expected: u' = f(t, u, p) without; "
            "events belong to the whole: problem.add_events(imex(...), events)"
            for reason, holds in reasons.items()
            if holds
        ]
    layouts = [
        {
            "callbacks of the style": part.style,
            "unknowns": part.size,
            "unknowns on this rank": part.state.local_size,
            "ranks": part.comm.size,
            "parameters": part.parameter_names or part.n_parameters,
            "parameters on this rank": part.parameter.local_size,
        }
        for part in (implicit, explicit)
    ]
    for what, first in layouts[0].items():
        second = layouts[1][what]
        if first != second:
            complaints.append(
                f"the implicit part has {what}: {first}, the explicit one {second}; "
                "expected: the same for both"
            )
    if implicit.state_names and explicit.state_names not in ((), implicit.state_names):
        complaints.append(
            f"the unknowns are {', '.join(implicit.state_names)} in the implicit part and "
            f"{', '.join(explicit.state_names)} in the explicit one; expected: the same for both"
        )
    if complaints:
        raise together(complaints, heading="imex")


def _sum_of_functions(problem: Problem, first: VecFunction, second: VecFunction) -> VecFunction:
    work = problem.create_state()

    def fill(*point_and_out: Any) -> None:
        *point, out = point_and_out
        first(*point, out)
        second(*point, work)
        out.axpy(1.0, work)

    return fill


def _noting_faults(part: Problem, faults: list[str]) -> Problem:
    """Return the part with what its rates had that is not finite among the ``faults``."""
    rhs, own = part.rhs_function, part.faults
    assert rhs is not None

    def watched(*arguments: Any) -> None:
        rhs(*arguments)
        faults.extend(own)
        own.clear()

    return replace(part, rhs_function=watched, faults=faults)


def _sum_of_hessians(implicit: Problem, explicit: Problem) -> VecFunction:
    work = implicit.create_state(), implicit.create_parameters()

    def fill(*arguments: Any) -> None:
        *inputs, out_u, out_p = arguments
        implicit.rhs_hessian_function(*inputs, out_u, out_p)
        explicit.rhs_hessian_function(*inputs, *work)
        for out, more in zip((out_u, out_p), work, strict=True):
            out.axpy(1.0, more)

    return fill


def _sum_of_time_hessians(implicit: Problem, explicit: Problem) -> TimeHessian | None:
    if implicit.rhs_time_hessian_function is None:
        return explicit.rhs_time_hessian_function
    if explicit.rhs_time_hessian_function is None:
        return implicit.rhs_time_hessian_function
    work = implicit.create_state(), implicit.create_parameters()

    def fill(*arguments: Any) -> float:
        t, u, p, w, *out = arguments
        total = implicit.rhs_time_hessian((t, u, p), w, (out[0], out[1]))
        total += explicit.rhs_time_hessian((t, u, p), w, work)
        for vec, more in zip(out, work, strict=True):
            vec.axpy(1.0, more)
        return total

    return fill


def sum_of_derivatives(
    first: Derivative, second: Derivative, columns: tuple[PETSc.Vec, PETSc.Vec]
) -> Derivative:
    """Return the derivative that is a sum: assembled where both are, else their products.

    ``columns`` are templates of its rows and columns.
    """
    assembled = first.assembled and second.assembled
    parts_of = "daeosens parts"

    def create(*point: Any) -> PETSc.Mat:
        parts = first.create(*point), second.create(*point)
        if not assembled:
            return shell(*columns, SumMatrix(*parts))
        for derivative, part in zip((first, second), parts, strict=True):
            derivative.fill(*point, part)
        if any("dense" in part.getType() for part in parts):
            total = dense(*columns)
        else:
            total = parts[0].duplicate(copy=True)
            # the union of both patterns, so that later sums find room for all entries
            total.axpy(1.0, parts[1], _MAT.Structure.DIFFERENT_NONZERO_PATTERN)
        total.setAttr(parts_of, parts)
        return total

    def fill(*point_and_out: Any) -> None:
        *point, out = point_and_out
        if assembled:
            parts = out.getAttr(parts_of)
        else:
            context = out.getPythonContext()
            parts = context.first, context.second
            context.a = context.b = 1.0
        for derivative, part in zip((first, second), parts, strict=True):
            derivative.fill(*point, part)
        if not assembled:
            out.stateIncrease()
            return
        out.zeroEntries()
        for part in parts:
            out.axpy(1.0, part, _MAT.Structure.SUBSET_NONZERO_PATTERN)

    return Derivative(
        create,
        fill,
        assembled=assembled,
        constant=first.constant and second.constant,
        one_sided=first.one_sided or second.one_sided,
    )


def _sources(implicit: Problem, explicit: Problem) -> dict[str, str]:
    """Say where the derivatives of the sum come from: what is worse of the two."""
    sources: dict[str, str] = {}
    for name, source in implicit.sources.items():
        other = explicit.sources.get(name, source)
        both = {source, other}
        if "" in both or DIFFERENCES in both:
            sources[name] = "" if "" in both else DIFFERENCES
        else:
            sources[name] = other if source == AUTONOMOUS else source
    return sources
