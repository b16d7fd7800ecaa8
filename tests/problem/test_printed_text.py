"""Text, comparisons and rounding of numbers that vary: refused where derivatives would be lost."""

import logging
import math
import pprint
import sys
import warnings

import numpy as np
import pytest

from daeosens import ODE, DaeosensError, Stepping, Terminal, adjoint, solve
from daeosens.problem.derivative_arrays import DerivativeArray, DerivativeLostError, evaluate

STEPPING = Stepping((0.0, 1.0), "rk6vr", rtol=1e-8)
END = Terminal(lambda t, u, p: u[0])
LOGGER = logging.getLogger(__name__)


def gradient(rhs, n=1):
    """Return dJ/dp of u' = rhs from ones, with k = 0.7."""
    return adjoint(solve(ODE(rhs, n, ["k"]), np.ones(n), [0.7], STEPPING), END).p[0]


class Kept:
    """A coefficient that is made again where the parameters have changed."""

    def __init__(self, same):
        self.same = same
        self.last = None

    def __call__(self, t, u, p):
        if self.last is None or not self.same(self.last, p):
            self.last, self.rate = np.copy(p), p[0] * 1.0
        return -self.rate * u


# ---- what would lose derivatives -----------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        np.array_equal,
        np.array_equiv,
        np.allclose,
        lambda x, y: np.isclose(x, y).all(),
        lambda x, y: np.isin(x, y).all(),
        lambda x, y: np.isclose(x[0], y[0]),
        lambda x, y: math.isclose(x[0], y[0]),
        lambda x, y: (x == y).all(),
        lambda x, y: str(x) == str(y),
        lambda x, y: repr(x) == repr(y),
        lambda x, y: np.array_str(x) == np.array_str(y),
        lambda x, y: f"{x[0]:.12g}" == f"{y[0]:.12g}",
        lambda x, y: "{} of all".format(x[0]) == "{} of all".format(y[0]),  # noqa: UP032
        lambda x, y: "%s" % x[0] == "%s" % y[0],  # noqa: UP031
        lambda x, y: ",".join(map(str, x)) == ",".join(map(str, y)),
    ],
)
def test_coefficients_that_are_kept_until_parameters_change_are_refused(same):
    """All of them gave dJ/dk = 0 in the place of -exp(-0.7)."""
    with pytest.raises(
        DaeosensError, match=r"drops the derivative, in (.|\n)*test_printed_text\.py"
    ):
        gradient(Kept(same))


@pytest.mark.parametrize(
    ("rhs", "remedy"),
    [
        (lambda t, u, p: -float(f"{p[0]}") * u, "text of a number"),
        (lambda t, u, p: -float(str(p[0])) * u, "text of a number"),
        (lambda t, u, p: -float(f"{p[0]:.17g}") * u, "text of a number"),
        (lambda t, u, p: -np.array([float(str(x)) for x in u * p[0]]), "text of a number"),
        (lambda t, u, p: -round(p[0], 6) * u, "rounding to 6 decimals"),
        (lambda t, u, p: -np.round(p, 6) * u, "rounding to 6 decimals"),
        (lambda t, u, p: -np.around(p, decimals=3) * u, "rounding to 3 decimals"),
        (lambda t, u, p: -p.round(9) * u, "rounding to 9 decimals"),
    ],
)
def test_text_and_decimals_are_refused_with_the_line(rhs, remedy):
    with pytest.raises(DaeosensError, match=remedy + r"(.|\n)*line \d+ of test_printed_text\.py"):
        gradient(rhs)


