"""Limits of the choice of an engine, each with the measurement that set it.

Milliseconds of processor time on an AMD EPYC (Zen 5).
"""

FEW_ROWS = 2
"""Up to so many costs, or directions, are swept in C one beside the other where that can be.

One cost of a traced model with 1 % of its 1000^2 couplings, 50 steps of rk4: 13 in C, 30 in
blocks.  Blocks form the Jacobian at every point, and gain by each further row.
"""

FEW_UNKNOWNS = 30
"""Up to so many unknowns sweeps in C are quicker than blocks for any number of rows.

All states of 10 dense Lotka-Volterra species: 0.12 in C, 0.2 in blocks; of 55: 0.8 in blocks, 1.5.
"""

TINY = 12
"""Up to so many unknowns whole functions are quicker than their products with matrices.

One cost of 10 dense Lotka-Volterra species, rtol 1e-6: 0.02, and 0.03 by products.
"""

POINT_BY_POINT = 100
"""Up to so many unknowns blocks are quicker than steps where callbacks take one point, or solves
make sparse matrices dense.

One cost of n dense unknowns, rk5dp, steps over blocks: 5.0 (n = 10), 3.8 (100), 3.0 (200); sparse
ones with 300 unknowns, 20 steps of cn: 13 by steps, 40 in blocks.
"""

MANY_POINTS = 1000
"""Up to so many where one call serves all points: memory for [points, n, n] ends the gain."""
