"""Missing derivatives of callbacks: exact to rounding, or refused with what to do instead."""

import ctypes
import math
from pathlib import Path

import forms
import mpmath
import numpy as np
import pytest
from forms import P0, U0, rhs, rhs_p, rhs_t, rhs_u
from petsc4py import PETSc
from scipy import linalg

import daeosens as ds
from daeosens.errors import UnsupportedError
from daeosens.problem.automatic_derivatives import AutomaticJacobian, Differentiated, ignores
from daeosens.problem.automatic_hessian import AutomaticHessian
from daeosens.problem.callback_guard import guarded

T = 0.3


def automatic(function, position=1, name="rhs", remedy="jacobian=callback"):
    return AutomaticJacobian(function, position, name, remedy)


@pytest.mark.parametrize(("position", "exact"), [(1, rhs_u), (2, rhs_p)])
def test_jacobians_are_exact_to_rounding(position, exact):
    ours, theirs = automatic(rhs, position)(T, U0, P0), exact(T, U0, P0)
    assert ours.dtype == float
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=4 * np.finfo(float).eps)


def test_derivative_in_a_number_is_one_column():
    ours = automatic(rhs, 0)(T, U0, P0)
    assert ours.shape == (3, 1)
    np.testing.assert_allclose(ours[:, 0], rhs_t(T, U0, P0), rtol=0, atol=1e-15)


def test_all_columns_cost_one_evaluation(rng):
    calls = []

    def counted(t, u, p):
        calls.append(t)
        return rhs(t, u, p)

    jacobian, direction = automatic(counted), rng.normal(size=3)
    ours = jacobian.along(direction, T, U0, P0)
    np.testing.assert_allclose(ours, rhs_u(T, U0, P0) @ direction, rtol=1e-14)
    calls.clear()  # at the first use values were compared
    jacobian(T, U0, P0)
    assert len(calls) == 1


def test_scalar_functions_have_one_row():
    gradient = automatic(lambda t, u, p: u[0] ** 2 * u[1], name="terminal")(T, U0, P0)
    np.testing.assert_allclose(gradient, [[2 * U0[0] * U0[1], U0[0] ** 2, 0.0]], rtol=1e-15)


def test_a_callback_without_its_argument_has_slopes_of_zero():
    np.testing.assert_array_equal(automatic(lambda t, u, p: p)(T, U0, P0), np.zeros((3, 3)))


def test_nothing_to_differentiate_gives_an_empty_matrix():
    empty = automatic(lambda t, u, p: u, 2)(T, U0, np.empty(0))
    assert empty.shape == (3, 0)


@pytest.mark.parametrize("scale", [1e-100, 1e-12, 1.0, 1e12, 1e100])
def test_no_scale_is_an_obstacle(scale):
    def norms(t, u, p):
        return np.array([np.abs(u[0]), np.linalg.norm(u), np.hypot(u[0], u[1])]) / p

    ours = automatic(norms)(T, scale * np.array([-3.0, 4.0]), scale)
    expected = np.array([[-1.0, 0.0], [-0.6, 0.8], [-0.6, 0.8]]) / scale
    np.testing.assert_allclose(ours, expected, rtol=1e-14)


def test_the_callback_may_change_its_arguments():
    def clears(t, u, p):
        rate = u**2
        u[:] = 0.0
        return rate

    u = U0.copy()
    np.testing.assert_allclose(automatic(clears)(T, u, P0), np.diag(2 * U0), rtol=1e-15)
    np.testing.assert_array_equal(u, U0)


# ---- refusals ------------------------------------------------------------------------------------


WORK = np.zeros(3)


def filled(t, u, p):
    WORK[0] = u[0]
    return WORK


def added(t, u, p):
    rate = WORK.copy()
    rate += u
    return rate


def into(t, u, p):
    np.multiply(u, 2.0, out=WORK)
    return WORK


def by_c(t, u, p):
    return (ctypes.c_double * 3)(*u)[0]


def handed_on(t, u, p):
    rate = np.zeros(3)
    seen = memoryview(np.lib.stride_tricks.as_strided(rate, (3,), (8,)))
    rate[0] = u[0]
    return np.array(seen)


