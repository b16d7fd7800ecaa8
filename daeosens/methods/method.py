"""The time-stepping methods and what each of them can do."""

from __future__ import annotations

from dataclasses import dataclass

from daeosens.errors import InputError, nearest

RUNGE_KUTTA = {
    "1fe": (1, False),
    "2a": (2, True),
    "2b": (2, False),
    "3": (3, False),
    "3bs": (3, True),
    "4": (4, False),
    "5f": (5, True),
    "5dp": (5, True),
    "5bs": (5, True),
    "6vr": (6, True),
    "7vr": (7, True),
    "8vr": (8, True),
}
"""PETSc's TSRK types: order, and whether there is an embedded error estimate."""


ESDIRK = {"esdirk3": 3, "esdirk4": 4, "esdirk5": 5, "esdirk6": 6}
"""Orders of the diagonally implicit methods, all with an embedded error estimate."""


@dataclass(frozen=True)
class Method:
    """A one-step method.

    Attributes
    ----------
    name : str
        As in ``Stepping(method=...)``.
    runge_kutta : str
        PETSc's TSRK type; empty for implicit methods.
    esdirk : bool
        Diagonally implicit Runge-Kutta, of the coefficients in ``steps/esdirk.py``.
    theta : float
        Weight of the end of the step; 0 for other than theta methods.
    endpoint : bool
        Theta methods: the rate is averaged over both ends (Crank-Nicolson), not taken inside.
    order : int
        Order of accuracy for smooth problems.
    adaptive : bool
        Has an error estimate, so that ``rtol`` and ``atol`` mean something.
    """

    name: str
    runge_kutta: str = ""
    esdirk: bool = False
    theta: float = 0.0
    endpoint: bool = False
    order: int = 1
    adaptive: bool = True

    @property
    def explicit(self) -> bool:
        """Whether the step needs no equation solved."""
        return bool(self.runge_kutta)


METHODS = {
    **{
        f"rk{kind}": Method(f"rk{kind}", runge_kutta=kind, order=order, adaptive=adaptive)
        for kind, (order, adaptive) in RUNGE_KUTTA.items()
    },
    **{name: Method(name, esdirk=True, order=order) for name, order in ESDIRK.items()},
    "beuler": Method("beuler", theta=1.0),
    "cn": Method("cn", theta=0.5, endpoint=True, order=2),
    "midpoint": Method("midpoint", theta=0.5, order=2),
}

AUTO = Method("auto", runge_kutta="6vr", order=6)
"""What runs choose, explicit as long as they have not: ``timestepping/method_choice.py``."""

_ELSEWHERE = {
    **dict.fromkeys(("rk45", "dopri5", "tsit5", "ode45"), "rk6vr"),
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
    >>> find_method("theta:0.7").theta
    0.7
    """
    if not isinstance(name, str):
        raise InputError(f"method = {name!r}", expected='a name such as "rk4" or "cn"')
    if name in METHODS:
        return METHODS[name]
    if name == AUTO.name:
        return AUTO
    if name in RUNGE_KUTTA:
        return METHODS[f"rk{name}"]
    if name.startswith("theta:"):
        return _theta(name)
    known = [*METHODS, "theta:<value>", AUTO.name]
    here = _ELSEWHERE.get(name.casefold())
    alike = f'"{here}"' if here else nearest(name, known)
    raise InputError(
        f'method = "{name}" is unknown',
        expected=", ".join(known),
        remedy=alike or '"rk6vr", or "esdirk5" for stiff problems, with rtol=...',
    )


def _theta(name: str) -> Method:
    try:
        theta = float(name.removeprefix("theta:"))
    except ValueError:
        theta = -1.0
    if not 0.0 < theta <= 1.0:
        raise InputError(
            f'method = "{name}"', expected="theta in (0, 1]", remedy='"theta:0.5" or "cn"'
        )
    return Method(name, theta=theta, endpoint=True, order=2 if theta == 0.5 else 1)
