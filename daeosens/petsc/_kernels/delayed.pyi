"""Types of delayed.pyx, whose docstrings tell the rest."""

from typing import Any

from daeosens.petsc.vectors import Array

def look_back(
    steps: tuple[Array, Array, Array, Array, Array],
    n: int,
    t: float,
    h: float,
    c: Array,
    tau: Array,
    margins: tuple[float, float, float],
    z: Array,
    looked: Any,
) -> int: ...
def take_stages(
    address: int,
    user_data: int,
    times: Array,
    h: float,
    a: Array,
    u: Array,
    z: Array,
    p: Array,
    k: Array,
    work: Array,
    known: bool,
) -> bool: ...
