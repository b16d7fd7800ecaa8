"""Slopes of callbacks against their differences: dropped derivatives are told, kinks are not."""

import bisect
import warnings

import numpy as np
import pytest

from daeosens import ODE, Event, InputError, Stepping, Terminal, adjoint, hessian_product, solve
from daeosens.errors import UnsupportedError
from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.automatic_hessian import AutomaticHessian
from daeosens.problem.slope_check import contradiction

U, P = np.array([1.3, 0.7]), np.array([2.0, 0.4])

# ---- what is dropped -----------------------------------------------------------------------------


def root(level):
    """Return x with x^3 + x = level, by comparisons alone."""
    low, high = 0.0, 10.0
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        if middle**3 + middle > level:
            high = middle
        else:
            low = middle
    return low


def by_bisection(t, u, p):
    return np.array([-root(p[0]) * u[0], u[0] - p[1] * root(u[1])])


def by_whole_numbers(t, u, p):
    return -int(p[0] * 1e9) / 1e9 * np.array([int(u[0] * 1e10) / 1e10, u[1]])


def by_floor(t, u, p):
    return np.floor(u * 1e9) / 1e9 * (np.floor(p[0] * 1e9) / 1e9)


LEVELS = np.linspace(0.0, 100.0, 10_001).tolist()


def by_halving_a_table(t, u, p):  # its place in a table, made finer by halves
    def fine(x):
        k = bisect.bisect(LEVELS, x)
        low, high = LEVELS[k - 1], LEVELS[k]
        for _ in range(34):
            low, high = (
                (low, (low + high) / 2) if x < (low + high) / 2 else ((low + high) / 2, high)
            )
        return low

    return np.array([fine(u[0]) * fine(p[0]), u[1]])


def in_a_difference(t, u, p):  # no change at all where the derivative says one
    return np.array([u[0] - int(u[0] * 2.0**40) / 2.0**40, p[0] - int(p[0] * 2.0**40) / 2.0**40])


def to_a_digit(t, u, p):
    def digits(x):
        total, part = 0.0, 1.0
        for _ in range(36):
            part *= 0.5
            if total + part <= x / 10.0:
                total += part
        return total

    return np.array([digits(u[0]), digits(p[0]) * u[1]])


DROPPED = [
    by_bisection,
    by_whole_numbers,
    by_floor,
    by_halving_a_table,
    in_a_difference,
    to_a_digit,
]


@pytest.mark.parametrize("position", [1, 2], ids=["by u", "by p"])
@pytest.mark.parametrize("function", DROPPED, ids=lambda function: function.__name__)
def test_dropped_derivatives_are_told(function, position):
    jacobian = AutomaticJacobian(function, position, "rhs", "jacobian=callback")
    with pytest.raises(InputError, match="changes otherwise than its derivative says"):
        jacobian(0.0, U, P)


@pytest.mark.parametrize("function", DROPPED, ids=lambda function: function.__name__)
def test_dropped_second_derivatives_are_told(function):
    product = AutomaticHessian(function, {1: None, 2: None}, "rhs", "hessian_product=callback")
    with pytest.raises(UnsupportedError, match="changes otherwise than its derivative says"):
        product((0.0, U, P), np.ones(2), {1: np.ones(2), 2: np.ones(2)})


def test_a_step_of_newton_carries_one_derivative_two_the_second():
    def with_steps(count):
        def function(t, u, p):
            x = root(p[0])
            for _ in range(count):
                x = x - (x**3 + x - p[0]) / (3.0 * x**2 + 1.0)
            return np.array([x * u[0]])

        return function

    x = root(2.0)
    slope = 1.0 / (3.0 * x**2 + 1.0)
    jacobian = AutomaticJacobian(with_steps(1), 2, "rhs", "")(0.0, U, P)
    np.testing.assert_allclose(jacobian, [[slope * U[0], 0.0]], rtol=1e-11)
    by_p = {2: np.array([1.0, 0.0])}
    product = AutomaticHessian(with_steps(2), {2: None}, "rhs", "")
    bend = product((0.0, U, P), np.ones(1), by_p)[2]
    np.testing.assert_allclose(bend, [-6.0 * x * slope**3 * U[0], 0.0], rtol=1e-10)
    wrong = AutomaticHessian(with_steps(1), {2: None}, "rhs", "")
    with pytest.raises(UnsupportedError, match="changes otherwise"):
        wrong((0.0, U, P), np.ones(1), by_p)


