"""Limits of the choice of an engine, each with the measurement that set it.

Milliseconds of processor time on an AMD EPYC (Zen 5).  Results quote them (``gradient.why``).
"""

from __future__ import annotations


class Limit(int):
    """Up to how much of something an engine is the quickest, a number that knows why.

    Attributes
    ----------
    of : str
        What is counted.
    measured : str
        What that was measured with, and what each engine took.
    """

    of: str
    measured: str

    def __new__(cls, most: int, of: str, measured: str) -> Limit:
        """Return a limit."""
        limit = super().__new__(cls, most)
        limit.of, limit.measured = of, measured
        return limit


# Blocks form the Jacobian at every point, and gain by each further row.  Measured with one cost of
# a traced model with 1 % of its 1000^2 couplings, 50 steps of rk4.
FEW_ROWS = Limit(2, "rows", "one row of 1000 unknowns: compiled 13 ms, arrays 30 ms")
"""Up to so many costs, or directions, are swept in C one beside the other where that can be."""

# Up to so many unknowns sweeps in C are quicker than blocks for any number of rows.  Measured with
# all states of dense Lotka-Volterra species.
FEW_UNKNOWNS = Limit(
    30, "unknowns", "10 rows of 10: compiled 0.12 ms, arrays 0.2 ms; 55 of 55: 1.5 ms, 0.8 ms"
)

# The same of stages with dense factors, by ESDIRK, where each row goes through f, blocks through
# f_u and f_p for all.  Measured with 20 steps of esdirk4.
ROWS_OF_GRAPHS = Limit(
    25_000,
    "rows times operations",
    "3 rows of 33 oscillators, 3501 operations: compiled 13 ms, arrays 13 ms; 33: 75 ms, 14 ms",
)
"""Where f has no products with dense matrices; 20 reactions of 338 operations: 0.9 and 4.4 ms."""

ROWS_OF_PRODUCTS = Limit(
    1000,
    "rows times unknowns",
    "8 rows of a network of 33: compiled 3 ms, arrays 6 ms; 40 rows of 60: 27 ms, 18 ms",
)
"""Where f has products with dense matrices."""

TINY = 12
"""Up to so many unknowns whole functions are quicker than their products with matrices.

One cost of 10 dense Lotka-Volterra species, rtol 1e-6: 0.02, and 0.03 by products.
"""

# Where callbacks take one point at a time.  Measured with one cost of dense unknowns in NumPy with
# Jacobians, 5 steps: of rk4, and of cn (310 by vectors, 71 by arrays); at 141 a Hessian product by
# rk5dp takes 11700 and 12700.
POINT_BY_POINT = Limit(300, "unknowns", "160: arrays 220 ms, vectors 530 ms")

# Where steps solve with sparse matrices, which blocks make dense.  Measured with four costs of a
# traced chain, 20 steps of cn; with 160 unknowns 1.2 by vectors and 8.7 by arrays.  A chain in
# NumPy, 20 steps of esdirk4: 28 and 29 with 100 unknowns, 31 and 46 with 160; dense 59 and 65.
SPARSE_SOLVES = Limit(
    90,
    "unknowns with sparse matrices",
    "60: arrays 1.3 ms, vectors 1.4 ms; 110: 2.4 ms, 1.2 ms",
)

# Where one call serves all points.
MANY_POINTS = Limit(1000, "unknowns", "memory for a matrix at each point ends the gain of arrays")

DELAYS = "a delay equation"
"""Why its sweeps are of arrays: there is no other engine for it."""
