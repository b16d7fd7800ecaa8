"""Rules of NumPy's functions: first and second derivatives against high precision."""

# what users' functions take and return is known at run time only
# pyright: basic, reportAttributeAccessIssue=false

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, special
from scipy.interpolate import CubicSpline

from daeosens.problem.automatic_derivatives import AutomaticJacobian
from daeosens.problem.automatic_hessian import AutomaticHessian
from daeosens.problem.derivative_arrays import DerivativeArray, evaluate

mp = mpmath.mp
QUICK = settings(max_examples=25, deadline=None, derandomize=True)
GENERATED = settings(max_examples=60, deadline=None, derandomize=True)


def first_and_second(function, x):
    """Return f, f' and f'' of a function of one number."""
    value = DerivativeArray(np.float64(x), np.ones(1))
    slopes = DerivativeArray(np.ones(1), np.zeros((1, 1)))
    result = evaluate(function, [DerivativeArray(value, slopes)], (1, 1))
    return result.value.value, result.slopes.value[0], result.slopes.slopes[0, 0]


def agrees(ours, exact, scale=1.0, rel=2e-11):
    assert float(ours) == pytest.approx(float(exact), rel=rel, abs=1e-13 * max(1.0, float(scale)))


anywhere, positive, inside = (-4.0, 4.0), (0.05, 6.0), (-0.95, 0.95)
ONE = {
    "sin": (np.sin, mp.sin, anywhere),
    "cos": (np.cos, mp.cos, anywhere),
    "tan": (np.tan, mp.tan, (-1.4, 1.4)),
    "arcsin": (np.arcsin, mp.asin, inside),
    "arccos": (np.arccos, mp.acos, inside),
    "arctan": (np.arctan, mp.atan, anywhere),
    "sinh": (np.sinh, mp.sinh, anywhere),
    "cosh": (np.cosh, mp.cosh, anywhere),
    "tanh": (np.tanh, mp.tanh, anywhere),
    "arcsinh": (np.arcsinh, mp.asinh, anywhere),
    "arccosh": (np.arccosh, mp.acosh, (1.1, 5.0)),
    "arctanh": (np.arctanh, mp.atanh, inside),
    "exp": (np.exp, mp.exp, anywhere),
    "exp2": (np.exp2, lambda x: mp.mpf(2) ** x, anywhere),
    "expm1": (np.expm1, mp.expm1, anywhere),
    "log": (np.log, mp.log, positive),
    "log2": (np.log2, lambda x: mp.log(x, 2), positive),
    "log10": (np.log10, mp.log10, positive),
    "log1p": (np.log1p, lambda x: mp.log(1 + x), (-0.9, 4.0)),
    "sqrt": (np.sqrt, mp.sqrt, positive),
    "cbrt": (np.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), positive),
    "square": (np.square, lambda x: x * x, anywhere),
    "reciprocal": (np.reciprocal, lambda x: 1 / x, positive),
    "sinc": (np.sinc, mp.sincpi, anywhere),
    "deg2rad": (np.deg2rad, mp.radians, anywhere),
    "degrees": (np.degrees, mp.degrees, anywhere),
    "negative": (np.negative, lambda x: -x, anywhere),
    "power 3": (lambda x: x**3, lambda x: x**3, anywhere),
    "power 2.5": (lambda x: x**2.5, lambda x: x ** mp.mpf(2.5), positive),
    "power -1": (lambda x: x**-1, lambda x: 1 / x, positive),
    "power x": (lambda x: x**x, lambda x: x**x, positive),
    "2 to the power": (lambda x: 2.0**x, lambda x: mp.mpf(2) ** x, anywhere),
    "polyval": (lambda x: np.polyval([1.0, -2.0, 3.0], x), lambda x: x * x - 2 * x + 3, anywhere),
    "math.sin": (lambda x: math.sin(x), mp.sin, anywhere),  # noqa: PLW0108
    "math.atan": (lambda x: math.atan(x), mp.atan, anywhere),  # noqa: PLW0108
    "math.pow": (lambda x: math.pow(x, 1.5), lambda x: x ** mp.mpf(1.5), positive),
    "math.log": (lambda x: math.log(x, 3.0), lambda x: mp.log(x, 3), positive),
    "math.erf": (lambda x: math.erf(x), mp.erf, anywhere),  # noqa: PLW0108
    "math.gamma": (lambda x: math.gamma(x), mp.gamma, positive),  # noqa: PLW0108
    "gamma": (special.gamma, mp.gamma, positive),
    "gammaln": (special.gammaln, mp.loggamma, positive),
    "digamma": (special.digamma, mp.digamma, positive),
    "rgamma": (special.rgamma, mp.rgamma, positive),
    "beta": (lambda x: special.beta(x, 1.5), lambda x: mp.beta(x, mp.mpf(1.5)), positive),
    "gammainc": (
        lambda x: special.gammainc(2.5, x),
        lambda x: mp.gammainc(mp.mpf(2.5), 0, x, regularized=True),
        positive,
    ),
    "betainc": (
        lambda x: special.betainc(2.0, 3.5, x),
        lambda x: mp.betainc(2, mp.mpf(3.5), 0, x, regularized=True),
        (0.05, 0.95),
    ),
    "erf": (special.erf, mp.erf, anywhere),
    "erfc": (special.erfc, mp.erfc, (-3.0, 2.0)),
    "erfcx": (special.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), (-2.0, 2.0)),
    "erfi": (special.erfi, mp.erfi, (-2.0, 2.0)),
    "erfinv": (special.erfinv, mp.erfinv, (-0.9, 0.9)),
    "dawsn": (
        special.dawsn,
        lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x),
        (-2.0, 2.0),
    ),
    "ndtr": (special.ndtr, mp.ncdf, (-3.0, 3.0)),
    "log_ndtr": (special.log_ndtr, lambda x: mp.log(mp.ncdf(x)), (-3.0, 3.0)),
    "expit": (special.expit, lambda x: 1 / (1 + mp.exp(-x)), anywhere),
    "log_expit": (special.log_expit, lambda x: -mp.log(1 + mp.exp(-x)), anywhere),
    "logit": (special.logit, lambda x: mp.log(x / (1 - x)), (0.05, 0.95)),
    "xlogy": (lambda x: special.xlogy(x, x), lambda x: x * mp.log(x), positive),
    "xlog1py": (lambda x: special.xlog1py(x, x), lambda x: x * mp.log(1 + x), positive),
    "entr": (special.entr, lambda x: -x * mp.log(x), positive),
    "rel_entr": (lambda x: special.rel_entr(x, 2.0), lambda x: x * mp.log(x / 2), positive),
    "jv": (lambda x: special.jv(1.5, x), lambda x: mp.besselj(mp.mpf(1.5), x), positive),
    "yv": (lambda x: special.yv(1.5, x), lambda x: mp.bessely(mp.mpf(1.5), x), (0.5, 6.0)),
    "iv": (lambda x: special.iv(1.5, x), lambda x: mp.besseli(mp.mpf(1.5), x), positive),
    "kv": (lambda x: special.kv(1.5, x), lambda x: mp.besselk(mp.mpf(1.5), x), (0.5, 6.0)),
    "j0": (special.j0, lambda x: mp.besselj(0, x), anywhere),
    "j1": (special.j1, lambda x: mp.besselj(1, x), anywhere),
    "i0": (special.i0, lambda x: mp.besseli(0, x), anywhere),
    "np.i0": (np.i0, lambda x: mp.besseli(0, x), anywhere),
    "k0": (special.k0, lambda x: mp.besselk(0, x), (0.5, 6.0)),
    "ellipk": (special.ellipk, mp.ellipk, (0.1, 0.9)),
    "ellipe": (special.ellipe, mp.ellipe, (0.1, 0.9)),
    "exp1": (special.exp1, mp.e1, positive),
    "expi": (special.expi, mp.ei, positive),
    "expn": (lambda x: special.expn(3, x), lambda x: mp.expint(3, x), positive),
    "spence": (special.spence, lambda x: mp.polylog(2, 1 - x), (0.1, 0.9)),
}