def handed_on_by_an_attribute(t, u, p):
    rate = np.zeros(3)
    seen = rate.view()
    rate[0] = u[0]
    return seen


def handed_on_by_a_function(t, u, p):
    rate = np.zeros((3, 1))
    seen = np.squeeze(rate)
    rate[:, 0] = u
    return seen


REFUSED = {
    "handed on by an attribute": (handed_on_by_an_attribute, "`rate[0] = u[0]`"),
    "handed on by a function": (handed_on_by_a_function, "`rate[:, 0] = u`"),
    "float": (lambda t, u, p: [float(u[0]), 0.0, 0.0], "float()"),
    "float64": (lambda t, u, p: [np.float64(u[0]), 0.0, 0.0], "float()"),
    "complex": (lambda t, u, p: [complex(u[0]).real, 0.0, 0.0], "complex()"),
    "array made elsewhere": (filled, "`WORK[0] = u[0]`"),
    "in place": (added, "`rate += u`"),
    "out": (into, "out="),
    "copyto": (lambda t, u, p: np.copyto(WORK, u) or WORK, "np.zeros"),
    "C": (by_c, "by_c, line"),
    "fromiter": (lambda t, u, p: np.fromiter(u, float), "float"),
    "memory": (lambda t, u, p: np.array(memoryview(u)), "memoryview"),
    "data": (lambda t, u, p: np.frombuffer(u.data), ".data"),
    "bytes": (lambda t, u, p: np.frombuffer(u.tobytes()), ".tobytes"),
    "handed on": (handed_on, "handed on"),
    "complex as real": (lambda t, u, p: (1j * u).astype(float), "its .real"),
    "float32": (lambda t, u, p: u.astype(np.float32), "float32"),
    "eigenvalues": (lambda t, u, p: np.linalg.eigvals(np.outer(u, u)), "np.linalg.eigvals"),
    "random": (lambda t, u, p: np.random.default_rng(0).normal(u), "float"),
    "unknown ufunc": (lambda t, u, p: np.nextafter(u, 1.0), "'nextafter'"),
    "equality": (lambda t, u, p: u if u[0] == U0[0] else -u, ">= or <= for a side"),
    "truth": (lambda t, u, p: 1.0 if (u[0] - U0[0]) else 2.0, "truth value"),
    "np.interp's knots": (lambda t, u, p: np.interp(u, [0, 1], [0, 1], period=2.0), "period"),
}


