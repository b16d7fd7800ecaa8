"""A start that leaves out what is found for it is checked as any other."""

import numpy as np

import daeosens as ds


def test_starts_may_leave_out_the_optimiser_of_a_daeo():
    model = ds.DAEO(
        lambda t, x, y, p: [-p[0] * x[0] + y[0]],
        lambda t, x, y, p: (y[0] - x[0]) ** 2,
        size=(1, 1),
        box=[(-3.0, 3.0)],
        parameters=["rate"],
    )
    start = {"rate": ds.Parameter(0.7)}
    control = ds.Parameters(start, initial_state=lambda p: np.array([1.0 + p[0] ** 2]))
    u0 = ds.solve(model, [1.49], [0.7], ds.Stepping((0.0, 0.1), "rk4", dt=0.05)).u[0]
    (row,) = (
        row
        for row in ds.check(model, u0, [0.7], control=control).rows
        if row.name.startswith("initial_state")
    )
    assert row.verdict == "right"