@pytest.mark.whole  # each function has a rule of its own
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name):
    function, exact, (low, high) = ONE[name]
    points = {*np.random.default_rng(0).uniform(low, high, size=4).tolist()}
    points |= {0.0} if low < 0.0 < high else set()
    with mpmath.workdps(30):
        for x in points:
            value, slope, bend = first_and_second(function, x)
            ds = [mpmath.diff(exact, mpmath.mpf(x), n).real for n in range(3)]
            scale = max(abs(d) for d in ds)
            for ours, theirs in zip((value, slope, bend), ds, strict=True):
                agrees(ours, theirs, 10 * scale, rel=1e-9)


# ---- kinks, and points where a derivative is infinite -------------------------------------------

KINKS = {
    "abs": (np.abs, 1.0),
    "fabs": (np.fabs, 1.0),
    "built-in abs": (abs, 1.0),
    "abs of a negative": (lambda x: np.abs(-x), -1.0),
    "maximum": (lambda x: np.maximum(x, 0.0), 1.0),
    "maximum, the other way": (lambda x: np.maximum(0.0, x), 1.0),
    "minimum": (lambda x: np.minimum(x, 0.0), 0.0),
    "minimum, the other way": (lambda x: np.minimum(0.0, x), 0.0),
    "fmax": (lambda x: np.fmax(x, 0.0), 1.0),
    "fmin": (lambda x: np.fmin(0.0, x), 0.0),
    "clip below": (lambda x: np.clip(x, 0.0, 1.0), 1.0),
    "clip above": (lambda x: np.clip(x, -1.0, 0.0), 0.0),
    "two that vary": (lambda x: np.maximum(x, -x), 1.0),
    "the smaller of two that vary": (lambda x: np.minimum(x, -x), -1.0),
    "where": (lambda x: np.where(x >= 0.0, 3.0 * x, -5.0 * x), 3.0),
    "branch": (lambda x: 3.0 * x if x >= 0.0 else -5.0 * x, 3.0),
    "interp": (lambda x: np.interp(x, [-1.0, 0.0, 1.0], [1.0, 0.0, 4.0]), 4.0),
    "sign": (np.sign, 0.0),
    "heaviside": (lambda x: np.heaviside(x, 0.5), 0.0),
    "floor": (np.floor, 0.0),
    "mod": (lambda x: np.mod(x, 1.0), 1.0),
    "hypot": (lambda x: np.hypot(x, 0.0), 0.0),
    "norm": (lambda x: np.linalg.norm([x, 0.0 * x]), 0.0),
    "norm times": (lambda x: np.linalg.norm(np.array([x, 2 * x])) * x, 0.0),
    "root of a square": (lambda x: np.sqrt(x * x), 0.0),
    "square": (lambda x: x**2, 0.0),
    "square by floats": (lambda x: x**2.0, 0.0),
    "first power": (lambda x: x**1, 1.0),
    "nought": (lambda x: x**0, 0.0),
    "power 1.5": (lambda x: x**1.5, 0.0),
    "exponent that varies": (lambda x: x ** (2.0 + x), 0.0),
    "arrays of powers": (lambda x: np.sum(x ** np.array([0, 1, 2])), 1.0),
    "prod": (lambda x: np.prod(np.array([x, 2.0, x + 1.0])), 2.0),
    "cumprod": (lambda x: np.cumprod(np.array([x, 2.0, x + 3.0]))[-1], 6.0),
}