@pytest.mark.parametrize(("function", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_drops_the_derivative_is_refused_with_its_line(function, reason):
    with pytest.raises(ds.InputError, match="callback 'rhs' cannot be differentiated") as raised:
        automatic(function)(T, U0, P0)
    text = str(raised.value)
    assert Path(__file__).name in text
    assert "try: jacobian=callback" in text
    assert "ds.trace" not in text  # which cannot either
    assert any(part in text for part in reason.split("|"))


def test_random_callbacks_are_refused():
    random = np.random.default_rng(3)
    with pytest.raises(ds.InputError, match="no random numbers"):
        automatic(lambda t, u, p: u * random.normal())(T, U0, P0)


def test_what_numbers_fail_with_too_is_told_as_it_is():
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        automatic(lambda t, u: u)(T, U0, P0)


def test_a_refusal_concerns_the_argument_it_is_about():
    def partly(t, u, p):
        return np.array([float(x) for x in u]) * p

    np.testing.assert_allclose(automatic(partly, 2)(T, U0, P0), np.diag(U0))
    with pytest.raises(ds.InputError, match=r"float\(\)"):
        automatic(partly, 1)(T, U0, P0)


def test_exceptions_of_the_function_itself_are_not_hidden():
    def faulty(t, u, p):
        raise KeyError("growth")

    with pytest.raises(KeyError, match="growth"):
        automatic(faulty)(T, U0, P0)


def test_errors_name_the_callback_once():
    def overflowing(t, u, p):
        raise OverflowError("math range error")

    for callback in (overflowing, guarded(overflowing, "terminal", PETSc.COMM_SELF)):
        with pytest.raises(OverflowError, match="math range error") as raised:
            automatic(callback, name="terminal")(T, U0, P0)
        rank = PETSc.COMM_WORLD.rank
        (note,) = raised.value.__notes__
        assert note.startswith(f"in callback 'terminal' at t = {T:g} (rank {rank}), in overflowing")


def test_numpy_is_itself_again_after_errors():
    before = (np.zeros, np.array, math.sin, np.vectorize.__call__)
    with pytest.raises(ds.InputError):
        automatic(lambda t, u, p: float(u[0]))(T, U0, P0)
    assert (np.zeros, np.array, math.sin, np.vectorize.__call__) == before


def test_second_derivatives_are_refused_as_such():
    with pytest.raises(UnsupportedError, match=r"second derivatives of callback 'f' .*float\(\)"):
        AutomaticHessian(lambda x: float(x[0]), {0: None}, "f", "hessian=callback")(
            (U0,), np.ones(1), {0: np.ones(3)}
        )


def test_a_first_derivative_that_drops_them_is_replaced_by_the_function():
    by_u = lambda t, u, p: rhs_u(t, np.array([float(x) for x in u]), p)  # noqa: E731
    product = AutomaticHessian(rhs, {1: by_u, 2: rhs_p}, "rhs", "")
    w, du, dp = np.random.default_rng(1).normal(size=(3, 3))
    ours = product((T, U0, P0), w, {1: du, 2: dp})
    for part, exact in zip(ours.values(), forms.rhs_hessian(T, U0, P0, w, du, dp), strict=True):
        np.testing.assert_allclose(part, exact, rtol=1e-13, atol=1e-14)


def test_differentiated_wants_numbers():
    with pytest.raises(ds.InputError, match="returned <U1 values"):
        Differentiated(lambda u: "a", "f", "")((1.0,), (1.0,), (1,))


# ---- whole programs ------------------------------------------------------------------------------


def drag(t, u, p):
    return np.array([u[1], p[0] - p[1] * np.abs(u[1]) * u[1]])


def drag_in_the_plane(t, u, p):
    v = u[2:]
    return np.concatenate([v, [0.3, -p[0]] - p[1] * np.linalg.norm(v) * v])


def monod(t, u, p):
    uptake = p[0] * np.abs(u[0]) / (p[1] + np.abs(u[0]))
    return np.array([0.5 - uptake, uptake])


def late_branch(t, u, p):
    if u[0] > 1.5:
        return np.array([p[1] * u[0] * (2.5 - u[0]) + p[0] * 1.5 - p[1] * 1.5])
    return np.array([p[0] * u[0]])


def real_part(t, u, p):
    psi = u[:2] + 1j * u[2:]
    change = -1j * (np.array([[p[0], 1.0], [1.0, -p[0]]]) @ psi + p[1] * np.abs(psi) ** 2 * psi)
    return np.concatenate([change.real, change.imag])


def filled_in_turn(t, u, p):
    rate = np.zeros(2)
    rate[0] = u[1]
    rate[1] = -p[0] * math.sin(u[0]) - p[1] * np.where(u[1] > 0.0, u[1], 2.0 * u[1])
    return rate


PROGRAMS = {
    "drag": (drag, [0.0, 0.0], [2.0, 0.7]),
    "drag in the plane": (drag_in_the_plane, [0.0, 0.0, 0.0, 0.0], [2.0, 0.7]),
    "monod": (monod, [0.0, 0.0], [1.2, 0.4]),
    "branch": (late_branch, [1.0], [0.8, 0.9]),
    "complex": (real_part, [1.0, 0.2, 0.0, 0.3], [0.5, 0.8]),
    "filled": (filled_in_turn, [1.0, 0.0], [1.3, 0.4]),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rk5dp", "cn"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_and_hessians_are_those_of_the_whole_program(name, method):
    """Of all but ``branch`` the discrete program is smooth near the point: fixed steps."""
    right, u0, p = PROGRAMS[name]
    weights = np.cos(np.arange(len(u0)))
    control = ds.Parameters({f"p{k}": ds.Parameter(value) for k, value in enumerate(p)}, u0)
    functional = ds.Reduced(
        ds.ODE(right, len(u0), len(p)),
        ds.Terminal(lambda t, u, p: weights @ u + u @ u),
        ds.Stepping((0.0, 1.0), method, dt=0.02),
        control,
    )
    x = np.array(p)
    steps = (1e-3, 5e-4)
    for direction in np.eye(len(p)):
        values = [functional.value(x + h * direction) for h in (1e-3, -1e-3, 5e-4, -5e-4)]
        slopes = [(values[0] - values[1]) / 2e-3, (values[2] - values[3]) / 1e-3]
        expected = (4 * slopes[1] - slopes[0]) / 3
        slack = 1e-3 if name == "branch" else 1e-8
        assert functional.gradient(x) @ direction == pytest.approx(expected, rel=slack, abs=slack)
    if name != "branch":
        hessian = functional.hessian(x)
        columns = [
            (functional.gradient(x + steps[0] * unit) - functional.gradient(x - steps[0] * unit))
            / (2 * steps[0])
            for unit in np.eye(len(p))
        ]
        np.testing.assert_allclose(hessian, columns, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10, atol=1e-12)


def test_a_jump_at_the_point_itself_takes_the_side_of_the_value():
    function = lambda t, u, p: [2.0 * t + u[0] if t < 0.5 else 7.0 - 3.0 * t]  # noqa: E731
    for t, slope in ((np.nextafter(0.5, 0.0), 2.0), (0.5, -3.0)):
        assert automatic(function, 0)(t, U0, P0)[0, 0] == slope


def test_high_precision_agrees_far_from_one():
    """Rate of a reaction by Arrhenius at 1e-3 of its temperature: 1e-300 and its derivatives."""
    rate = lambda u: [u[0] ** 2.5 * np.exp(-700.0 / u[1])]  # noqa: E731
    x = np.array([3.0, 1.02])
    ours = AutomaticJacobian(rate, 0, "f", "")(x)[0]
    with mpmath.workdps(40):
        exact = [
            mpmath.diff(lambda a, b: a ** mpmath.mpf(2.5) * mpmath.exp(-700 / b), (3.0, 1.02), n)
            for n in ((1, 0), (0, 1))
        ]
    np.testing.assert_allclose(ours, [float(item) for item in exact], rtol=1e-12)


# ---- arguments that are never read ---------------------------------------------------------------


class Model:
    def rate(self, t, u):
        return u


def keeps_it(t, u):
    return [t for _ in u]


def overwrites_it(t, u):
    t = 1.0
    return t * u


def sees_all(t, u):
    return locals()["t"] * u


def any_number(*point):
    return point[0]


@pytest.mark.parametrize(
    ("function", "known"),
    [
        (lambda t, u: u, True),
        (lambda t, u: u if u[0] > 0 else -u, True),
        (lambda t, u, *, scale=2.0: scale * u, True),
        (lambda t, u: t + u, False),
        (keeps_it, False),
        (overwrites_it, False),
        (sees_all, False),
        (any_number, False),
        (Model().rate, False),
        (np.add, False),
    ],
)
def test_only_what_a_function_never_names_is_known_to_be_ignored(function, known):
    assert ignores(function, 0) is known


def test_derivatives_in_arguments_that_are_never_read_are_not_evaluated():
    calls = []

    def rhs(_t, u, _p):
        calls.append(1)
        return -u

    problem = ds.ODE(rhs, 1, ["unused"])
    u, out = problem.create_state(), problem.create_state()
    out.set(3.0)
    problem.rhs_t(0.0, u, np.ones(1), out)
    slope = problem.rhs_p.create(0.0, u, np.ones(1))
    problem.rhs_p.fill(0.0, u, np.ones(1), slope)
    assert problem.autonomous
    assert problem.sources["rhs_t"] == "autonomous"
    assert not calls
    assert out[0] == 0.0
    assert slope[0, 0] == 0.0


def test_copies_of_the_state_may_be_filled():
    """The usual reset; in p alone the state does not vary, its copy does."""

    def bounce(t, u, p):
        after = u.copy()
        after[1] = -p[1] * u[1]
        return after

    ground = ds.Event(lambda t, u, p: u[0], reset=bounce, direction=-1)
    ball = ds.ODE(lambda t, u, p: np.array([u[1], -p[0]]), 2, ["g", "e"], events=[ground])
    run = ds.solve(ball, [5.0, -0.1], [10.0, 0.8], ds.Stepping((0.0, 1.9), "rk4", dt=0.05))
    height = ds.Terminal(lambda t, u, p: u[0])
    gradient = ds.adjoint(run, height)
    # z = e v1 s - g s^2 / 2 after the impact with speed v1, s later
    v1 = np.sqrt(0.01 + 100.0)
    s = 1.9 - (v1 - 0.1) / 10.0
    assert gradient.u0[0] == pytest.approx(0.83782811, abs=1e-8)
    assert gradient.p[1] == pytest.approx(v1 * s, rel=1e-9)
    slopes = [
        ds.adjoint(ds.solve(ball, [5.0, -0.1], [10.0, e], run.stepping), height).u0[0]
        for e in (0.8 + 1e-5, 0.8 - 1e-5)
    ]
    mixed = ds.hessian_product(run, height, [1.0, 0.0], [0.0, 0.0]).p[1]
    assert mixed == pytest.approx((slopes[0] - slopes[1]) / 2e-5, rel=1e-7)


@pytest.mark.parametrize(
    ("function", "remedy"),
    [
        (linalg.solve, "np.linalg.solve in its place"),
        (lambda a, u: linalg.cho_solve(linalg.cho_factor(a), u), "np.linalg.solve in its place"),
        (lambda a, u: linalg.eigh(a)[0] * u, "np.linalg.eigh in its place"),
        (lambda a, u: linalg.expm(a) @ u, 'jacobian=callback or "differences"'),
    ],
    ids=["solve", "cho_factor", "eigh", "expm"],
)
def test_functions_of_scipy_linalg_are_named_with_those_of_numpy(function, remedy, request):
    matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    problem = ds.ODE(lambda t, u, p: -function(p[0] * matrix, u), 2, ["k"])
    run = ds.solve(problem, [1.0, 0.5], [0.8], ds.Stepping((0.0, 0.1), "rk4", dt=0.1))
    with pytest.raises(ds.InputError) as refusal:
        ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    name = request.node.callspec.id
    assert f"scipy.linalg.{name} takes plain numbers alone" in str(refusal.value)
    assert remedy in str(refusal.value)
    assert "ds.trace" not in str(refusal.value)  # which cannot either


def assert_gradients_are_those_of_differences(rate, start, atol):
    problem, stepping = ds.ODE(rate, 2, 2), ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    p0 = np.array([0.3, 0.7])
    run = ds.solve(problem, start, p0, stepping)
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0] + u[1]))

    def place(p):
        return ds.solve(problem, start, p, stepping).u[-1].sum()

    e = 1e-6
    slopes = [(place(p0 + x) - place(p0 - x)) / (2 * e) for x in e * np.eye(2)]
    np.testing.assert_allclose(gradient.p, slopes, rtol=1e-7, atol=atol)