def test_the_message_names_callback_numbers_line_and_remedy():
    jacobian = AutomaticJacobian(by_bisection, 2, "rhs", "jacobian_p=callback")
    with pytest.raises(InputError) as caught:
        jacobian(0.0, U, P)
    text = str(caught.value)
    for part in (
        "callback 'rhs'",
        "entry 0 by",
        "its derivative 0",
        "in root, line",
        "`if middle**3 + middle > level:`",
        "Newton's method",
        "jacobian_p=callback",
    ):
        assert part in text


@pytest.mark.parametrize("place", ["rhs", "event", "reset", "cost"])
def test_every_callback_of_a_run_is_looked_at(place):
    def shift(t, u, p):
        return np.array([root(1.5 + u[0] * p[0]) - 1.0 if place == "event" else u[0] - 0.5])

    def reset(t, u, p):
        return np.array([root(u[0] + p[0]) if place == "reset" else u[0] + 0.5])

    def rhs(t, u, p):
        return np.array([-root(p[0]) * u[0] if place == "rhs" else -p[0] * u[0]])

    def value(t, u, p):
        return root(u[0] + p[0]) if place == "cost" else u[0]

    event = Event(lambda t, u, p: shift(t, u, p)[0], reset)
    ode = ODE(rhs, size=1, parameters=["k"], events=[event])

    def gradient():
        return adjoint(
            solve(ode, [1.0], [0.7], Stepping((0.0, 1.0), "rk4", dt=0.05)), Terminal(value)
        )

    with pytest.raises(InputError, match="changes otherwise than its derivative says"):
        gradient()


def test_hessian_products_of_a_run_are_looked_at():
    def value(t, u, p):  # its first derivative is right, its second is not
        x = root(u[0] + p[0])
        x = x - (x**3 + x - u[0] - p[0]) / (3.0 * x**2 + 1.0)
        return x * 1.0

    ode = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["k"])
    run = solve(ode, [1.0], [0.7], Stepping((0.0, 1.0), "rk4", dt=0.05))
    adjoint(run, Terminal(value))
    with pytest.raises(UnsupportedError, match="changes otherwise than its derivative says"):
        hessian_product(run, Terminal(value), dp=[1.0])


# ---- what is not told ----------------------------------------------------------------------------


def smooth(rng):
    kind = rng.integers(11)
    a, b = rng.normal(size=2)
    functions = (
        lambda x: a * x + b,
        lambda x: np.exp(-np.abs(a) * x**2),
        lambda x: np.sin(10.0**b * x + a),
        lambda x: x**2 / (0.1 + x**2),
        lambda x: np.tanh(10.0 ** (2.0 * b) * (x - a)),
        lambda x: 1.0 - np.tanh(25.0 * np.abs(b) * (x + np.abs(a))),  # no more than rounding
        lambda x: np.log1p(x**2),
        lambda x: 1.0 / (1.0 + np.exp(-20.0 * (x - a))),
        lambda x: np.sqrt(x**2 + 1e-6),
        lambda x: x**3 - a * x,
        lambda x: np.exp(-0.5 * ((x - a) / 1e-3) ** 2),
    )
    return functions[kind]