@pytest.mark.whole  # each function has a rule of its own
@pytest.mark.parametrize("name", KINKS)
def test_the_written_rule_at_zero(name):
    function, slope = KINKS[name]
    result = evaluate(function, [DerivativeArray(np.float64(0.0), np.ones(1))], (1,))
    assert np.ravel(result.slopes if isinstance(result, DerivativeArray) else 0.0) == slope


@pytest.mark.parametrize("function", [np.sqrt, np.cbrt, lambda x: x**0.5, np.log])
def test_infinite_slopes_are_infinite_only_where_the_argument_moves(function):
    x = DerivativeArray(np.float64(0.0), np.array([1.0, 0.0]))
    np.testing.assert_array_equal(evaluate(function, [x], (2,)).slopes, [np.inf, 0.0])


def test_removable_singularities_are_refused_rather_than_taken_for_constants():
    jacobian = AutomaticJacobian(lambda x: 1.0 if x[0] == 0 else np.expm1(x[0]) / x[0], 0, "f", "")
    with pytest.raises(Exception, match="one point only"):
        jacobian(np.zeros(1))
    assert jacobian(np.ones(1))[0, 0] == pytest.approx(1.0)


# ---- generated expressions ----------------------------------------------------------------------


class High:
    """NumPy's names in high precision."""

    sin, cos, tanh, arctan, exp = mp.sin, mp.cos, mp.tanh, mp.atan, mp.exp
    abs = staticmethod(abs)

    @staticmethod
    def maximum(x, y):
        return x if x >= y else y

    @staticmethod
    def minimum(x, y):
        return x if x < y else y

    @staticmethod
    def hypot(x, y):
        return mp.sqrt(x * x + y * y)

    @staticmethod
    def where(c, x, y):
        return x if c else y

    @staticmethod
    def sqrt1(x):
        return mp.sqrt(1 + x * x)

    @staticmethod
    def log1(x):
        return mp.log(1 + x * x)


class Plain:
    sin, cos, tanh, arctan, exp = np.sin, np.cos, np.tanh, np.arctan, np.exp
    abs, maximum, minimum, hypot, where = np.abs, np.maximum, np.minimum, np.hypot, np.where

    @staticmethod
    def sqrt1(x):
        return np.sqrt(1.0 + x**2)

    @staticmethod
    def log1(x):
        return np.log1p(x * x)


UNARY = ("sin", "cos", "tanh", "arctan", "sqrt1", "log1", "abs", "neg", "square", "shrink")
BINARY = ("+", "-", "*", "/", "maximum", "minimum", "hypot", "where", "branch", "power")


def value_of(tree, x, names):
    kind, *parts = tree
    if kind == "x":
        return x[parts[0]]
    if kind == "number":
        return parts[0]
    a, *rest = (value_of(part, x, names) for part in parts)
    if kind == "neg":
        return -a
    if kind == "square":
        return a**2
    if kind == "shrink":
        return names.exp(-a * a)
    if not rest:
        return getattr(names, kind)(a)
    (b,) = rest
    operations = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "/": lambda: a / (2.0 + b * b),
        "where": lambda: names.where(a > b, a * b, a + b),
        "branch": lambda: a * a if a > b else b,
        "power": lambda: (1.0 + a * a) ** names.tanh(b),
    }
    return operations[kind]() if kind in operations else getattr(names, kind)(a, b)


