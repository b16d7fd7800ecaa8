"""The time-stepping methods by their names."""

from __future__ import annotations

from daeosens.errors import InputError, nearest
from daeosens.methods.esdirk.method import DIAGONALLY_IMPLICIT
from daeosens.methods.imex.method import IMEX
from daeosens.methods.method import Method
from daeosens.methods.rk.method import EXPLICIT, ExplicitMethod
from daeosens.methods.theta.method import THETA, named_theta

METHODS: dict[str, Method] = {
    method.name: method
    for family in (EXPLICIT, DIAGONALLY_IMPLICIT, IMEX, THETA)
    for method in family
}
"""All methods that have names."""

AUTO = ExplicitMethod("auto", 6, "6vr", estimated=True)
"""What runs choose, explicit as long as they have not: ``timestepping/method_choice.py``."""

_OF_PETSC = {method.kind: method for method in EXPLICIT}

_ELSEWHERE = {
    **dict.fromkeys(("rk45", "dopri5", "ode45"), "rk6vr"),
    "tsit5": "rk5ts",
    **dict.fromkeys(("dop853", "dopri8"), "rk8vr"),
}
"""What to take for names of other packages: docs/stepping.md."""


def find_method(name: str) -> Method:
    """Return the method of that name; PETSc's bare TSRK types ("5dp") are understood too.

    Raises
    ------
    InputError
        Unknown name (the nearest one is given), or theta outside (0, 1].

    Examples
    --------
    >>> find_method("theta:0.5").order
    2
    """
    if not isinstance(name, str):
        raise InputError(f"method = {name!r}", expected='a name such as "rk4" or "cn"')
    known = METHODS.get(name) or _OF_PETSC.get(name)
    if known is not None:
        return known
    if name == AUTO.name:
        return AUTO
    if name.startswith("theta:"):
        return named_theta(name)
    names = [*METHODS, "theta:<value>", AUTO.name]
    here = _ELSEWHERE.get(name.casefold())
    alike = f'"{here}"' if here else nearest(name, names)
    raise InputError(
        f'method = "{name}" is unknown',
        expected=", ".join(names),
        remedy=alike or '"rk6vr", or "esdirk5" for stiff problems, with rtol=...',
    )
