"""Tangents and full sensitivity matrices."""

from functools import cache

import frozen
import numpy as np
import pytest
from distributed import make
from forms import COSTS, DECAY, FORMS, OBSERVATION_TIMES, P0, RUNS, U0, make_stepping
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives.engines.compiled import tangent as compiled_tangent
from daeosens.derivatives.residual_jacobian import residual_tangents
from daeosens.derivatives.tangent import tangent_rows, tangent_sweep

CASES = list(COSTS.values())


@cache
def trajectory(name, method, adaptive):
    stepping = make_stepping(method, adaptive=adaptive)
    return ds.solve(FORMS[name].analytic, U0, P0, stepping, OBSERVATION_TIMES)


@pytest.mark.parametrize(("name", "method", "adaptive"), RUNS)
def test_tangent_of_every_state_is_that_of_an_independent_program(name, method, adaptive, rng):
    """And the derivative of every cost along the direction."""
    run = trajectory(name, method, adaptive)
    du0, dp = rng.normal(size=3), rng.normal(size=3)
    eps = 1j * frozen.STEP
    point = (U0 + eps * du0, P0 + eps * dp)
    log = (run.times, run.step_sizes)
    states, _ = frozen.run(FORMS[name], method, *log, *point)
    expected = np.imag(states) / frozen.STEP
    moved = ds.tangent(run, du0, dp)
    assert abs(moved.u - expected).max() < 1e-12 * abs(expected).max()
    slopes = frozen.values(FORMS[name], method, log, CASES, *point).imag / frozen.STEP
    for case, slope in zip(CASES, slopes, strict=True):
        assert abs(moved.derivative(case.objective) - slope) < 1e-12 * max(abs(slope), 0.1), (
            case.name
        )


def test_direction_that_was_forgotten_is_an_error_instead_of_zeros():
    run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, ds.Stepping((0.0, 1.0), "rk4", dt=0.5))
    with pytest.raises(ds.InputError, match=r"neither du0 nor dp was given\n.*\n  try: du0=array"):
        ds.tangent(run)
    with pytest.raises(ds.InputError, match=r"direction 1 is list\n  expected: a pair \(du0, dp\)"):
        tangent_sweep(run, [([1.0], None), [1.0]])


@pytest.mark.parametrize(
    ("method", "order"), [("rk1fe", 1), ("rk4", 4), ("rk3bs", 3), ("cn", 2), ("midpoint", 2)]
)
def test_sensitivities_converge_to_the_exact_ones_with_the_order_of_the_method(method, order):
    errors = []
    for dt in (0.1, 0.05):
        run = ds.solve(DECAY.problem, DECAY.u0, DECAY.p, ds.Stepping((0.0, 1.0), method, dt=dt))
        rows = ds.sensitivities(run)
        errors.append(
            [abs(rows.u0[0, 0] - DECAY.by_u0(1.0)), abs(rows.p[0] - DECAY.by_p(1.0)).max()]
        )
    np.testing.assert_allclose(np.log2(np.divide(*errors)), order, atol=0.3)


def test_states_of_a_tangent():
    run = trajectory("rhs", "rk4", False)
    moved = ds.tangent(run, dp=[1.0, 0.0, 0.0])
    assert len(moved.states) == run.n_steps + 1
    assert not moved.u[0].any()
    assert moved.final is moved.states[-1]
    assert moved.at(0.55) is moved.states[run.index(0.55)]
    with pytest.raises(ds.InputError, match=r"t = 0\.56 is not a step time"):
        moved.at(0.56)