leaves = st.one_of(
    st.tuples(st.just("x"), st.integers(0, 1)),
    st.tuples(st.just("number"), st.sampled_from([-1.5, 0.25, 2.0])),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(UNARY), inner), st.tuples(st.sampled_from(BINARY), inner, inner)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@GENERATED
@given(
    trees,
    st.floats(-2.0, 2.0).map(lambda x: round(x, 3) + 3e-4),
    st.floats(-2.0, 2.0).map(lambda x: round(x, 3) + 7e-4),
)
def test_generated_expressions(tree, first, last):
    """Away from ties, where derivatives are one-sided: shifted points make them unlikely."""
    point = first, last
    x = np.array(point)

    def function(x):
        return np.array([value_of(tree, x, Plain), x[0] * x[1]])

    gradient = AutomaticJacobian(function, 0, "f", "")(x)[0]
    direction = np.array([0.3, -0.7])
    product = AutomaticHessian(function, {0: None}, "f", "")(
        (x,), np.array([1.0, 0.0]), {0: direction}
    )[0]
    with mpmath.workdps(40):

        def high(*x):
            return mpmath.mpf(1) * value_of(tree, x, High)

        at = tuple(mpmath.mpf(item) for item in point)
        exact = [mpmath.diff(high, at, n) for n in ((1, 0), (0, 1))]
        mixed = mpmath.diff(high, at, (1, 1))
        second = [mpmath.diff(high, at, (2, 0)), mixed, mpmath.diff(high, at, (0, 2))]
        bend = [
            second[0] * direction[0] + mixed * direction[1],
            mixed * direction[0] + second[2] * direction[1],
        ]
    scale = 1e3 * max(1.0, *(float(abs(value)) for value in (*exact, *second)))
    for ours, theirs in zip((*gradient, *product), (*exact, *bend), strict=True):
        agrees(ours, theirs, scale, rel=1e-9)


# ---- functions of arrays ------------------------------------------------------------------------

A = np.arange(9.0).reshape(3, 3) + np.eye(3)
SYMMETRIC = A + A.T + np.diag([0.0, 3.0, 8.0])
SPARSE = sparse.csr_array(A)
SOME = A > 1.5
# entries of a row, or of all, in an order that is not that of the argument
SLANTED = np.array([[1.0, -2.0, 0.7], [0.3, 1.9, -1.1], [-0.4, 0.6, 2.3]])
STACK = np.cos(np.arange(18.0)).reshape(2, 3, 3)
WITH_NAN = np.array([1.5, np.nan, 0.5])


def filled(u):
    out = np.zeros(3)
    out[0] = u[0] * u[1]
    out[1] = math.sin(u[1])
    out[2] = -(u[2] ** 2)
    return out


def filled_by_views(u):
    out = np.zeros(4).reshape(2, 2)
    row = out[0]
    out[1, :] = u[:2]
    row[1] = u[2] * u[0]
    return out.ravel() * 2


def swapped(u):
    out = u.copy()
    first = out[0]
    out[0] = out[2]
    out[2] = first
    return out


def in_place(u):
    out = np.zeros(3)
    out += 1.0
    out *= u
    out[1:] -= u[:2] ** 2
    return out


def added_at(u):
    out = np.zeros_like(u)
    np.add.at(out, [0, 0, 1], u)
    return out


def added_at_zeros(u):
    out = np.zeros((2, 3))
    np.add.at(out, ([0, 1, 1], [2, 0, 0]), u**2)
    np.subtract.at(out[1], [0, 1, 1], u)
    return out


def added_at_transposed(u):
    whole = np.outer(u, u)
    np.add.at(whole.T, ([0, 1, 1], [1, 2, 2]), u)
    return whole


def copied(u):
    out = np.empty(3)
    np.copyto(out, u * 2.0)
    return out


def eye(u):
    matrix = np.eye(3)
    matrix[0, 1] = u[0]
    np.fill_diagonal(matrix, u)
    return matrix @ u


def of_complex(u):
    z = u[:2] + 1j * u[1:]
    return np.array([np.abs(z[0]), (z * z.conj()).real.sum(), np.angle(z[0]), np.exp(z).imag[1]])


def grid(u):
    cube = u.reshape(1, 3, 1) * np.ones((2, 3, 4))
    return (np.roll(cube, 1, axis=1) - np.moveaxis(cube, 0, 2)[:, :, 0].mean()).sum(axis=(0, 2))


