"""ESDIRK steps in C that call NumPy: few evaluations, stages to rounding, errors as they are."""

import numpy as np
import pytest
from forms import DIAGONAL

from daeosens import ODE, Stepping, Terminal, adjoint, solve, tangent, trace
from daeosens.errors import NotFiniteError, SolveError
from daeosens.methods.esdirk.callback_steps import LARGEST_OF_CALLBACKS, callback_steps
from daeosens.methods.esdirk.tableau import TABLEAUX
from daeosens.methods.registry import find_method

RATES = np.array([0.04, 1e4, 3e7])
START = np.array([1.0, 0.0, 0.0])
STIFF = Stepping((0.0, 1e3), "esdirk5", rtol=1e-7, atol=1e-11)
LAST = Terminal(lambda t, u, p: u @ u + u[1])


def robertson(t, u, p):
    a, b, c = p[0] * u[0], p[1] * u[1] * u[2], p[2] * u[1] ** 2
    return np.array([-a + b, a - b - c, c])


class Counted:
    """Robertson's rates, and how often they were asked for."""

    def __init__(self):
        self.count = 0

    def __call__(self, t, u, p):
        self.count += isinstance(u, np.ndarray)
        return robertson(t, u, p)


def residuals(run, scheme, rates):
    """What is left of the equations of stages, relative to their states."""
    stages = np.array([[stage.array for stage in run.stages[n]] for n in range(run.n_steps)])
    left = 0.0
    for states, t, h in zip(stages, run.times, run.step_sizes, strict=False):
        # the start and the stages between; the last one is the next state
        f = np.array([rates(t + c * h, u) for c, u in zip(scheme.c, states, strict=True)])
        for i in range(1, len(states)):
            miss = states[i] - states[0] - h * scheme.a[i, : i + 1] @ f[: i + 1]
            slope = 1.0 + h * scheme.gamma * 1e4  # the fastest rate, which rounding is amplified by
            left = max(left, float(np.max(np.abs(miss) / (slope * np.abs(states[i]).max()))))
    return left


@pytest.mark.parametrize("method", DIAGONAL)
def test_stages_solve_their_equations_to_rounding(method):
    stepping = Stepping((0.0, 40.0), method, rtol=1e-6, atol=1e-10)
    run = solve(ODE(robertson, 3, 3), START, RATES, stepping, checkpoint="stages")
    scheme = TABLEAUX[method]
    assert residuals(run, scheme, lambda t, u: robertson(t, u, RATES)) < 1e-14


def test_runs_and_gradients_are_those_of_c():
    model = trace(robertson, 3, 3)
    runs = [solve(problem, START, RATES, STIFF) for problem in (ODE(robertson, 3, 3), model)]
    ours, compiled = runs
    np.testing.assert_allclose(ours.u[-1], compiled.u[-1], rtol=1e-8)
    gradients = [adjoint(run, LAST) for run in runs]
    for part in ("u0", "p"):
        values = [getattr(gradient, part) for gradient in gradients]
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-12 * np.abs(values[1]).max())


def test_a_step_has_one_jacobian_and_few_evaluations():
    counted = Counted()
    run = solve(ODE(counted, 3, 3), START, RATES, STIFF)
    attempts = run.n_steps + run.effort.rejected
    assert counted.count < 6 * 7 * attempts  # of seven implicit stages


@pytest.mark.parametrize(("method", "evaluations"), [("esdirk4", 3.0), ("esdirk5", 3.0)])
def test_stages_of_diffusion_and_reaction_take_few_evaluations(method, evaluations):
    counted: dict[type, int] = {}

    def pattern(t, w, p):
        counted[type(w)] = counted.get(type(w), 0) + 1
        u, v = w[:48], w[48:]
        wide = [np.pad(part, 1, mode="edge") for part in (u, v)]
        u_xx, v_xx = (part[2:] - 2 * part[1:-1] + part[:-2] for part in wide)
        cubic = u * v**2
        return np.concatenate(
            [p[0] * u_xx - cubic + p[2] * (1 - u), p[1] * v_xx + cubic - (p[2] + p[3]) * v]
        )

    x = np.linspace(0.0, 1.0, 48)
    start = np.concatenate([1.0 - 0.5 * np.exp(-50 * x**2), 0.25 * np.exp(-50 * x**2)])
    p = [2.0, 1.0, 0.04, 0.06]
    stepping = Stepping((0.0, 200.0), method, rtol=1e-6)
    run = solve(ODE(pattern, 96, 4), start, p, stepping)
    attempts = run.n_steps + run.effort.rejected
    stages = len(TABLEAUX[method].c) - 1
    # one Jacobian a step, by colours; the first rates of steps are evaluated too
    (jacobians,) = (count for kind, count in counted.items() if kind is not np.ndarray)
    assert jacobians < 1.2 * attempts + 10
    assert counted[np.ndarray] < (1.0 + evaluations * stages) * attempts
    compiled = solve(trace(pattern, 96, 4), start, p, stepping)
    np.testing.assert_allclose(run.u[-1], compiled.u[-1], rtol=1e-9)


