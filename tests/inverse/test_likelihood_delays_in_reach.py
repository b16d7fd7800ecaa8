"""Delays that leave the data, or become negative, in fits."""

import numpy as np
import pytest

import daeosens as ds
from daeosens import InputError, Parameter, Parameters
from daeosens.inverse import Normal
from daeosens.inverse.likelihood.delays_in_reach import delays_in_reach

STEPPING = ds.Stepping((0.0, 4.0), "rk5ts", rtol=1e-6)
DATA = {"t": np.linspace(0.5, 4.0, 8), "u": np.linspace(0.9, 0.4, 8)}


def late(t, u, z, p):
    return -p.a * z[0]


def model(history=(1.0,), delays="tau"):
    return ds.trace(late, 1, ["a", "tau"], delays=delays, history=history)


def fitted(tau, problem=None, **options):
    entries = Parameters({"a": Parameter(1.0), "tau": tau}, [1.0])
    return ds.fit(
        problem or model(), DATA, entries, STEPPING, noise=Normal(0.1), progress=False, **options
    )


@pytest.mark.parametrize("options", [{}, {"windows": 3}, {"start": "bilevel"}])
def test_a_delay_that_leaves_the_data_is_refused(options):
    with pytest.raises(InputError, match='delay "tau" begins at 4, but data end 4 after'):
        fitted(Parameter(4.0, scale="log"), **options)
    with pytest.raises(InputError, match=r"delays\[0\] begins at 4.5, but data end 4 after"):
        fitted(Parameter(9.0), model(delays=[lambda p: 0.5 * p.tau]), **options)


def test_what_history_tells_of_a_longer_delay_is_in_the_data():
    rising = model(history=lambda t, p: [np.exp(0.3 * t)])
    entries = {"a": Parameter(1.0), "tau": Parameter(5.0, scale="log")}
    run = ds.solve(rising, [1.0], [1.0, 6.0], STEPPING, DATA["t"])
    data = {"t": DATA["t"], "u": run.at(DATA["t"])[:, 0]}
    fit = ds.fit(rising, data, Parameters(entries | {"a": 1.0}, [1.0]), STEPPING)
    assert fit.estimate["tau"] == pytest.approx(6.0, rel=1e-6)
    # a delay that is known may be anything
    fixed = Parameters({"a": Parameter(1.0), "tau": 9.0}, [1.0])
    assert ds.fit(model(), DATA, fixed, STEPPING).converged


def test_one_experiment_that_sees_a_delay_is_enough():
    part = Parameters({"a": Parameter(1.0), "tau": Parameter(6.0)}, [1.0])
    reach = delays_in_reach(model().delays, ["a", "tau"], [part] * 2, [0.0, 0.0], [4.0, 12.0])
    assert [*reach] == ["tau"]
    assert (reach["tau"].lower, reach["tau"].upper) == pytest.approx((0.012, 12.0))
    with pytest.raises(InputError, match=r"begins at 6, but data end 4 after"):
        delays_in_reach(model().delays, ["a", "tau"], [part], [0.0], [4.0])


def test_a_delay_cannot_become_negative():
    with pytest.raises(InputError, match=r'delay "tau" has the lower bound -1'):
        fitted(Parameter(1.0, lower=-1.0))
    with pytest.raises(InputError, match=r'at the start: delay "tau" = -1'):
        fitted(Parameter(-1.0))
    for tau, bounds in (
        (Parameter(1.0), (0.004, 4.0)),
        (Parameter(1.0, lower=0.0, upper=2.0), (0.004, 2.0)),
        (Parameter(1e-3, scale="log"), (1e-6, 4.0)),  # the start knows better
        (Parameter(1.0, lower=1e-4), (1e-4, 4.0)),
    ):
        part = Parameters({"a": Parameter(1.0), "tau": tau}, [1.0])
        reach = delays_in_reach(model().delays, ["a", "tau"], [part], [0.0], [4.0])["tau"]
        assert (reach.lower, reach.upper) == pytest.approx(bounds)


@pytest.mark.slow
def test_a_search_towards_no_delay_ends_at_the_shortest():
    """Without a bound each run took more steps than the one before."""
    undelayed = ds.trace(lambda t, u, p: -p.a * u, 1, ["a"])
    run = ds.solve(undelayed, [1.0], [0.5], STEPPING, t_eval=DATA["t"])
    values = [run.u[run.index(time), 0] for time in DATA["t"]]
    entries = Parameters({"a": Parameter(1.0), "tau": Parameter(0.33)}, [1.0])
    fit = ds.fit(
        model(),
        {"t": DATA["t"], "u": values},
        entries,
        STEPPING,
        noise=Normal(1e-3),
        hessian="gauss_newton",
    )
    assert fit.estimate["tau"] == pytest.approx(0.004)
    assert fit.estimate["a"] == pytest.approx(0.5, rel=1e-2)