ARRAYS: dict[str, Callable[..., Any]] = {
    "filled": filled,
    "views": filled_by_views,
    "swapped": swapped,
    "in place": in_place,
    "added at": added_at,
    "added at places of zeros": added_at_zeros,
    "added at places of a transpose": added_at_transposed,
    "copied": copied,
    "eye": eye,
    "complex": of_complex,
    "grid": grid,
    "list": lambda u: [u[0], 1.0, u[2] * u[1]],
    "nested lists": lambda u: np.array([[u[0], 1.0], [u[2] * u[1], u[0]]]) @ u[:2],
    "matrix": lambda u: A @ u + u @ A + A.dot(u),
    "outer": lambda u: np.outer(u, u) @ A @ u,
    "sparse": lambda u: SPARSE @ u + u @ SPARSE + SPARSE.dot(u),
    "solve": lambda u: np.linalg.solve(A + np.diag(u), u),
    "entries of a solution": lambda u: np.array(list(np.linalg.solve(A + np.diag(u), u))),
    "inv": lambda u: np.linalg.inv(A + np.diag(u)),
    "det": lambda u: np.linalg.det(A + np.diag(u)),
    "det of four": lambda u: np.linalg.det(
        np.eye(4) + np.outer(np.append(u, 1.0), np.append(u, u[0]))
    ),
    "slogdet": lambda u: np.linalg.slogdet(A + np.diag(u))[1],
    "matrix_power": lambda u: np.linalg.matrix_power(np.outer(u, u), 3),
    "norms": lambda u: [np.linalg.norm(u, k) for k in (None, 1, 3, np.inf, -np.inf)],
    "norm of a matrix": lambda u: (
        np.linalg.norm(np.outer(u, u) + A) + np.linalg.norm(np.outer(u, u), 1)
    ),
    "norm along": lambda u: np.linalg.norm(np.outer(u, u), axis=1),
    "eigenvalues": lambda u: np.linalg.eigvalsh(SYMMETRIC + np.outer(u, u)),
    "eigenvectors": lambda u: np.abs(np.linalg.eigh(SYMMETRIC + np.outer(u, u))[1]),
    "upper triangle": lambda u: np.linalg.eigh(A + np.outer(u, u), "U").eigenvalues,
    "cholesky": lambda u: np.linalg.cholesky(9.0 * np.eye(3) + np.diag(u) + np.outer(u, u)),
    "singular values": lambda u: np.linalg.svd(A + np.outer(u, u), compute_uv=False),
    "singular vectors": lambda u: np.concatenate(
        [np.abs(part).reshape(-1) for part in np.linalg.svd((A + np.outer(u, u))[:, :2], False)]
    ),
    "singular vectors, wide": lambda u: np.concatenate(
        [np.abs(part).reshape(-1) for part in np.linalg.svd((A + np.outer(u, u))[:2], False)]
    ),
    "pseudoinverse": lambda u: np.linalg.pinv((A + np.outer(u, u))[:, :2]),
    "least squares": lambda u: np.concatenate(
        np.linalg.lstsq((A + np.outer(u, u))[:, :2], u * u)[:2]
    ),
    "einsum": lambda u: np.einsum("ij,j,k->ik", A, u, u),
    "einsum, implicit": lambda u: np.einsum("ij,j", A, u),
    "tensordot": lambda u: np.tensordot(np.outer(u, u), A, axes=([0], [1])),
    "inner": lambda u: np.inner(A, u) + np.vdot(u, u),
    "kron": lambda u: np.kron(u, A),
    "cross": lambda u: np.cross(u, [1.0, 2.0, 3.0]) + np.cross(u[::-1], u * u),
    "convolve": lambda u: [*np.convolve(u, u, "same"), *np.convolve(u, [1.0, 2.0])],
    "correlate": lambda u: np.correlate(u, u[:2], "full"),
    "roll": lambda u: np.roll(u, 1) - 2 * u + np.roll(u, -1),
    "fft": lambda u: np.fft.ifft(1j * np.fft.fft(u)).real,
    "rfft": lambda u: np.fft.irfft(np.fft.rfft(u) * 2, 3),
    "fft2": lambda u: np.abs(np.fft.fft2(np.outer(u, u))) ** 2,
    "interp": lambda u: np.interp(u, [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 4.0, 9.0]),
    "interp of values": lambda u: np.interp([0.3, 1.2], [0.0, 1.0, 2.0], u),
    "sort": lambda u: np.sort(u)[::-1],
    "median": lambda u: np.median(u) + np.quantile(u, 0.3),
    "cumulative": lambda u: np.cumprod(u) + np.cumsum(u) + np.maximum.accumulate(u),
    "gradient": lambda u: np.gradient(u, 0.1),
    "trapezoid": lambda u: np.trapezoid(u * u, dx=0.1),
    "diff": lambda u: np.diff(u) + np.ediff1d(u),
    "vectorize": np.vectorize(lambda a: a * a if a > 1 else 0.0),
    "piecewise": lambda u: np.piecewise(u, [u < 1, u >= 1], [lambda a: a * a, lambda a: 2 * a - 1]),
    "select": lambda u: np.select([u < 1, u < 2], [u, u * u], u**3),
    "pad": lambda u: [*np.pad(u, 1, mode="edge"), *np.pad(u, (1, 2), constant_values=3.0)],
    "pad by zeros, widths in a list": lambda u: np.pad(np.outer(u, u), [[1, 0], [0, 2]]) * 2.0,
    "objects": lambda u: np.sin([u[0], u[1]]),
    "hstack": lambda u: np.hstack([u[0], u, [1.0, u[2]]]),
    "stack": lambda u: np.stack([u, 2 * u], axis=-1) @ np.vstack([u, u]) @ u,
    "block": lambda u: np.block([[u, u], [u, 2 * u]]),
    "insert": lambda u: np.insert(np.delete(u, 0), 1, u[0] * u[1]),
    "triangles": lambda u: np.triu(np.outer(u, u)) + np.tril(np.outer(u, A[0])),
    "diagonals": lambda u: np.diag(np.diag(u)) + np.trace(np.outer(u, u)),
    "extremes": lambda u: np.maximum(u, 1.0) + np.max(u) + u.min() + np.ptp(u),
    "clip": lambda u: np.clip(u, 0.8, 1.5),
    "powers": lambda u: u**2 + 2.0**u + u**u + u**-1.5,
    "out": lambda u: np.divide(u, 2.0, out=np.zeros_like(u), where=u > 1),
    "statistics": lambda u: np.std(u) + np.var(u, ddof=1) + np.average(u, weights=[1, 2, 3.0]),
    "prod": lambda u: np.prod(u) + np.prod(np.outer(u, u), axis=1),
    "meshgrid": lambda u: np.meshgrid(u, [1.0, 2.0])[0],
    "mod": lambda u: u % 0.9 + np.fmod(u, 0.4) + np.array(divmod(u, 0.9)[1]),
    "apply_along_axis": lambda u: np.apply_along_axis(lambda r: r * r[0], 0, np.outer(u, u)),
    "linspace": lambda u: np.linspace(u[0], u[1], 4),
    "full": lambda u: np.full(3, u[0]) * np.full_like(u, u[1]),
    "built-ins": lambda u: sum(x * x for x in u) + max(u[0], u[1], 0.0) + abs(-u[2]),
    "fancy": lambda u: u[[2, 0]] + u[np.array([True, False, True])],
    "nan_to_num": lambda u: np.nan_to_num(u * np.array([1.0, np.nan, 2.0])),
    "repeat": lambda u: np.repeat(u, 2) * np.tile(u, 2),
    "take": lambda u: np.take_along_axis(u, np.argsort(-u), 0) * np.take(u, [1, 1, 0]),
    "split": lambda u: np.split(u, [1])[1] * np.array_split(u, 2)[0],
    "broadcast": lambda u: np.broadcast_to(u, (2, 3)).T @ np.ones(2),
    "logaddexp": lambda u: np.logaddexp(u, 0.3) + np.arctan2(u, u[::-1]) + np.hypot(u, 1.0),
    "copysign": lambda u: np.copysign(u, [-1.0, 1.0, 1.0]),
    "polynomial": lambda u: np.polynomial.Polynomial([1.0, 2.0, 3.0])(u) + np.poly1d([1.0, 2.0])(u),
    "bincount": lambda u: np.bincount([0, 2, 0], weights=u),
    "hypot of math": lambda u: [math.hypot(u[0], u[1]), math.sqrt(u[2])],
    "tolist": lambda u: [x * x for x in u.tolist()],
    "item": lambda u: [u[0].item(), u.item(1), u[2] * u.real.item(2)],
    "int": lambda u: u * int(u[2]) + np.array([1.0, 2.0, 3.0])[int(u[1])],
    "vander": lambda u: np.vander(u, 3) @ u,
    "sum of some": lambda u: np.sum(u * u, where=[True, False, True], initial=u[1]),
    "sum of rows": lambda u: np.sum(np.outer(u, u), axis=(1,), dtype=float, keepdims=True),
    "mean of some": lambda u: np.mean(np.outer(u, u), axis=1, where=SOME),
    "variance of rows": lambda u: np.var(np.outer(u, u), axis=1, correction=1, keepdims=True),
    "average of rows": lambda u: np.average(np.outer(u, u), axis=1, weights=u) + np.average(u),
    "product of some": lambda u: np.prod(np.outer(u, u), axis=0, where=SOME, initial=2.0),
    "product of rows": lambda u: np.prod(np.outer(u, u), axis=1, keepdims=True),
    "largest of rows": lambda u: np.max(np.outer(u, u), axis=1, keepdims=True, initial=1.0),
    "range of rows": lambda u: np.ptp(np.outer(u, u) * SLANTED, axis=1),
    "percentiles": lambda u: np.percentile(np.outer(u, u) * SLANTED, [10.0, 60.0], axis=1),
    "median of rows": lambda u: np.median(np.outer(u, u) * SLANTED, axis=1, keepdims=True),
    "median of all": lambda u: np.median(np.outer(u, u) * SLANTED, keepdims=True),
    "without nan": lambda u: [
        np.nanmean(u * WITH_NAN),
        np.nansum(u * u * WITH_NAN),
        np.nanprod(u * WITH_NAN),
    ],
    "trapezoid over x": lambda u: np.trapezoid(np.outer(u, u), u, axis=0),
    "trapezoid over rows": lambda u: np.trapezoid(np.outer(u, u), np.outer(u, u), axis=1),
    "ediff1d with ends": lambda u: np.ediff1d(u * u, to_end=u[0], to_begin=[1.0, 2.0]),
    "reductions of ufuncs": lambda u: np.add.reduce(np.outer(u, u)) * np.maximum.reduce(u),
    "outer of ufuncs": lambda u: np.divide.outer(u, u) + np.add.outer(u, u),
    "sorted": lambda u: np.sort(np.outer(u, u) * SLANTED, axis=None),
    "dot of numbers": lambda u: np.dot(u, 2.0) + np.inner(3.0, u) * np.dot(u[0], u),
    "dot of three axes": lambda u: np.dot(np.outer(u, u), STACK),
    "vector and stack": lambda u: u @ STACK,
    "matrices in a stack": lambda u: np.outer(u, u) @ (STACK * u[:, None]),
    "stack and vector": lambda u: (STACK * u) @ u,
    "tensordot of matrices": lambda u: np.tensordot(np.outer(u, u), A),
    "cross along": lambda u: np.cross(np.outer(u, u), A, axis=0),
    "convolve inside": lambda u: np.convolve(u, [1.0, 2.0], "valid"),
    "correlate inside": lambda u: [*np.correlate(u, u[:2], "same"), *np.correlate(u, u[1:])],
    "vecdot": lambda u: np.vecdot(u, np.outer(u, u)),
    "det of one and two": lambda u: (
        np.linalg.det(np.outer(u, u)[:1, :1]) + np.linalg.det((A + np.outer(u, u))[:2, :2])
    ),
    "negative power": lambda u: np.linalg.matrix_power(A + np.diag(u), -2),
    "norms of rows": lambda u: np.linalg.norm(np.outer(u, u) * SLANTED, 1, axis=1, keepdims=True),
    "norm of columns": lambda u: np.linalg.norm(np.outer(u, u), axis=0, keepdims=True),
    "norms of a matrix": lambda u: [
        np.linalg.norm(np.outer(u, u) * SLANTED, k) for k in (-1, np.inf, -np.inf, "fro")
    ],
    "roll all": lambda u: np.roll(np.outer(u, u), 2) + np.roll(np.outer(u, A[0]), (1, 2), (0, 1)),
    "roll both": lambda u: np.roll(np.outer(u, u), 1, axis=[0, 1]),
    "columns first": lambda u: np.reshape(np.outer(u, A[0]), 9, order="F"),
    "concatenate all": lambda u: np.concatenate([np.outer(u, u), u[None]], axis=None),
    "meshgrid by rows": lambda u: np.meshgrid(u, [1.0, 2.0], indexing="ij", sparse=True)[0],
    "split columns": lambda u: np.hsplit(np.outer(u, u), [1])[1] * np.vsplit(A[:, :2], [3])[0],
    "pad by reflection": lambda u: np.pad(u, 2, mode="reflect") * np.pad(u, 2, mode="wrap"),
    "fft of all axes": lambda u: np.abs(np.fft.fftn(np.outer(u, A[0]))) ** 2,
    "rfft2": lambda u: np.fft.irfft2(np.fft.rfft2(np.outer(u, u)), (3, 3)),
    "sums in turn": lambda u: np.cumsum(np.outer(u, u)) * np.cumprod(np.outer(u, u), axis=None),
    "diff of two": lambda u: np.diff(np.outer(u, u), 2, 0),
}
POINT = np.array([0.75, 1.3, 2.1])


