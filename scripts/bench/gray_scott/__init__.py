"""Gray-Scott on a periodic box of side 2.5, ten steps from the four spots of PETSc's tutorial.

u' = D1 L u - u v^2 + gamma (1 - u), v' = D2 L v + u v^2 - (gamma + kappa) v.  Tasks: "forward", the
final state; "gradient", that of |final|^2 / 2 in the initial state; both [points, points, 2].  Its
two parts: "forward sweep", the run that keeps what the gradient needs, and "adjoint sweep", the
rest.  "gradient, rates too": that in the four rates D1, D2, gamma and kappa [4], from the
same sweep as that in the initial state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SIDE = 2.5
D1, D2, GAMMA, KAPPA = 8e-5, 4e-5, 0.024, 0.06


def spots(points: int) -> Any:
    """Return the initial state [points, points, 2]."""
    x = SIDE / points * np.arange(points)
    wave = np.where((x < 1.0) | (x > 1.5), 0.0, np.sin(4.0 * np.pi * x) ** 2)
    v = 0.25 * wave[:, None] * wave
    return np.stack([1.0 - 2.0 * v, v], axis=2)


def parts(run: Callable[[], Any], final: Callable[[Any], Any], back: Callable[[Any], Any]) -> Any:
    """Return the gradient and its parts as tasks.

    ``run()`` keeps what ``back`` needs to return the gradient, and ``final`` the final state.
    """
    return {
        "gradient": lambda: back(run()),
        "forward sweep": lambda: final(run()),
        "adjoint sweep": (run, back),
    }


def explicit_only(method: str) -> None:
    """Refuse implicit methods."""
    if method != "rk4":
        raise NotImplementedError("explicit methods only")
