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

POINT_BY_POINT = 300
"""Up to so many unknowns blocks are quicker than steps where callbacks take one point at a time.

One cost of 160 dense unknowns in NumPy with Jacobians, 5 steps: of rk4 530 by steps and 220 in
blocks, of cn 310 and 71; at 141 a Hessian product by rk5dp 11700 and 12700.
"""

SPARSE_SOLVES = 90
"""Likewise where steps solve with sparse matrices, which blocks make dense.

Four costs of a traced chain, 20 steps of cn: with 60 unknowns 1.4 by steps and 1.3 in blocks, with
110 1.2 and 2.4, with 160 1.2 and 8.7.
"""

STAGE_BY_STAGE = 64
"""Likewise where each stage of a step has a matrix: from there on Jacobians of NumPy callbacks with
few entries are sparse."""

MANY_POINTS = 1000
"""Up to so many where one call serves all points: memory for [points, n, n] ends the gain."""