@pytest.mark.whole  # each function has a rule of its own
@pytest.mark.parametrize("name", ARRAYS)
def test_functions_of_arrays(name):
    """First derivatives against extrapolated differences, second ones against those of first."""
    function = ARRAYS[name]
    jacobian = AutomaticJacobian(function, 0, "f", "")

    def difference(values, h=1e-3):
        def central(h):
            pairs = [(values(POINT + h * e), values(POINT - h * e)) for e in np.eye(3)]
            return np.stack([(np.ravel(a) - np.ravel(b)) / (2 * h) for a, b in pairs], -1)

        once = [(4 * central(k / 2) - central(k)) / 3 for k in (h, h / 2)]
        return (16 * once[1] - once[0]) / 15

    ours = jacobian(POINT)
    np.testing.assert_allclose(ours, difference(function), rtol=1e-8, atol=1e-9)
    w, direction = np.cos(np.arange(len(ours))), np.array([0.4, -0.8, 0.5])
    product = AutomaticHessian(function, {0: None}, "f", "")((POINT,), w, {0: direction})[0]
    bend = difference(lambda x: w @ jacobian(x)) @ direction
    np.testing.assert_allclose(product, bend, rtol=1e-8, atol=1e-8)


def test_tables_of_numbers_beyond_their_ends_and_at_repeated_knots():
    knots, heights = [-1.0, 0.0, 0.0, 2.0], [1.0, 2.0, 5.0, 3.0]
    x = DerivativeArray(
        np.array([-np.inf, -3.0, -0.5, 0.0, 2.0, 4.0, np.inf, np.nan]), np.ones((8, 1))
    )
    for ends, steps in (({}, 0.0), ({"left": -7.0, "right": 9.0}, 1.0)):
        table = np.interp(x, knots, heights, **ends)
        assert np.array_equal(
            table.value, np.interp(x.value, knots, heights, **ends), equal_nan=True
        )
        assert np.array_equal(table.slopes[:7, 0], [0.0, 0.0, 1.0, -1.0, 0.0, 0.0, 0.0])
        assert table.value[6] == (9.0 if steps else 3.0)
    assert np.interp(x[3], [1.0], [4.0]).value == 4.0