def kinked(rng):
    kind = rng.integers(13)
    a, b = rng.normal(size=2)
    knots, heights = np.sort(rng.normal(size=8)), rng.normal(size=8)
    functions = (
        lambda x: np.abs(x - a),
        lambda x: np.maximum(x, a),
        lambda x: np.clip(x, a - np.abs(b), a + np.abs(b)),
        lambda x: np.where(x > a, b * x, 0.0),
        lambda x: np.floor(10.0**b * x),
        lambda x: np.sign(x - a) * np.sqrt(np.abs(x - a)),
        lambda x: np.interp(x, knots, heights),
        lambda x: x % (0.1 + np.abs(a)),
        lambda x: np.heaviside(x - a, 0.5) * b,
        lambda x: np.abs(x) ** 1.5,
        lambda x: np.rint(x * 7.0) / 7.0 + b * x,
        lambda x: np.maximum(x, 0.0) * np.minimum(x, a),
        lambda x: (1e4 + x) - 1e4,
    )
    return functions[kind]


def random_model(rng):
    """Return a model of composed functions of its unknowns and parameters, and a point."""
    n, m = rng.integers(1, 6, size=2)
    scale_u, scale_p = 10.0 ** rng.uniform(-8, 8, n), 10.0 ** rng.uniform(-8, 8, m)
    scale_f = 10.0 ** rng.uniform(-8, 8, n)
    terms = [
        (
            smooth(rng) if rng.random() < 0.5 else kinked(rng),
            smooth(rng) if rng.random() < 0.7 else kinked(rng),
            rng.normal(size=n),
            rng.normal(size=m),
            rng.integers(n),
        )
        for _ in range(rng.integers(1, 8))
    ]

    def rhs(t, u, p):
        x, q = u / scale_u, p / scale_p
        result = np.zeros(n)
        for outer, inner, by_u, by_p, k in terms:
            result[k] += outer(inner(by_u @ x) + by_p @ q) * scale_f[k]
        return result

    u = scale_u * np.where(rng.random(n) < 0.2, 0.0, rng.normal(size=n))
    p = scale_p * np.where(rng.random(m) < 0.1, 0.0, rng.normal(size=m))
    return rhs, u, p


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_no_false_alarm(block):
    rng = np.random.default_rng(1000 + block)
    for _ in range(100):
        rhs, u, p = random_model(rng)
        for position in (1, 2):
            jacobian = AutomaticJacobian(rhs, position, "rhs", "")
            assert np.shape(jacobian(0.0, u, p)) == (len(u), len((u, p)[position - 1]))
        product = AutomaticHessian(rhs, {1: None, 2: None}, "rhs", "")
        product((0.0, u, p), np.ones(len(u)), {1: rng.normal(size=len(u)), 2: p})


@pytest.mark.parametrize("block", range(20))
def test_dropped_terms_of_random_models_are_told(block):
    """A term dropped beside others is told where it is more than a thousandth of its entry."""
    rng = np.random.default_rng(2000 + block)
    for _ in range(50):
        a, b, c = rng.normal(size=3)
        share = 10.0 ** rng.uniform(-2, 2)
        scale = 10.0 ** rng.uniform(-8, 8)

        def rhs(t, u, p, a=a, b=b, c=c, share=share, scale=scale):
            kept = np.sin(a * p[0] / scale) + b * u[0]
            lost = int(p[0] / scale * 1e12) / 1e12
            return np.array([kept + share * (2.0 + np.cos(c)) * lost, u[0]])

        jacobian = AutomaticJacobian(rhs, 2, "rhs", "")
        with pytest.raises(InputError, match="changes otherwise"):
            jacobian(0.0, np.array([0.3]), np.array([0.8 * scale]))


def test_points_beyond_the_domain_say_nothing():
    def refuses(t, u, p):
        if np.any(u > 1.3 * (1.0 + 1e-9)) or np.any(u < 1.3 * (1.0 - 1e-9)):
            raise ValueError("beyond")
        return int(u[0] * 1e9) / 1e9 * np.ones(1)

    jacobian = AutomaticJacobian(refuses, 1, "rhs", "")
    assert jacobian(0.0, np.array([1.3]), P) == 0.0