@pytest.mark.parametrize("method", DIAGONAL)
def test_long_steps_where_a_fast_unknown_sets_out_keep_its_sign(method):
    # rates that are extrapolated there lead to roots below zero, on which runs explode
    def thrice(t, u, p):
        return np.concatenate([robertson(t, u[k : k + 3], p) for k in (0, 3, 6)])

    for dt in (0.1, 0.02):
        stepping = Stepping((0.0, 5.0), method, dt=dt)
        try:
            run = solve(ODE(thrice, 9, 3), np.tile(START, 3), RATES, stepping)
        except SolveError:
            continue  # the step is too long for the method
        assert run.u.min() > -1e-4


def test_derivatives_pass_taylor_and_duality():
    problem = ODE(robertson, 3, 3)
    stepping = Stepping((0.0, 10.0), "esdirk4", dt=0.1)
    run = solve(problem, START, RATES, stepping)
    gradient = adjoint(run, LAST)
    assert gradient.engine == "arrays"
    rng = np.random.default_rng(3)
    du, dp = np.array([0.7, 1e-5, 0.3]), RATES * rng.normal(size=3)  # no rate below zero
    moved = tangent(run, du, dp)
    slope = gradient.u0 @ du + gradient.p @ dp
    u, along = run.u[-1], moved.u[-1]
    assert 2.0 * u @ along + along[1] == pytest.approx(slope, rel=1e-11)
    errors = []
    for step in (1e-2, 1e-3):
        near = solve(problem, START + step * du, RATES + step * dp, stepping).u[-1]
        errors.append(abs(near @ near + near[1] - u @ u - u[1] - step * slope))
    assert np.log10(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.1)


def test_stages_that_were_not_kept_are_found_again_with_the_same_bits():
    problem = ODE(robertson, 3, 3)
    kept, plain = (
        solve(problem, START, RATES, STIFF, checkpoint=name) for name in ("auto", "states")
    )
    assert len(kept.kept) == kept.n_steps
    assert not len(plain.kept)
    for engine in ("arrays", "vectors"):
        ours, reference = (adjoint(run, LAST, engine) for run in (plain, kept))
        np.testing.assert_array_equal(ours.p, reference.p)
        np.testing.assert_array_equal(ours.u0, reference.u0)


def test_states_that_a_callback_keeps_stay_what_they_were():
    seen = []

    def rates(t, u, p):
        seen.append((u, np.array(u)))
        return -p[0] * u

    solve(ODE(rates, 2, 1), [1.0, 2.0], [3.0], Stepping((0.0, 1.0), "esdirk4", dt=0.1))
    for mine, copied in seen:
        np.testing.assert_array_equal(mine, copied)
    with pytest.raises(ValueError, match="read-only"):
        seen[0][0][0] = 0.0


def test_a_guess_outside_the_domain_is_replaced_by_the_stage_before():
    outside = []

    def emptying(t, u, p):
        # falls to 0.02, where a rate ahead would pass zero
        if u[0] < 0.0:
            outside.append(t)
            raise ValueError("no root of a negative number")
        return np.array([-p[0] * (np.sqrt(u[0]) - 0.1)])

    problem = ODE(emptying, 1, 1)
    run = solve(problem, [1.0], [50.0], Stepping((0.0, 1.0), "esdirk4", rtol=1e-6, atol=1e-9))
    assert run.u[-1, 0] == pytest.approx(0.01, rel=1e-5)


def test_what_has_decayed_to_nothing_needs_no_digits():
    """Below 1e-308 numbers have few digits, and a change of the last one never became small."""

    def decay(t, u, p):
        return np.array([-p[0] * u[0], p[0] * u[0] - p[1] * u[1] ** 2])

    stepping = Stepping((0.0, 2000.0), "esdirk3", rtol=1e-8)
    runs = [solve(made(decay, 2, 2), [1.0, 0.5], [1.0, 0.1], stepping) for made in (ODE, trace)]
    assert runs[0].effort.rejected == 0
    assert runs[0].n_steps < 1.01 * runs[1].n_steps
    assert runs[0].u[-1, 0] < 1e-150
    np.testing.assert_allclose(runs[0].u[-1, 1], runs[1].u[-1, 1], rtol=1e-8)


def test_what_is_not_finite_is_told_with_its_operation():
    problem = ODE(lambda t, u, p: np.sqrt(p[0] - t) * np.ones(1), 1, 1)
    stepping = Stepping((0.0, 2.0), "esdirk4", rtol=1e-6, atol=1e-9)
    with pytest.raises(Exception, match="returned nan in entry"):
        solve(problem, [1.0], [1.0], stepping)
    with pytest.raises(NotFiniteError, match=r"invalid value in .* at `np.sqrt\(p\[0\] - t\)`"):
        solve(problem, [1.0], [1.0], Stepping((0.0, 2.0), "esdirk4", dt=0.3))


def test_who_takes_steps_by_callbacks():
    scheme = find_method("esdirk5").tableau
    assert callback_steps(ODE(robertson, 3, 3), scheme, RATES) is not None
    assert callback_steps(trace(robertson, 3, 3), scheme, RATES) is None  # has C functions
    many = ODE(lambda t, u, p: -u, LARGEST_OF_CALLBACKS + 1)
    assert callback_steps(many, scheme, np.empty(0)) is None
    assert callback_steps(ODE(robertson, 3, 3, mass=np.eye(3)), scheme, RATES) is None