@pytest.mark.parametrize("name", ["concatenate", "hstack"])
def test_lists_of_numbers_that_vary_beside_arrays(name):
    """The first of a row of cars follows a leader, whose place is a list of one number."""

    def cars(t, u, p):
        ahead = getattr(np, name)([[5.0 + p[0] * t], u[:1]])
        return np.tanh(p[1] * (ahead - u))

    assert_gradients_are_those_of_differences(cars, [1.0, 0.0], 0.0)


@pytest.mark.parametrize(
    "rate",
    [
        lambda t, u, p: np.interp(t, [0.0, 0.4, 2.0], [0.1, p[0], p[1]]) - u,
        lambda t, u, p: np.interp(u[0], [0.0, p[1], 2.0], [0.1, 0.5, 3.0]) - u,
        lambda t, u, p: -u * np.mean([p[0], u[0], 0.5]) - np.var([p[1], u[1]]),
        lambda t, u, p: -np.linalg.solve([[1.0 + p[0], 0.1], [0.2, p[1]]], [u[0], u[1]]),
        lambda t, u, p: -np.linalg.inv([[1.0 + p[0], 0.1], [0.2, p[1]]]) @ u,
    ],
    ids=["interp values", "interp knots", "mean and var", "solve", "inv"],
)
def test_functions_of_numpy_take_lists_of_numbers_that_vary(rate):
    """Tables with a depth that is a parameter, ``np.interp(t, [0, 2, 22], [0, p[0], p[0]])``."""
    assert_gradients_are_those_of_differences(rate, [0.9, 0.4], 1e-9)
