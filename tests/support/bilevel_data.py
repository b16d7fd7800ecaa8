"""Predators and prey, measured: what the tests of bi-level estimation share."""

import numpy as np
from scipy.integrate import solve_ivp

from daeosens import Parameter

NAMES = ["grow", "eat", "half", "die", "feed"]
TRUTH = np.array([1.1, 1.6, 0.6, 0.7, 0.05])


def predators(t, u, p):
    eaten = p.eat * u[0] * u[1] / (p.half + u[0])
    return np.array(
        [p.grow * u[0] * (1.0 - 0.3 * u[0]) - eaten, 0.8 * eaten - p.die * u[1] + p.feed]
    )


def measured(model, times, start=(1.0, 0.5), p=TRUTH, noise=0.0, seed=0):
    flat = lambda t, u: predators(t, u, model.unpack(np.asarray(p)))  # noqa: E731
    run = solve_ivp(flat, (0.0, times[-1]), start, "DOP853", times, rtol=1e-11, atol=1e-12)
    values = run.y.T + noise * np.random.default_rng(seed).standard_normal(run.y.T.shape)
    return {"time": times, "prey": values[:, 0], "predator": values[:, 1]}


def unknowns(guess=5.0, **extra):
    entries = {name: Parameter(1.0) for name in NAMES}
    return entries | {"half": Parameter(guess, scale="log")} | extra


TIMES = np.linspace(0.0, 15.0, 151)