@pytest.mark.parametrize("engine", ["compiled", "vectors", "arrays"])
def test_tangents_are_vectors_only_where_they_are_asked_for(engine):
    decay = ds.trace(lambda t, u, p: -p[0] * u, size=2, parameters=1)
    run = ds.solve(decay, [1.0, 2.0], [0.5], ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    along = ds.tangent(run, dp=[1.0], engine=engine)
    assert len(along.states.made) == 1
    t = run.times[:, np.newaxis]
    np.testing.assert_allclose(along.u, -t * np.exp(-0.5 * t) * [1.0, 2.0], atol=1e-6)
    np.testing.assert_array_equal([state.array for state in along.states], along.u)
    np.testing.assert_array_equal(along.final.array, along.u[-1])


def test_directions_that_are_left_out_are_zero():
    run = trajectory("rhs", "cn", False)
    both = ds.tangent(run, [1.0, 0.0, 0.0], [0.0, 2.0, 0.0]).u
    alone = ds.tangent(run, [1.0, 0.0, 0.0]).u + ds.tangent(run, dp=[0.0, 2.0, 0.0]).u
    np.testing.assert_allclose(both, alone, rtol=0, atol=1e-14)


def test_vectors_are_directions_too():
    run = trajectory("rhs", "cn", False)
    du0, dp = run.problem.create_state(), run.problem.create_parameters()
    du0.setArray([1.0, 2.0, 3.0])
    dp.setArray([0.1, 0.2, 0.3])
    np.testing.assert_array_equal(
        ds.tangent(run, du0, dp).u, ds.tangent(run, [1.0, 2.0, 3.0], [0.1, 0.2, 0.3]).u
    )
    assert du0.getArray().tolist() == [1.0, 2.0, 3.0]


def test_a_tangent_keeps_its_direction():
    """The vectors that gave it may be used for something else."""
    run = trajectory("rhs", "rk4", False)
    du0, dp = run.problem.create_state(), run.problem.create_parameters()
    du0.set(1.0)
    dp.set(0.3)
    moved = ds.tangent(run, du0, dp)
    slope = moved.derivative(COSTS["sum"].objective)
    du0.set(7.0)
    dp.set(9.0)
    assert moved.derivative(COSTS["sum"].objective) == slope
    gradient = ds.adjoint(run, COSTS["sum"].objective)
    assert slope == pytest.approx(gradient.u0.sum() + 0.3 * gradient.p.sum(), rel=1e-12)


# ---- full matrices -------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [None, 0.55, 0.0])
@pytest.mark.parametrize(("name", "method"), [("rhs", "rk5dp"), ("M(p)", "cn"), ("F", "midpoint")])
def test_matrices_are_the_tangents_of_unit_directions(name, method, t):
    run = trajectory(name, method, False)
    last = run.n_steps if t is None else run.index(t)
    rows = ds.sensitivities(run, t)
    for j, unit in enumerate(np.eye(3)):
        np.testing.assert_allclose(rows.u0[:, j], ds.tangent(run, unit).u[last], rtol=0, atol=1e-13)
        np.testing.assert_allclose(
            rows.p[:, j], ds.tangent(run, dp=unit).u[last], rtol=0, atol=1e-13
        )


def test_the_shorter_sweep_is_taken_and_gives_the_same():
    """Three rows against six columns, or against three."""
    run = trajectory("rhs", "rk4", False)
    both, by_u0, by_p = (
        ds.sensitivities(run, None, which) for which in (("u0", "p"), ["u0"], ["p"])
    )
    assert (both.sweep, by_u0.sweep, by_p.sweep) == ("adjoint", "tangent", "tangent")
    assert by_u0.p is None
    assert by_p.u0 is None
    np.testing.assert_allclose(both.u0, by_u0.u0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(both.p, by_p.p, rtol=0, atol=1e-14)


def test_matrix_of_a_problem_without_parameters():
    turning = ds.ODE(lambda t, u, p: np.array([u[1], -u[0]]), 2)
    run = ds.solve(turning, [1.0, 0.0], None, ds.Stepping((0.0, 1.0), "rk8vr", dt=0.05))
    rows = ds.sensitivities(run)
    rotation = [[np.cos(1), np.sin(1)], [-np.sin(1), np.cos(1)]]
    np.testing.assert_allclose(rows.u0, rotation, rtol=0, atol=1e-12)
    assert rows.p.shape == (2, 0)


def test_rows_of_the_matrices_are_the_gradients_of_components():
    run = trajectory("M singular", "beuler", False)
    rows = ds.sensitivities(run)
    for i in range(3):
        gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p, i=i: u[i]))
        np.testing.assert_allclose(rows.u0[i], gradient.u0, rtol=0, atol=1e-13)
        np.testing.assert_allclose(rows.p[i], gradient.p, rtol=0, atol=1e-13)


# ---- wrong input ---------------------------------------------------------------------------------


def not_finite():
    vec = PETSc.Vec().createSeq(3, comm=PETSc.COMM_SELF)
    vec.setArray([0.0, np.nan, 0.0])
    return vec


WRONG = {
    "du0": ({"du0": [1.0]}, r"du0 has shape \(1,\)\n  expected: shape \(3,\)"),
    "du0 NaN": ({"du0": [1.0, np.nan, 0.0]}, r"du0 is nan at index \[1\]"),
    "dp": ({"dp": [1.0]}, r"dp has shape \(1,\)\n  expected: shape \(3,\)"),
    "dp words": ({"dp": ["a", "b", "c"]}, r"dp is not an array of real numbers"),
    "dp vec": (
        {"dp": PETSc.Vec().createSeq(2, comm=PETSc.COMM_SELF)},
        r"dp has \(local, global\) sizes \(2, 2\)\n  expected: \(3, 3\)",
    ),
    "dp vec NaN": ({"dp": not_finite()}, r"dp contains values that are not finite"),
}