def test_looks_grow_rare():
    calls = []

    def counted(t, u, p):
        calls.append(type(u))
        return u * p[0]

    jacobian = AutomaticJacobian(counted, 1, "rhs", "")
    for _ in range(600):
        jacobian(0.0, U, P)
    # at the uses 1, 8, 64 and 512 the values and two neighbours
    assert sum(kind is np.ndarray for kind in calls) == 4 * 3


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_four_differences_have_to_agree(scale):
    nothing = np.zeros(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        difference = contradiction(lambda h: np.array([scale * (1 + 3 * h)]), nothing, nothing)
        assert difference is not None
        assert difference.difference == pytest.approx(3 * scale, rel=1e-5)
        for silent in (
            lambda h: np.array([scale * np.abs(h)]),
            lambda h: np.array([scale * (h > 0.0)]),
            lambda h: np.array([scale * h if h > -1e-5 else np.nan]),
            lambda h: np.array([scale * np.floor(h * 1e5)]),
            lambda h: np.array([scale * (1.0 + 1e-3 * np.sin(1e9 * h))]),
        ):
            assert contradiction(silent, nothing, nothing) is None


def test_a_derivative_beside_a_singularity_is_called_that():
    """Of a direction of next to nothing: no difference is short enough to see its derivative."""

    def turned(t, u, p):
        slip = u[:2] - u[2:]
        return np.concatenate([slip / np.hypot(slip[0], slip[1]), np.zeros(2)])

    jacobian = AutomaticJacobian(turned, 1, "rhs", "jacobian=callback")
    u = np.array([2.0, 0.3, 2.0, 0.3 + 1e-15])
    with pytest.raises(InputError, match=r"(?s)a jump or a pole next to this(.*)try: an event"):
        jacobian(0.0, u, P)


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_fluxes_against_a_wind_that_does_not_blow_are_not_contradicted(second):
    """Two kinks at one point, whose sides have the same differences to one part in a hundred.

    Neither is the derivative there, which takes the values from the right of both faces.
    """
    amounts = 1.0 + 0.1 * np.cos(np.linspace(0.0, np.pi, 40))

    def carried(t, u, p):
        slope = np.diff(u)
        share = amounts * (1.0 - amounts / 4.0)
        flux = p[0] * slope * np.where(slope > 0.0, share[:-1], share[1:])
        return -np.diff(np.concatenate([np.zeros(1), flux, np.zeros(1)]))

    u, p = np.ones(40), np.array([0.9])
    share = amounts * (1.0 - amounts / 4.0)
    callback = AutomaticJacobian(carried, 1, "rhs", "jacobian=callback")
    jacobian = [callback(0.0, u, p) for _ in range(64)][-1]  # three looks, along other directions
    jacobian = jacobian.toarray() if hasattr(jacobian, "toarray") else jacobian
    assert jacobian[5, 6] == pytest.approx(-0.9 * share[6], rel=1e-14)
    if second:
        product = AutomaticHessian(carried, {1: None, 2: None}, "rhs", "hessian_product=callback")
        parts = product((0.0, u, p), np.eye(40)[5], {1: np.ones(40), 2: np.ones(1)})
        assert parts[1][6] == pytest.approx(-share[6], rel=1e-13)


@pytest.mark.parametrize("distance", [1e-12, 1e-10, 1e-8])
@pytest.mark.parametrize("power", [1.2, 1.5, 1.8])
def test_slopes_next_to_where_they_have_no_bound_are_not_contradicted(distance, power):
    """A level just above the crest of a weir: what differences see is far less, on any way."""

    def weir(t, u, p):
        return -p[0] * np.maximum(u - p[1], 0.0) ** power

    u, p = np.array([1.0 + distance]), np.array([2.0, 1.0])
    product = AutomaticHessian(weir, {1: None, 2: None}, "rhs", "hessian_product=callback")
    exact = -2.0 * power * (power - 1.0) * (u[0] - 1.0) ** (power - 2.0)
    for _ in range(64):  # three looks, along other directions
        parts = product((0.0, u, p), np.ones(1), {1: np.ones(1), 2: np.zeros(2)})
        assert parts[1][0] == pytest.approx(exact, rel=1e-12)
