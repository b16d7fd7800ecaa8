"""Test problems with constant delays: u' = f(u, z), z [d, n] the delayed states, known at the end.

Imported by the peers' interpreter too, so it needs nothing but the standard library; ``rhs`` takes
arrays and symbols alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DelayProblem:
    """One problem; ``truth`` is the state at the end, by tests/references/delay_equations.py."""

    name: str
    rhs: Callable[[Any, Any], list[Any]]
    delays: tuple[float, ...]
    history: tuple[float, ...]
    start: tuple[float, ...]
    end: float
    truth: tuple[float, ...]


def _blood(u: Any, z: Any) -> list[Any]:
    return [0.2 * z[0][0] / (1.0 + z[0][0] ** 10) - 0.1 * u[0]]


def _granulocytes(u: Any, z: Any) -> list[Any]:
    lost = 10.0 * u[0] / (1.0 + 40.0 * u[1])
    made = 1.1 / (1.0 + 10.0**0.5 * z[0][0] ** 1.25)
    return [made - lost, 10.0 * lost - 2.43 * u[1]]


def _epidemic(u: Any, z: Any) -> list[Any]:
    infections = u[0] * z[0][1]
    return [
        -0.1 * infections + 0.2 * z[1][1],
        0.3 * infections - 0.4 * u[1],
        0.5 * u[1] - 0.6 * z[1][1],
    ]


_CELLS = (1.05767027 / 3.0, 1.030713491 / 3.0)
_PEOPLE = (5.0, 0.1, 1.0)

PROBLEMS = (
    DelayProblem(
        "A1, Mackey and Glass",
        _blood,
        (14.0,),
        (0.5,),
        (0.5,),
        500.0,
        (1.01044311170014234778,),
    ),
    DelayProblem(
        "A2, Wheldon, Kirk and Finlay",
        _granulocytes,
        (20.0,),
        _CELLS,
        _CELLS,
        100.0,
        (0.08768011074439105817, 0.29376859433354008738),
    ),
    DelayProblem(
        "Wille and Baker",
        lambda u, z: [z[0][0], z[0][0] + z[1][1], 1.0 * u[1]],
        (1.0, 0.2),
        (1.0, 1.0, 1.0),
        (1.0, 1.0, 1.0),
        5.0,
        (19.175, 176.422578447380317700, 190.344201936070416926),
    ),
    DelayProblem(
        "Kermack and McKendrick",
        _epidemic,
        (1.0, 10.0),
        _PEOPLE,
        _PEOPLE,
        40.0,
        (1.30296952790825894902, 9.27829119598839786151, 16.7795061261331364419),
    ),
    DelayProblem(
        "one delay",
        lambda _u, z: [-z[0][0]],
        (1.0,),
        (0.0,),
        (1.0,),
        10.0,
        (0.05297343474426807760,),
    ),
    DelayProblem(
        "two delays",
        lambda _u, z: [-z[0][0] - z[1][0]],
        (1.0 / 3.0, 0.2),
        (0.0,),
        (1.0,),
        1.0,
        (-0.03459670781893004115,),
    ),
)