@pytest.mark.parametrize(("keywords", "message"), WRONG.values(), ids=WRONG)
def test_wrong_directions_are_named(keywords, message):
    with pytest.raises(ds.InputError, match=message):
        ds.tangent(trajectory("rhs", "rk4", False), **keywords)


@pytest.mark.parametrize("which", [(), ("u",), ("u0", "q")])
def test_unknown_matrices_are_named(which):
    with pytest.raises(
        ds.InputError, match=r"with_respect_to = .*\n  expected: \"u0\", \"p\" or both"
    ):
        ds.sensitivities(trajectory("rhs", "rk4", False), None, which)


@pytest.mark.mpi
def test_direction_of_a_field_has_to_be_a_vector():
    case = make(PETSc.COMM_WORLD, field=True)
    run = ds.solve(case.problem, case.u0, case.p, ds.Stepping((0.0, 0.1), "rk4", dt=0.02))
    with pytest.raises(
        ds.InputError, match=r"dp is ndarray\n  expected: a Vec: the parameter is a field"
    ):
        ds.tangent(run, dp=np.ones(24))


def test_sensitivities_at_several_times_are_those_at_each():
    run = trajectory("rhs", "rk4", adaptive=False)
    for times in (OBSERVATION_TIMES, list(OBSERVATION_TIMES), np.array(OBSERVATION_TIMES)):
        several = ds.sensitivities(run, times)
        assert len(several) == len(times)
        for t, item in zip(times, several, strict=True):
            np.testing.assert_array_equal(item.p, ds.sensitivities(run, t).p)
            np.testing.assert_array_equal(item.u0, ds.sensitivities(run, t).u0)


def test_directions_may_be_rows(rng):
    run = trajectory("rhs", "rk4", adaptive=False)
    du0, dp = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    pairs = tangent_sweep(run, list(zip(du0, dp, strict=True)))
    for along, expected in zip(ds.tangent(run, du0=du0, dp=dp), pairs, strict=True):
        np.testing.assert_array_equal(along.u, expected.u)
    (single,) = ds.tangent(run, dp=dp[:1])
    np.testing.assert_array_equal(single.u, ds.tangent(run, dp=dp[0]).u)
    vecs = [PETSc.Vec().createWithArray(row, comm=PETSc.COMM_SELF) for row in du0]
    along = ds.tangent(run, du0=vecs)[1].u
    np.testing.assert_allclose(along, ds.tangent(run, du0[1]).u, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "neither du0 nor dp was given"),
        ({"du0": np.eye(3), "dp": np.eye(3)[:2]}, "du0 has 3 rows, dp has 2"),
    ],
)
def test_rows_that_do_not_go_together_are_told(value, message):
    with pytest.raises(ds.InputError, match=message):
        ds.tangent(trajectory("rhs", "rk4", adaptive=False), **value)


@pytest.mark.parametrize("engine", ["auto", "vectors", "arrays"])
def test_a_direction_by_name_leaves_the_others_zero(engine):
    run = trajectory("rhs", "rk4", adaptive=False)
    name = run.problem.parameter_names[1]
    along = ds.tangent(run, dp={name: 2.0}, engine=engine)
    np.testing.assert_array_equal(along.u, ds.tangent(run, dp=[0.0, 2.0, 0.0], engine=engine).u)
    with pytest.raises(ds.InputError, match="there is no parameter 'nothing'"):
        ds.tangent(run, dp={"nothing": 1.0})


