"""Stiff systems as arithmetic that NumPy, JAX and CasADi understand.

Tasks: "full", d u(T) / d p [n, m]; "scalar", the gradient of the first unknown at T in p [m];
"hessian", its Hessian in p times ``direction`` [m], but for the largest system, which its reference
cannot solve; all in units of each parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos
from typing import Any

from stiff.gri_mech import isothermal


@dataclass(frozen=True, eq=False)
class System:
    """u' = rhs(u, p), t in [0, end], with rtol = tolerance and atol = tolerance * scale.

    ``conserved``: the sum of all unknowns is 1, which may replace the last equation.
    ``tables``: the same equations for arrays (``gri_mech``), where scalars are too many to compile.
    """

    rhs: Callable[[Any, Any], list[Any]]
    start: Sequence[float]
    parameters: Sequence[float]
    end: float
    scale: float = 1.0
    stiff: bool = True
    conserved: bool = False
    tables: tuple[Any, Any, Any, Any] | None = None


def van_der_pol(u: Any, p: Any) -> list[Any]:
    """Return x' = v, v' = mu ((1 - x^2) v - x), PETSc's tutorial ts/ex20."""
    return [u[1], p[0] * ((1.0 - u[0] * u[0]) * u[1] - u[0])]


def robertson(u: Any, p: Any) -> list[Any]:
    """Return Robertson's three reactions (Hairer and Wanner, Solving ODEs II, 1996, page 3)."""
    slow, fast, middle = p[0] * u[0], p[1] * u[1] * u[1], p[2] * u[1] * u[2]
    return [middle - slow, slow - middle - fast, fast]


POLLUTION_RATES = (
    0.35, 26.6, 12.3e3, 0.86e-3, 0.82e-3, 15e3, 0.13e-3, 24e3, 16.5e3, 9e3, 0.022, 12e3, 1.88,
    16.3e3, 4.8e6, 0.35e-3, 0.0175, 1e8, 0.444e12, 1240.0, 2.1, 5.78, 0.0474, 1780.0, 3.12,
)  # fmt: skip
"""Verwer, SIAM J. Sci. Comput. 15(5), 1994, 1243-1250: rates of the 25 reactions [ppm, min]."""

# reactants and products of each reaction, by Verwer's numbers of the 20 species
POLLUTION = (
    ((1,), (2, 3)), ((2, 4), (1,)), ((5, 2), (6, 1)), ((7,), (8, 5, 5)), ((7,), (8,)),
    ((7, 6), (8, 5)), ((9,), (5, 8, 10)), ((9, 6), (11,)), ((11, 2), (1, 10, 12)),
    ((11, 1), (13,)), ((13,), (11, 1)), ((10, 2), (14, 1)), ((14,), (7, 5)), ((1, 6), (15,)),
    ((3,), (4,)), ((4,), (16,)), ((4,), (3,)), ((16,), (6, 6)), ((16,), (3,)),
    ((17, 6), (18, 5)), ((19,), (2,)), ((19,), (1, 3)), ((1, 4), (19,)), ((19, 1), (20,)),
    ((20,), (19, 1)),
)  # fmt: skip

POLLUTION_START = {2: 0.2, 4: 0.04, 7: 0.1, 8: 0.3, 9: 0.01, 17: 0.007}
"""Concentrations at the start [ppm]."""


def pollution(u: Any, p: Any) -> list[Any]:
    """Return Verwer's air pollution mechanism [ppm / min]."""
    change: list[Any] = [0.0 * u[0]] * 20
    for k, (reactants, products) in enumerate(POLLUTION):
        speed = p[k]
        for species in reactants:
            speed = speed * u[species - 1]
        for species in reactants:
            change[species - 1] = change[species - 1] - speed
        for species in products:
            change[species - 1] = change[species - 1] + speed
    return change


def _oscillator(mu: float, end: float, *, stiff: bool) -> System:
    # on the slow manifold, as in the tutorial
    v = -2.0 / 3.0 + 10.0 / (81.0 * mu) - 292.0 / (2187.0 * mu**2)
    return System(van_der_pol, (2.0, v), (mu,), end, stiff=stiff)


SYSTEMS = {
    "van der Pol, mu = 1": _oscillator(1.0, 10.0, stiff=False),
    "van der Pol, mu = 1e3": _oscillator(1e3, 0.5, stiff=True),
    "Robertson": System(
        robertson, (1.0, 0.0, 0.0), (0.04, 3e7, 1e4), 40.0, scale=1e-4, conserved=True
    ),
    "air pollution": System(
        pollution,
        tuple(POLLUTION_START.get(k, 0.0) for k in range(1, 21)),
        POLLUTION_RATES,
        60.0,
        scale=1e-4,
    ),
    "methane and air": System(
        isothermal().rhs,
        isothermal().start,
        isothermal().parameters,
        2.0,
        scale=1e-4,
        tables=isothermal().tables(),
    ),
}


def second_order(system: System) -> bool:
    """Whether there is the task "hessian"."""
    return len(system.start) * len(system.parameters) <= 1000


def direction(system: System) -> list[float]:
    """Return a direction in factors of all parameters, none of them zero."""
    return [cos(k) for k in range(len(system.parameters))]
