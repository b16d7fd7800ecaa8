"""Runs of DAEOs, the times of what happens in them, and an inner problem of several tests."""

import numpy as np

import daeosens as ds

METHODS = [("rk6vr", {"rtol": 1e-12}), ("rk4", {"dt": 0.02}), ("esdirk4", {"dt": 0.02})]


def solved(model, x0, p, method="rk6vr", end=1.0, **steps):
    """Return the run from 0 to ``end``, by default with hardly an error."""
    value = steps or {"rtol": 1e-12}
    return ds.solve(model, x0, p, ds.Stepping((0.0, end), method, **value))


def times_of(run, name="active set"):
    """Return when events of a name happened."""
    return [crossing.t for crossing in run.crossings if crossing.name == name]


def three_wells(t, x, y, p):
    """Return wells at y = -4, 0, 4; the second is lower than the first from p0 on.

    From p1 on the third one is lower than the second.
    """
    b = -0.5 * ((t - p[0]) + 2.0 * (t - p[1]))
    a = 0.5 * (-(t - p[0]) - b)
    wells = 20.0 * np.sin(np.pi / 4 * y[0]) ** 2
    return wells + a * np.cos(np.pi / 4 * y[0]) + b * np.sin(np.pi / 8 * y[0]) ** 3
