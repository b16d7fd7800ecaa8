"""The thermostat driver: a heat equation that switches, the same on any number of ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driver_modules import driver
from fields import own_part
from petsc4py import PETSc

from daeosens import InputError, Running, Stepping, adjoint, solve, tangent, taylor
from daeosens.derivatives import evaluate
from daeosens.io import open_results
from daeosens.verify import duality

THERMOSTAT = driver("thermostat")
CG = {"snes_type": "ksponly", "ksp_type": "cg", "pc_type": "jacobi", "ksp_rtol": 1e-14}
THRESHOLDS = (18.4, 20.9)


def configuration(method="rk4", end=3.0, dt=0.02, **keys):
    options = {} if method.startswith("rk") else CG
    stepping = Stepping((0.0, end), method, dt=dt, options=options)
    low, high = THRESHOLDS
    values = {"points": (10, 8), "wear": 10.0, "low": low, "high": high} | keys
    return THERMOSTAT.Config(stepping=stepping, **values)


def run_of(config, comm=PETSc.COMM_SELF, power=800.0, low=None, high=None):
    house = THERMOSTAT.room(config, comm)
    p = (power, low or config.low, high or config.high)
    return house, solve(house.problem, house.start, p, config.stepping)


# ---- ranks ---------------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize(("method", "dt"), [("rk4", 0.02), ("cn", 0.05)])
def test_same_answers_on_any_number_of_ranks(method, dt):
    config = configuration(method, dt=dt)
    answers = []
    for comm in (PETSc.COMM_WORLD, PETSc.COMM_SELF):
        house, run = run_of(config, comm)
        objective = THERMOSTAT.cost(config, house)
        gradient = adjoint(run, objective)
        assert duality(run, objective) < 1e-11
        answers.append((house.grid, run, gradient))
    (grid, ours, gradient), (whole, alone, expected) = answers
    times = [crossing.t for crossing in alone.crossings]
    assert len(times) >= 6
    np.testing.assert_allclose([crossing.t for crossing in ours.crossings], times, rtol=1e-11)
    assert gradient.value == pytest.approx(expected.value, rel=1e-11)
    np.testing.assert_allclose(gradient.p, expected.p, rtol=1e-9)
    field = own_part(grid, whole.values(expected.u0_vec))
    scale = abs(field).max()
    np.testing.assert_allclose(grid.values(gradient.u0_vec), field, rtol=0, atol=1e-10 * scale)


# ---- derivatives ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("method", "dt", "free"), [("rk4", 0.02, ()), ("cn", 0.05, THERMOSTAT.NAMES)]
)
def test_taylor_through_several_switches(method, dt, free):
    """In thresholds and power, and in the first field."""
    config = configuration(method, dt=dt)
    house = THERMOSTAT.room(config)
    functional = THERMOSTAT.functional(config, house, *free)
    epsilons = [2e-4 * 0.5**k for k in range(4)]
    orders = taylor(functional, epsilons=epsilons, hessian=bool(free))
    assert orders.order > 1.99
    assert not free or orders.hessian_order > 2.97
    assert len(functional.trajectory(functional.start()).crossings) >= 6


@pytest.mark.mpi
@pytest.mark.parametrize(("method", "dt"), [("rk4", 0.02), ("cn", 0.05)])
def test_heat_bought_is_heat_left_and_heat_lost(method, dt):
    """To rounding, because quadrature and steps are of one method: the cost counts what is paid."""
    config = configuration(method, dt=dt)
    house, run = run_of(config, PETSc.COMM_WORLD)
    lost = Running(lambda t, u, p: house.loss.dot(u), density_t="autonomous")
    cell = np.prod(house.grid.spacing)
    ends = [0.0, *(crossing.t for crossing in run.crossings), config.stepping.t_span[1]]
    bought = 800.0 * sum(np.diff(ends)[::2])
    kept = cell * (run.final.sum() - house.start.sum())
    assert evaluate(run, lost) == pytest.approx(bought - kept, rel=1e-10)


def test_sensitivity_at_fixed_times_and_its_jumps():
    config = configuration(dt=0.01)
    house, run = run_of(config)
    slopes = THERMOSTAT.sensitivity(house, run)
    e = 1e-5
    _, above = run_of(config, high=config.high + e)
    _, below = run_of(config, high=config.high - e)
    for t in (0.5, 0.9, 1.4, 2.2, 3.0):
        expected = house.sensor.dot(above.at(t) - below.at(t)) / (2 * e)
        assert slopes[run.index(t)] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    times = tangent(run, dp=[0.0, 0.0, 1.0]).times
    on, off = house.grid.create_vec(), house.grid.create_vec()
    house.problem.modes["on"].rhs(0.0, house.start, run.p, on)
    house.problem.modes["off"].rhs(0.0, house.start, run.p, off)
    heating = house.sensor.dot(on - off)
    assert heating > 0.1
    for crossing in run.crossings:
        sign = 1.0 if crossing.name == "hot" else -1.0
        jump = slopes[crossing.step + 1] - slopes[crossing.step]
        assert jump == pytest.approx(sign * heating * times[crossing.step], rel=1e-9)
    first = run.crossings[0].step
    assert (slopes[:first] == 0.0).all()
    assert (
        abs(slopes[first]) < 1e-7
    )  # the rate at the switch is that of a step, not of the equation


@pytest.mark.slow
def test_switch_that_comes_in_at_the_end_leaves_the_gradient_and_makes_the_hessian_jump():
    """Up to the error of a step, which is small here."""
    config = configuration("rk5dp", end=2.87, dt=0.029, points=(8, 6))
    house = THERMOSTAT.room(config)
    functional = THERMOSTAT.functional(config, house, "high")

    def count(high):
        return len(functional.trajectory([high]).crossings)

    low, high = 20.0, 22.0
    assert count(low) > count(high)
    while high - low > 1e-8:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if count(middle) == count(20.0) else (low, middle)
    (value, gradient), (other, slope) = (functional.value_and_gradient([x]) for x in (low, high))
    assert abs(count(high) - count(low)) == 1
    assert value == pytest.approx(other, rel=1e-8)
    assert gradient[0] == pytest.approx(slope[0], rel=2e-3)
    bends = [functional.hessian([x])[0, 0] for x in (low, high)]
    assert abs(bends[0] / bends[1] - 1.0) > 0.05


# ---- the driver ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_changes_of_the_number_of_switches_are_said(shared_tmp_path, comm, capsys):
    config = configuration(end=2.5, dt=0.025, points=(12, 9), low=18.0, high=22.0)
    results = open_results(shared_tmp_path / "out", comm)
    assert THERMOSTAT.study(config, results)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith("(changed)")]
    counts = results.facts["counts"]
    assert len(lines) == np.count_nonzero(np.diff(counts)) >= 1
    bounds = (config.low_bounds, config.high_bounds)
    for name, (least, most) in zip(("low", "high"), bounds, strict=True):
        assert least <= results.facts[name] <= most
    assert (shared_tmp_path / "out" / "fields.xdmf").is_file()


def test_thresholds_that_could_cross_are_named():
    with pytest.raises(InputError, match=r"low_bounds = \(17.0, 20.5\), high_bounds = \(20.0, 23"):
        configuration(low_bounds=(17.0, 20.5))


def test_better_thresholds_cost_less_at_every_resolution():
    """The optimum of configs/thermostat.small.toml, and the start, on a finer grid."""
    for points, dt in (((12, 9), 0.025), ((20, 15), 0.01)):
        config = configuration(end=2.5, dt=dt, points=points)
        house = THERMOSTAT.room(config)
        start = replace(config, low=18.0, high=22.0)
        functional = THERMOSTAT.functional(start, house, "low", "high")
        values, first = (functional.value(x) for x in ((18.5186, 20.434), (18.0, 22.0)))
        assert values < first - 3.0