@pytest.mark.parametrize("kind", [np.uint8, np.int8, bool, np.float16, np.float32])
def test_tables_of_short_numbers_are_interpolated_in_floats(kind):
    """As NumPy's: 5 - 9 of whole numbers without a sign is 252, and 60 - -70 of eight bits -126."""
    knots = np.array([0, 1, 3, 6], dtype=kind if kind is not bool else int)
    heights = np.array([9, 5, 60, -70] if kind is np.int8 else [9.1, 5.2, 60.3, 7.4]).astype(kind)
    x = np.array([0.3, 2.2, 4.7])
    table = np.interp(DerivativeArray(x, np.ones((3, 1))), knots, heights)
    np.testing.assert_allclose(table.value, np.interp(x, knots, heights), rtol=1e-15)
    slopes = np.diff(heights.astype(float)) / np.diff(knots.astype(float))
    np.testing.assert_allclose(table.slopes[:, 0], slopes, rtol=1e-15)


def test_interpolation_from_within_a_library_sees_no_other_numpy():
    """np.zeros of SciPy's own code makes ordinary arrays meanwhile."""
    spline = CubicSpline([0.0, 1.0, 2.0], [1.0, 3.0, 2.0])
    ours = AutomaticJacobian(lambda t, u: spline(t) * u, 1, "f", "")(0.3, POINT)
    np.testing.assert_allclose(ours, spline(0.3) * np.eye(3))


