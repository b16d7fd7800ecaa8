"""What is measured: settings, contestants and figures of each case, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contest import Contestant


@dataclass(frozen=True)
class Figure:
    """One panel for each value of ``panels``, one line for each contestant, both axes logarithmic.

    ``x`` is "error" or the name of a setting, ``y`` "milliseconds" or "megabytes"; ``where`` are
    settings that are held.
    """

    name: str
    task: str
    x: str
    y: str = "milliseconds"
    panels: str = ""
    where: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Case:
    """A contest: the first contestant is what the others are compared with."""

    name: str
    title: str
    about: str
    contestants: tuple[Contestant, ...]
    settings: tuple[Mapping[str, Any], ...]
    quick: tuple[Mapping[str, Any], ...]
    reference: Contestant | None = None
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Script:
    """A program of its own that takes --output and --repeat and writes rows."""

    name: str
    title: str
    about: str


LOTKA_VOLTERRA = Case(
    "lotka_volterra",
    "Generalised Lotka-Volterra",
    "x_i' = x_i (r_i + sum_j A_ij x_j), x_i(0) = r_i = 0.1, t in [0, 10], A normal with deviation "
    "0.5 / sqrt(N) and seed N, its diagonal -1; rtol = atol = tolerance.  The N parameters are r.  "
    '"full" is d x(T) / d r, "scalar" the gradient of sum_i x_i(T).  Each time is that of a run '
    "and its derivatives.  Errors are relative to the variational equations at 1e-13.",
    (
        Contestant("daeosens", "lotka_volterra.ours"),
        Contestant("C on PETSc TSAdjoint", "lotka_volterra.petsc_c"),
        Contestant("diffrax Dopri5", "lotka_volterra.diffrax_dopri5", peer=True),
        Contestant("diffrax Tsit5", "lotka_volterra.diffrax_tsit5", peer=True),
        Contestant("CasADi CVODES adjoint", "lotka_volterra.casadi_adjoint", peer=True),
        Contestant("CasADi CVODES forward", "lotka_volterra.casadi_forward", peer=True),
        Contestant("finite differences", "lotka_volterra.differences"),
    ),
    tuple(
        {"N": n, "tolerance": tolerance}
        for n in (10, 55, 100, 200)
        for tolerance in (1e-4, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12)
    ),
    ({"N": 3, "tolerance": 1e-5},),
    Contestant("reference", "lotka_volterra.reference"),
    (
        Figure("precision", "full", "error", panels="N"),
        Figure("precision_scalar", "scalar", "error", panels="N"),
        Figure("scaling", "full", "N", where=(("tolerance", 1e-7),)),
        Figure("scaling_scalar", "scalar", "N", where=(("tolerance", 1e-7),)),
    ),
)

CASES: dict[str, Case | Script] = {
    each.name: each
    for each in (
        LOTKA_VOLTERRA,
        Script(
            "events",
            "Events",
            "What an event costs, in steps: forward, watching its function, and in the sweep.",
        ),
        Script(
            "second_order",
            "Hessian products",
            "Milliseconds of the sweeps, and a product over an adjoint and a tangent.",
        ),
    )
}