@pytest.mark.parametrize("method", ["rk4", "esdirk4"])
def test_tangents_that_overflow_are_named_at_the_step_where_they_do(method, monkeypatch):
    """With the message of a sweep by vectors, of which one step is taken."""
    model = ds.trace(lambda t, u, p: np.array([p[0] * u[0], -u[1]]), 2, ["growth"])
    stepping = ds.Stepping((0.0, 300.0), method, dt=0.25)
    run = ds.solve(model, [1.0, 1.0], [0.5], stepping)
    assert 1e60 < run.u[-1, 0] < 1e70
    directions = [([0.0, 1.0], None), (None, [1e250])]
    with pytest.raises(ds.SolveError) as by_vectors:
        tangent_sweep(run, directions, "vectors")
    taken = []
    in_python = compiled_tangent._push_by_step

    def counted(steps, trajectory, number, *rest):
        taken.append(number)
        in_python(steps, trajectory, number, *rest)

    monkeypatch.setattr(compiled_tangent, "_push_by_step", counted)
    sweeps = [
        lambda: tangent_sweep(run, directions),
        lambda: tangent_rows(run, directions),
        lambda: residual_tangents(run, [ds.LeastSquares([300.0], [[1.0, 1.0]])], directions),
    ]
    for sweep in sweeps:
        taken.clear()
        with pytest.raises(ds.SolveError) as in_c:
            sweep()
        assert str(in_c.value) == str(by_vectors.value)
        (number,) = taken
        assert run.n_steps > number > run.n_steps // 2
    # before that they are numbers
    assert tangent_rows(run, directions[:1]) is not None


@pytest.mark.parametrize("method", ["esdirk3", "esdirk4", "esdirk5"])
@pytest.mark.parametrize("rate", [1e6, 1e20, 1e40, 1e100])
def test_tangents_in_c_of_equations_as_stiff_as_can_be(method, rate):
    """A search may go there; sums of rates of stages were all rounding, and grew without bound."""

    def pulled(t, u, p):
        return np.array([-p[0] * (u[0] - p[1] * np.cos(t) * u[1]), 0.0 * u[1]])

    model = ds.trace(pulled, 2, ["rate", "height"])
    run = ds.solve(model, [0.7, 1.0], [rate, 0.7], ds.Stepping((0.0, 2.0), method, rtol=1e-8))
    directions = [([1.0, 0.0], None), ([0.0, 1.0], None), (None, [0.0, 1.0])]
    in_c = tangent_sweep(run, directions, "compiled")
    exact = [[0.0, 0.0], [0.7 * np.cos(2.0), 1.0], [np.cos(2.0), 0.0]]
    for moved, by_vectors, expected in zip(
        in_c, tangent_sweep(run, directions, "vectors"), exact, strict=True
    ):
        np.testing.assert_allclose(moved.u, by_vectors.u, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moved.u[-1], expected, rtol=2.0 / rate, atol=1e-11 + 2.0 / rate)


@pytest.mark.parametrize("method", ["rk4", "esdirk4"])
def test_steps_that_c_cannot_take_are_taken_in_python_and_those_after_them_in_c(
    method, monkeypatch
):
    model = ds.trace(lambda t, u, p: np.array([u[1], -p[0] * np.sin(u[0])]), 2, ["stiffness"])
    run = ds.solve(model, [1.0, 0.0], [2.0], ds.Stepping((0.0, 2.0), method, dt=0.1))
    directions = [([1.0, 0.0], None), (None, [1.0])]
    whole = tangent_rows(run, directions)
    assert whole is not None
    taken = []
    in_python = compiled_tangent._push_by_step

    class Failing:
        """Steps in C of which two fail."""

        def __init__(self, steps):
            self.steps = steps

        def push(self, last, dp, along, first=0):
            end = next((number for number in (3, 11) if first <= number), last)
            self.steps.push(end, dp, along[: end + 1], first)
            return end

    def counted(steps, trajectory, number, *rest):
        taken.append(number)
        in_python(steps, trajectory, number, *rest)

    linear_steps = compiled_tangent.linear_steps
    monkeypatch.setattr(compiled_tangent, "_push_by_step", counted)
    monkeypatch.setattr(
        compiled_tangent, "linear_steps", lambda *a, **k: Failing(linear_steps(*a, **k))
    )
    mended = tangent_rows(run, directions)
    assert taken == [3, 11]
    assert mended is not None
    np.testing.assert_allclose(mended[0], whole[0], rtol=1e-12, atol=1e-13)


ESDIRK_RUNS = [(name, method) for name, method, _ in RUNS if method.startswith("esdirk")]


@pytest.mark.parametrize(("name", "method"), ESDIRK_RUNS)
def test_directions_that_share_the_steps_have_the_digits_of_each_alone(name, method, rng):
    run = trajectory(name, method, False)
    du, dp = rng.normal(size=(3, len(U0))), rng.normal(size=(3, len(P0)))
    together = ds.tangent(run, du0=du, dp=dp, engine="vectors")
    for direction, by_u, by_p in zip(together, du, dp, strict=True):
        alone = ds.tangent(run, by_u, by_p, engine="vectors")
        np.testing.assert_array_equal(direction.u, alone.u)