def test_constants_made_in_a_callback_are_ordinary_arrays_for_others():
    def function(u):
        nodes = np.array([0.0, 1.0, 2.0])
        return np.polyfit(nodes, np.ones(3) + nodes, 1)[0] * u + len(nodes) + float(nodes[1])

    np.testing.assert_allclose(
        AutomaticJacobian(function, 0, "f", "")(POINT), np.eye(3), atol=1e-12
    )


@pytest.mark.slow
@QUICK
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_products_of_any_shapes(rows, inner, batch, both):
    """Vectors, matrices and stacks of them."""
    rng = np.random.default_rng(rows + 10 * inner + 100 * batch)
    left, right = rng.normal(size=(batch, rows, inner)), rng.normal(size=(inner, 2))
    for a, b in (
        (left, right),
        (left[0], right),
        (left[0], right[:, 0]),
        (right.T[0], right),
        (left, right[:, 0]),
    ):
        size = a.size if not both else a.size + b.size

        def function(x, a=a, b=b):
            x = np.asarray(x)
            return np.matmul(
                x[: a.size].reshape(a.shape), x[a.size :].reshape(b.shape) if both else b
            )

        x = np.concatenate([a.ravel(), b.ravel()])[:size]
        ours = AutomaticJacobian(function, 0, "f", "")(x)
        value = np.ravel(function(x))
        for j in range(size):
            moved = np.zeros(size)
            moved[j] = 1.0
            change = np.ravel(function(x + moved)) - value  # linear in each number
            np.testing.assert_allclose(ours[:, j], change, atol=1e-12)


@pytest.mark.parametrize("x", [200.0, -800.0])
def test_tanh_far_from_zero(x):
    product = AutomaticHessian(np.tanh, {0: None}, "rhs", "")
    second = product((np.array([x]),), np.ones(1), {0: np.ones(1)})[0]
    exact = -2 * mpmath.tanh(x) * mpmath.sech(x) ** 2
    np.testing.assert_allclose(second, [float(exact)], rtol=1e-13)