def test_histograms_of_what_varies_are_refused_and_the_remedy_is_right():
    """Truth: u0' = -k (u0 + u1 + u2) in the first class, so u0 = exp(-3 k) at the end."""
    sizes, edges, state = np.array([0.1, 0.2, 0.4, 0.8, 0.9]), np.array([0.0, 0.5, 1.0]), np.ones(5)

    def counted(t, u, p):
        mass = np.histogram(sizes, bins=edges, weights=p[0] * u)[0]
        return -np.repeat(mass, [3, 2])

    def binned(t, u, p):
        mass = np.bincount(np.digitize(sizes, edges) - 1, p[0] * u, 2)
        return -np.repeat(mass, [3, 2])

    def of_values(t, u, p):
        return -p[0] * u * np.histogram(u, bins=edges)[0][1]

    for rhs in (counted, of_values):
        with pytest.raises(DaeosensError, match=r"np\.histogram drops(.|\n)*bincount"):
            gradient(rhs, 5)
    run = solve(ODE(binned, 5, ["k"]), state, [0.7], STEPPING)
    assert adjoint(run, END).p[0] == pytest.approx(-3 * math.exp(-3 * 0.7), rel=1e-6)
    constant = gradient(lambda t, u, p: -p[0] * u * np.histogram(sizes, bins=edges)[0][1] / 2)
    assert constant == pytest.approx(-math.exp(-0.7), rel=1e-6)


# ---- what goes on working ------------------------------------------------------------------------


def fail(p):
    raise ValueError(f"rate {p[0]:.3f} of {p[0]}")


def _raise_and_catch(p):
    with pytest.raises(ValueError, match="rate") as raised:
        fail(p)
    return str(raised.value)


@pytest.mark.parametrize(
    "tell",
    [
        lambda t, u, p: print(t, u, p, u[0], [*u], file=sys.stdout),
        lambda t, u, p: print(f"{p[0]:.3f} at {t}", f"{u}"),
        lambda t, u, p: print(
            "rate",
            "{:.2f}".format(p[0]),  # noqa: UP032
            str(p),
            np.array_str(p),
        ),
        lambda t, u, p: sys.stderr.write(f"{p[0]:8.3f}\n"),
        lambda t, u, p: pprint.pprint({"rate": p[0], "state": u}),
        lambda t, u, p: LOGGER.warning("rate %s", p[0]),
        lambda t, u, p: LOGGER.info(f"rate {p[0]}"),
        lambda t, u, p: warnings.warn(f"rate {p[0]}", stacklevel=1),
        lambda t, u, p: _raise_and_catch(p),
    ],
)
@pytest.mark.filterwarnings("ignore:rate")
def test_what_is_printed_logged_or_raised_has_no_derivative_to_lose(tell):
    def rhs(t, u, p):
        tell(t, u, p)
        return -p[0] * u

    assert gradient(rhs) == pytest.approx(-math.exp(-0.7), rel=1e-6)


def test_text_of_constants_and_printed_numbers():
    x = DerivativeArray(np.array([0.51, 2.0]), np.eye(2))
    told = []

    def function(x):
        told.append(_raise_and_catch(x))
        return x * float(f"{np.pi:.2f}")

    np.testing.assert_array_equal(evaluate(function, [x], (2,)).slopes, 3.14 * np.eye(2))
    assert told == ["rate 0.510 of 0.51"]


@pytest.mark.parametrize(
    "step",
    [
        lambda x: np.rint(10 * x),
        lambda x: np.round(10 * x),
        lambda x: np.array([round(10 * item) for item in x]),
        lambda x: np.array([float(np.array_equal(x, x + 1.0)), float(np.allclose(x, 2 * x))]),
        lambda x: np.isclose(x, [5.0, 7.0]).astype(float),
    ],
)
def test_steps_and_comparisons_that_do_not_hold_are_constant(step):
    x = DerivativeArray(np.array([0.51, 2.03]), np.eye(2))
    value = evaluate(lambda x: step(x) + x, [x], (2,))
    np.testing.assert_array_equal(value.slopes, np.eye(2))
    np.testing.assert_array_equal(value.value, step(x.value) + x.value)


def test_limits_by_isclose_are_refused():
    """The limit 1 of x / (exp(x) - 1) at 0 has the slope -1/2, which a constant has not."""
    x = DerivativeArray(np.array([0.0, 1.0]), np.eye(2))
    with pytest.raises(DerivativeLostError, match=r"np\.isclose of numbers that vary"):
        evaluate(lambda x: np.where(np.isclose(x, 0.0), 1.0, x / np.expm1(x)), [x], (2,))
