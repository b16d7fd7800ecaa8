"""Functions of symbols give what NumPy gives, or an error that names the line."""

# what users' functions take and return is known at run time only
# pyright: basic

import math
import warnings
from typing import ClassVar

import casadi
import numpy as np
import pytest
from mpi4py import MPI
from scipy import sparse, special

from daeosens import InputError
from daeosens.tracing.named_parameters import admit_shapes
from daeosens.tracing.tracer import Tracer

SHAPES = admit_shapes({"a": (), "b": (4,), "A": (4, 4), "B": (3, 4)})
TRACER = Tracer(4, SHAPES, comm=MPI.COMM_SELF)
RNG = np.random.default_rng(5)
U = RNG.normal(size=4)
P = SHAPES.pack(
    {
        "a": 0.7,
        "b": RNG.normal(size=4),
        "A": RNG.normal(size=(4, 4)),
        "B": RNG.normal(size=(3, 4)),
    }
)
L = sparse.csr_array(np.diag([1.0, -2.0, 0.0, 3.0]) + np.diag([0.5, 0.0, 1.5], 1))
M = RNG.normal(size=(4, 4))


def filled(t, u, p):
    out = np.zeros_like(u)
    out[0] = u[1] * t
    out[1:] += u[:-1]
    inner = out[1:3]
    out[1] *= 3.0
    inner += inner[0]
    inner[-1] = 5.0 * u[0]
    out[[0, 3]] = out[[3, 0]]
    return out


def filled_floats(t, u, p):
    flow = np.arange(1, 4) * u[:3] * t
    out = np.zeros(4)
    out[:3] -= flow
    out[1:] += flow
    rows, ones = np.empty((2, 4)), np.ones(4)
    rows[0], rows[1] = p.A @ u if p.A.shape[0] == 4 else u, ones
    ones[2] = u[0]
    levels = np.full(4, 0.5)
    levels[-1] *= u[1]
    table = np.zeros(3, dtype=int)  # remains NumPy's
    table[1] = 2
    mass, unit = np.eye(4, k=1), np.identity(4)
    mass[1, 1], unit[3, 0] = 1.0 + u[2] ** 2, t * u[3]
    return out + rows[0] * rows[1] + ones * levels + u[table[1]] + mass @ u - unit @ u


def filled_matrix(t, u, p):
    out = np.empty_like(p.A)
    out[...] = p.A
    out[1] = u
    out[:, 2] -= p.b
    out.T[0, 1] = t
    out.ravel()[5] = 1.0
    return out @ u


def aliased(t, u, p):
    x = u * 2.0
    y = x
    x += 1.0
    z = x.copy()
    z *= 2.0
    number = u[0]
    number += 1.0
    return y + z + number + u


FUNCTIONS = {
    "ufuncs": lambda t, u, p: np.sin(u) + np.exp(-u) * np.tanh(p.b) - np.sqrt(np.abs(u)) / 3.0,
    "more ufuncs": lambda t, u, p: (
        np.arctan2(u, p.b) + np.hypot(u, 2.0) + np.cbrt(u) + np.log1p(u**2)
    ),
    "remainder": lambda t, u, p: np.mod(u, 0.3) + np.floor(u) + np.fmod(u, 0.4) + u // 0.25,
    "special": lambda t, u, p: special.erf(u) + special.expit(p.b),
    "powers": lambda t, u, p: u**3 + np.abs(u) ** 1.5 + 2.0**u + np.abs(u) ** p.b + u**-2,
    "where": lambda t, u, p: np.where(u > 0.0, np.log(np.abs(u)), p.b * t),
    "conditions": lambda t, u, p: np.where((u > 0) & ~(p.b > 0) | (t > 9), u, 2.0) + (u <= 0),
    "heaviside": lambda t, u, p: np.heaviside(u, 0.5) * np.sign(p.b) + np.clip(u, -0.3, 0.3),
    "extremes": lambda t, u, p: np.maximum(u, p.b) - np.minimum(u, 0.0) + u.max() - np.min(p.B),
    "extremes of axes": lambda t, u, p: p.B.max(axis=0) + np.amin(p.A, axis=1),
    "products": lambda t, u, p: p.A @ u + u @ p.A + p.A.T @ p.b + (p.B.T @ (p.B @ u)),
    "matrix products": lambda t, u, p: (p.A @ p.A.T @ p.B.T)[:, 1] + np.dot(p.A, u),
    "numbers times": lambda t, u, p: u * (u @ p.b) + np.inner(u, p.b) + np.vdot(u, u),
    "constant left": lambda t, u, p: M @ u + np.float64(2.0) * u - np.ones(4) / u,
    "constant right": lambda t, u, p: u @ M + (p.A @ M) @ u,
    "sparse": lambda t, u, p: L @ u + u @ L + L.T @ p.b,
    "outer": lambda t, u, p: np.outer(u, p.b) @ p.b + np.multiply.outer(u, p.b)[0],
    "broadcast": lambda t, u, p: (p.A * u + u[:, None] * p.A - p.B[1])[2] + np.add(p.a, u),
    "columns": lambda t, u, p: (p.A * u[:, np.newaxis]).sum(axis=1) + p.A.sum(axis=0),
    "sums": lambda t, u, p: np.sum(p.B) + p.A.mean(axis=1) + u.mean() + p.B.sum(axis=0),
    "kept": lambda t, u, p: (p.A / p.A.sum(axis=1, keepdims=True))[:, 0] + np.add.reduce(u),
    "products of entries": lambda t, u, p: u.prod() + np.prod(p.B, axis=0) + np.trace(p.A),
    "array": lambda t, u, p: np.array([u[1], -p.a * np.sin(u[0]), t, 1.0]),
    "array of arrays": lambda t, u, p: np.array([u * 2, p.b]).T[:, 0] + np.array([[t, p.a]])[0, 1],
    "array times": lambda t, u, p: 3.0 * np.array([u[0], 1.0, u[2], t]) * u + u,
    "array and constant": lambda t, u, p: M @ np.array([u[0], u[1], 2.0, t]),
    "array and ufunc": lambda t, u, p: np.sin(np.array([u[0], t, p.a, u[3]])),
    "array and symbol": lambda t, u, p: p.A @ np.array([u[0], t, p.a, u[3]]),
    "list": lambda t, u, p: [u[3], u[2], u[1], p["a"]],
    "tuple": lambda t, u, p: tuple(x * y for x, y in zip(u, p.b, strict=True)),
    "asarray": lambda t, u, p: np.asarray(u) * 2.0,
    "joined": lambda t, u, p: np.concatenate([u[:2], [t], p.b[3:]]),
    "stacked": lambda t, u, p: np.stack([u, p.b], axis=1)[:, 1] + np.vstack([u, p.b])[0],
    "side by side": lambda t, u, p: np.hstack([u[0], p.b[1:]]) + np.append(u[1:], 3.0),
    "columns joined": lambda t, u, p: np.column_stack([u, p.b]) @ np.array([1.0, t]),
    "blocks": lambda t, u, p: np.block([[p.A, p.B.T], [p.B, np.eye(3)]])[:4, :4] @ u,
    "slices": lambda t, u, p: np.concatenate([u[::-1][:2], u[1::2]]) + u[[3, 2, 1, 0]] + u[-1],
    "masks": lambda t, u, p: np.concatenate(
        [u[np.array([True, False, True, False])], p.A[[0, 1], 2]]
    ),
    "rolled": lambda t, u, p: np.roll(u, 1) - 2.0 * u + np.roll(u, -1) + np.flip(p.b),
    "padded": lambda t, u, p: np.diff(np.pad(u, (1, 0))) + np.pad(u, 1, mode="edge")[2:],
    "differences": lambda t, u, p: np.append(np.diff(u), 0.0) + np.diff(p.A, axis=0)[0],
    "differences with ends": lambda t, u, p: np.diff(u, prepend=p.a) + np.diff(u, append=[t]),
    "spread": lambda t, u, p: (
        (u - u.mean()) / u.std() + np.var(p.A, axis=1, ddof=1) + np.std(p.B, axis=0)
    ),
    "polynomials": lambda t, u, p: (
        np.polyval([2.0, t, 1.0], u) + np.polyval(p.b, 0.5) + np.polyval(p.b, [0.5, 1.0, t, 2.0])
    ),
    "convolved": lambda t, u, p: (
        np.convolve(u, p.b)[:4] + np.convolve(p.b[:2], u, "same") + np.convolve(u, [t], "valid")
    ),
    "trapezoids": lambda t, u, p: (
        np.trapezoid(u, [0.0, 0.2, 0.7, 1.0])
        + np.trapezoid(np.outer(u, p.b), dx=t)
        + np.trapezoid(np.outer(p.b, u), u + np.arange(4.0), axis=0)
    ),
    "selected": lambda t, u, p: np.select([u > 0.5, u > 0.0], [u, p.b], default=t),
    "interpolated": lambda t, u, p: (
        np.interp(u, [-0.5, 0.0, 0.2, 0.9], p.b) + np.interp(t, [0.0, 1.3, 2.0], [1.0, 4.0, 5.0])
    ),
    "interpolated in a period": lambda t, u, p: np.interp(
        9.0 * u + t, [0.1, 1.2, -0.4], [1.0, 3.0, 2.0], period=2.0
    ),
    "interpolated, sides": lambda t, u, p: np.interp(
        9 * u, [-1.0, 1.0], [p.a, 2.0], left=-3.0, right=5.0
    ),
    "interpolated beyond": lambda t, u, p: np.interp(9 * u, [-1.0, 1.0], [p.a, 2.0]),
    "running sums": lambda t, u, p: np.cumsum(u),
    "repeated": lambda t, u, p: (
        np.tile(u[:2], 2) + np.repeat(p.b[:2], 2) + np.take(u, [0, 0, 1, 1])
    ),
    "shapes": lambda t, u, p: (
        u.reshape(2, 2).T.ravel() + p.B.reshape(4, 3)[:, 1] + u.reshape((4, 1))[:, 0]
    ),
    "reshape": lambda t, u, p: np.reshape(p.B, (2, 6))[1, 2:] + np.transpose(p.A)[0] + u.flatten(),
    "diagonals": lambda t, u, p: (
        np.diag(p.A) + np.diag(u) @ p.b + np.triu(p.A, 1)[0] + np.tril(p.A)[2]
    ),
    "likes": lambda t, u, p: np.ones_like(u) * np.full_like(u, 2.0) + np.zeros_like(u),
    "norm": lambda t, u, p: u / np.linalg.norm(u) + np.append(np.cross(u[:3], p.b[1:]), 0.0),
    "norms": lambda t, u, p: (
        np.linalg.norm(p.A, axis=1)
        + np.linalg.norm(p.A)
        + np.linalg.norm(u, np.inf)
        - np.linalg.norm(p.A, 1, axis=0, keepdims=True)[0] * np.linalg.norm(p.B, "fro")
    ),
    "types": lambda t, u, p: (3 * u).astype(int) + u.astype(bool) + (u > 0).astype(float) + u.real,
    "truths": lambda t, u, p: ((u > 0) + (u < 9)) * (1.0 + ((u > 0) * (u < 9) ^ (p.b > 0))) + u,
    "counted": lambda t, u, p: u * np.sum(u > 0) + (2 * (u > 0) + (p.b > 0)),
    "exact remainder": lambda t, u, p: np.mod(0 * u + [0.9, -0.9, 0.7, 1.1], 0.1) + u // 0.1,
    "exact quotient": lambda t, u, p: (0 * u + [0.9, -0.9, 0.3, -0.3]) // [0.1, 0.1, -0.1, 1],
    "far tails": lambda t, u, p: 1e13 * special.expit(u - 30.0) + np.logaddexp(u, p.b),
    "more special": lambda t, u, p: special.log1p(u**2) + special.expm1(u) + special.exp10(u),
    "cut off": lambda t, u, p: np.trunc(3 * u) + np.isnan(u) + special.logit(u**2 / 9),
    "sums over axes": lambda t, u, p: p.B.sum(axis=(0, 1)) + p.B.sum(axis=(0,)) + p.A.sum(-1),
    "sums over no axis": lambda t, u, p: np.sum(u, axis=()) + u.mean(axis=()) * p.A.sum(axis=())[2],
    "extremes over no axis": lambda t, u, p: u.max(()) * np.amin(p.B, axis=(), keepdims=True)[0],
    "spreads over no axis": lambda t, u, p: np.prod(u, ()) + u.var(axis=()) + np.std(p.A, ())[0],
    "entry over no axis": lambda t, u, p: u * np.sum(u[0], axis=()) + np.add.reduce(p.b, axis=()),
    "extremes over axes": lambda t, u, p: (
        p.B.max((0, 1)) + p.B.min((-2,)) + p.A.prod((1, 0), keepdims=True)[0] + p.A.var((1,))
    ),
    "reductions of ufuncs": lambda t, u, p: (
        np.add.reduce(p.B) + np.maximum.reduce(p.A, 1) + np.multiply.reduce(p.A, axis=None)
    ),
    "by columns": lambda t, u, p: p.B.flatten("F")[3:7] + p.B.reshape(12, order="F")[:4],
    "broadcast to": lambda t, u, p: np.broadcast_to(u, (3, 4))[2] + np.broadcast_to(p.a, (4,)),
    "properties": lambda t, u, p: u * u.size + len(u) + u.shape[0] + u.ndim + np.shape(p.B)[0],
    "by number": lambda t, u, p: p[0] * p[1:5] + p[-1] + (2.0 * p)[1:5] + np.exp(p)[:4] + len(p),
    "builtins": lambda t, u, p: sum(u) + abs(u) + pow(u, 2),
    "small system": lambda t, u, p: np.linalg.solve(p.A, u) + np.linalg.solve(u[:1, None], p.b[:1]),
    "several sides": lambda t, u, p: np.linalg.solve(p.A, p.B.T)[:, 1] + np.linalg.inv(p.A)[2],
    "constant system": lambda t, u, p: np.linalg.solve(M + 9 * np.eye(4), u),
    "system of entries": lambda t, u, p: np.linalg.solve(
        np.array([[u[0], 2.0], [t, u[1]]]), np.array([u[2], p.a])
    )[[0, 1, 1, 0]],
    "system of entries beside": lambda t, u, p: (
        np.linalg.solve(np.array([[u[0], 2.0], [t, u[1]]]), u[2:])[[0, 1, 1, 0]]
        + np.linalg.inv(np.array([[u[0], 2.0], [t, u[1]]])).ravel()
    ),
    "rows in another order": lambda t, u, p: np.linalg.solve(p.A * (1 - np.eye(4)), u),
    "time": lambda t, u, p: np.cos(2.0 * t) * u + t**2,
    "constant": lambda t, u, p: np.array([1.0, 2.0, 3.0, 4.0]),
    "filled": filled,
    "filled floats": filled_floats,
    "filled matrix": filled_matrix,
    "aliased": aliased,
}


def value(function):
    graph = TRACER.graph(function, "f", (4,))
    evaluate = casadi.Function("f", [graph.t, graph.u, graph.p], [graph.value])
    return np.array(evaluate(1.3, U, P))[:, 0]


@pytest.mark.whole  # each function is traced by a rule of its own
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_traced_functions_give_what_numpy_gives(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = np.array(function(1.3, U.copy(), SHAPES.split(P.copy())), dtype=float)
    np.testing.assert_allclose(value(function), expected, rtol=1e-14, atol=1e-14)


BUFFER = np.zeros(4)


def in_place(t, u, p):
    BUFFER[0] = u[0]
    return BUFFER


def branching(t, u, p):
    if u[0] > 0.0:
        return u
    return -u


UNTRACEABLE = {
    "branch": (branching, r"if u\[0\] > 0.0:`: a branch depends on the data\n  try: np.where"),
    "maximum": (lambda t, u, p: max(u[0], 0.0) * u, r"branch depends .*\n  try: np.where"),
    "math": (
        lambda t, u, p: math.remainder(u[0], 2.0) * u,
        r"`.*math.remainder.*`: a number is wanted .*\n  try: np",
    ),
    "filled": (in_place, r"`BUFFER\[0\] = u\[0\]`: a number is wanted(.|\n)*zeros_like"),
    "floats": (lambda t, u, p: np.array([u[0]] * 4, dtype=float), "a number is wanted"),
    "index": (lambda t, u, p: u * M[0][u[0]], "index"),
    "symbolic index": (lambda t, u, p: u * u[u[0]], "an index depends on the data"),
    "range": (lambda t, u, p: list(range(u[0])), "an index depends on the data"),
    "ufunc": (lambda t, u, p: np.nextafter(u, 0.0), r"np.nextafter is not known here\n  try: "),
    "scipy": (lambda t, u, p: special.gamma(u), "`.*: gamma is not known here"),
    "accumulate": (lambda t, u, p: np.add.accumulate(u), r"np.add.accumulate is not known"),
    "function": (
        lambda t, u, p: np.linalg.lstsq(p.A, u)[0],
        r"linalg.lstsq is not .*\n.*singular mass",
    ),
    "large system": (
        lambda t, u, p: np.linalg.solve(np.diag(np.tile(u, 3)), np.tile(u, 3))[:4],
        r"np.linalg.solve of 12 unknowns, more than 7\n.*singular mass",
    ),
    "system of a vector": (lambda t, u, p: np.linalg.inv(u), r"of shape \(4,\)"),
    "sides of another length": (
        lambda t, u, p: np.linalg.solve(p.A, u[:3]),
        r"solve of shapes \(4, 4\) and \(3,\)",
    ),
    "contraction": (
        lambda t, u, p: np.tensordot(p.A, u, 1),
        r"np.tensordot is not .*\n  try: np.einsum",
    ),
    "names left out": (lambda t, u, p: np.einsum("...j,j", p.A, u), "a letter for each axis"),
    "product of stacks": (lambda t, u, p: np.dot(u, np.ones((2, 4, 4)))[0], r"\(2, 4, 4\)"),
    "sorted": (lambda t, u, p: np.sort(u), r"np.sort is not known here\n  try: np.maximum"),
    "rounded": (lambda t, u, p: np.rint(u), r"np.rint is not known here\n  try: np.floor"),
    "knots": (lambda t, u, p: np.interp(u, [0.0, 0.0], [1.0, 2.0]), "knots that do not increase"),
    "argument": (lambda t, u, p: u.__setitem__(0, 1.0), "writes to its argument"),
    "dimensions": (lambda t, u, p: np.reshape(u, (2, 2, 1)), r"returned shape \(2, 2, 1\)"),
    "one where": (lambda t, u, p: np.where(u > 0), "np.where without values"),
    "padding": (lambda t, u, p: np.pad(u, 1, constant_values=2.0), "np.pad"),
    "norm": (lambda t, u, p: u * np.linalg.norm(u, 3), "np.linalg.norm with ord=3"),
    "axis": (lambda t, u, p: u.sum(axis=1), "axis 1 is out of bounds"),
    "axes": (lambda t, u, p: u * p.B.max(axis=(0, 0)), "duplicate value in 'axis'"),
    "bits": (lambda t, u, p: u & 1, "np.bitwise_and of float64 and float64"),
    "difference of truths": (lambda t, u, p: (u > 0) - (u > 1), "np.subtract of bool and bool"),
    "type": (lambda t, u, p: u.astype("M8[s]"), "array of type datetime64"),
    "cross": (lambda t, u, p: np.cross(u, u), "np.cross of anything but"),
    "cumsum": (lambda t, u, p: np.cumsum(p.A), "np.cumsum of a matrix"),
    "shape": (lambda t, u, p: u[:3], r"'f' returned shape \(3,\)\n  expected: shape \(4,\)"),
    "product": (lambda t, u, p: p.B @ u[:3], r"test_symbols.py:\d+ .*shapes \(3, 4\)"),
    "unknown": (lambda t, u, p: p.c * u, r"no parameter 'c'"),
    "near": (lambda t, u, p: p["AA"] @ u, r"no parameter 'AA'\n.*\n  try: \"A\""),
    "nothing": (lambda t, u, p: None, "what 'f' returned: None is no array of numbers"),
    "words": (lambda t, u, p: ["a"] * 4, "what 'f' returned: 'a' is no array of real numbers"),
    "complex": (lambda t, u, p: 1j * u, r"`.*: 1j is no array of real numbers(.|\n)*ODE, which"),
    "complex result": (lambda t, u, p: [1j] * 4, "what 'f' returned: 1j is no array of real"),
    "arguments": (lambda t, u: u, r"'f' takes \(t, u\)(.|\n)*expected: \(t, u, p\)"),
    "no function": ("u", "cannot trace 'f': TypeError: 'str' object is not callable"),
    "ragged": (lambda t, u, p: [u, u[0], 1.0, 2.0], "rows of shapes"),
    "method": (lambda t, u, p: u.argsort(), "have no 'argsort'"),
}


@pytest.mark.whole
@pytest.mark.parametrize(("function", "message"), UNTRACEABLE.values(), ids=UNTRACEABLE)
def test_untraceable_functions_name_line_and_remedy(function, message):
    with pytest.raises(InputError, match=message) as caught:
        value(function)
    assert "Symbol" not in str(caught.value)


def test_errors_name_the_line_of_the_file():
    line = branching.__code__.co_firstlineno + 1
    with pytest.raises(InputError, match=rf"cannot trace test_symbols.py:{line} `if"):
        value(branching)


def test_unknown_parameter_of_a_function_without_any_names_where_they_are_given():
    with pytest.raises(InputError, match=r"'rate'\n  expected: parameters=\{\"rate\": \(\)\}"):
        _ = admit_shapes(0).split(np.empty(0)).rate


def test_parameters_that_are_missing_have_a_default():
    named = admit_shapes(["rate"]).split(np.array([2.0]))
    assert not hasattr(named, "mass")
    assert getattr(named, "mass", 1.0) == 1.0


def test_parameters_have_any_name():
    shapes = admit_shapes({"T": (2,), "shape": (), "sum": (1, 2)})
    named = shapes.split(np.arange(5.0))
    np.testing.assert_array_equal(named.T, [0.0, 1.0])
    assert named.shape == 2.0
    np.testing.assert_array_equal(named.sum, [[3.0, 4.0]])
    np.testing.assert_array_equal(2.0 * named, 2.0 * np.arange(5.0))
    assert list(named) == list(range(5))
    assert repr(named) == "Named(T=[0. 1.], shape=2.0, sum=[[3. 4.]])"


def test_of_very_many_parameters_only_those_that_are_used_are_taken_apart():
    class Noted(np.ndarray):
        taken: ClassVar[list] = []

        def __getitem__(self, key):
            self.taken.append(key)
            return np.asarray(self)[key]

    named = admit_shapes(100000).split(np.arange(1e5).view(Noted))
    assert named.p7 == named["p7"] == 7.0
    assert Noted.taken == [7]
    with pytest.raises(InputError, match=r"p18, p19, \.\.\. \(100000\)"):
        _ = named.rate


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("rate", "parameters = 'rate'"),
        ([1.0], r"parameters = \[1.0\]"),
        (1.5, "parameters = 1.5"),
        (["a", "a"], r"\['a'\] appear more than once"),
        ({"a": -1}, r'parameters\["a"\] = -1'),
        ({"a": (2, 2, 2)}, r"expected: the shape of"),
        ({"a": "wide"}, r"parameters\[\"a\"\] = 'wide'"),
    ],
)
def test_parameters_that_are_none(parameters, message):
    with pytest.raises(InputError, match=message):
        admit_shapes(parameters)


def test_pack_names_what_is_missing_unknown_or_misshapen():
    shapes = admit_shapes({"A": (2, 2), "b": 3})
    with pytest.raises(InputError, match=r"b is missing\n.*no parameter 'B'"):
        shapes.pack({"A": np.eye(2), "B": 1.0})
    with pytest.raises(InputError, match=r"A has shape \(4,\)\n  expected: shape \(2, 2\)"):
        shapes.pack({"A": np.ones(4), "b": np.ones(3)})


def derivatives_of(function, u, p):
    """Return value, derivative in u and derivative in p [k, n] and [k, m]."""
    graph = Tracer(len(u), admit_shapes(len(p)), comm=MPI.COMM_SELF).graph(function, "f", (len(u),))
    by = [casadi.jacobian(graph.value, x) for x in (graph.u, graph.p)]
    evaluate = casadi.Function("f", [graph.t, graph.u, graph.p], [graph.value, *by])
    return [np.array(item) for item in evaluate(0.0, u, p)]


def test_a_power_of_nothing_has_a_derivative_in_its_exponent():
    value, by_u, by_p = derivatives_of(lambda t, u, p: u ** p[0], [0.0, 0.5], [2.0])
    np.testing.assert_array_equal(value[:, 0], [0.0, 0.25])
    np.testing.assert_allclose(by_u, np.diag([0.0, 1.0]), atol=1e-300)
    np.testing.assert_allclose(by_p[:, 0], [0.0, 0.25 * np.log(0.5)], atol=1e-300)


@pytest.mark.parametrize("exponent", [3.0, 2.0, 1.5, 1.0, 0.5, 0.11, 0.05, 0.0, -1.0])
def test_powers_of_nothing_are_those_of_numpy(exponent):
    with np.errstate(divide="ignore"):
        expected = np.zeros(1) ** exponent
        slope = exponent * np.zeros(1) ** (exponent - 1.0) if exponent else np.zeros(1)
    value, by_u, by_p = derivatives_of(lambda t, u, p: u ** p[0], [0.0], [exponent])
    np.testing.assert_array_equal(value[:, 0], expected)
    if exponent:
        np.testing.assert_array_equal(by_u[:, 0], slope)
    np.testing.assert_array_equal(by_p[:, 0], 0.0)


@pytest.mark.parametrize("exponent", [3.0, 2.0, 2.5])
def test_hill_functions_have_second_derivatives_where_there_is_nothing(exponent):
    """d^2 / du^2 of u^n / (1 + u^n) at 0, beside that of a constant exponent."""
    graph = Tracer(1, admit_shapes(1), comm=MPI.COMM_SELF).graph(
        lambda t, u, p: u ** p[0] / (1.0 + u ** p[0]), "f", (1,)
    )
    x = casadi.vertcat(graph.u, graph.p)
    first = casadi.jacobian(graph.value, x)
    second = casadi.Function("f", [graph.t, graph.u, graph.p], [casadi.jacobian(first, x)])
    values = np.array(second(0.0, [0.0], [exponent]))[0, 0]
    assert values == (2.0 if exponent == 2.0 else 0.0)


@pytest.mark.parametrize("length", [np.linalg.norm, lambda v: np.hypot(v[0], v[1])])
def test_drag_at_rest_has_a_derivative(length):
    value, by_u, _ = derivatives_of(lambda t, u, p: u * length(u), [0.0, 0.0], [])
    np.testing.assert_array_equal(value, np.zeros((2, 1)))
    np.testing.assert_array_equal(by_u, np.zeros((2, 2)))


@pytest.mark.parametrize(
    "function",
    [
        lambda t, u, p: np.maximum(np.log(u), 0.0),
        lambda t, u, p: np.minimum(0.0, np.log(u)),
        lambda t, u, p: np.clip(np.log(u), -1.0, 1.0),
        lambda t, u, p: np.log(u).max() * u,
        lambda t, u, p: np.heaviside(np.log(u), 0.5),
    ],
)
def test_what_is_no_number_is_not_lost(function):
    value, *_ = derivatives_of(function, [-1.0, 2.0], [])
    assert np.isnan(value[0, 0])


@pytest.mark.parametrize(
    "function",
    [
        lambda t, u, p: np.maximum(u[0], 0.0) * np.sqrt(u),
        lambda t, u, p: np.where(u[0] > 0.0, u[0], 0.0) * np.sqrt(u),
    ],
)
def test_a_factor_that_is_cut_off_hides_what_is_no_number(function):
    value, by_u, _ = derivatives_of(function, [-1.0, -4.0], [])
    np.testing.assert_array_equal(value, np.zeros((2, 1)))
    np.testing.assert_array_equal(by_u, np.zeros((2, 2)))
    value, *_ = derivatives_of(function, [1.0, -4.0], [])
    assert value[0, 0] == 1.0
    assert np.isnan(value[1, 0])


def test_derivatives_at_ties():
    _, by_u, _ = derivatives_of(
        lambda t, u, p: np.array([np.logaddexp(u[0], u[1]), special.expit(0.0 * u[1] + u[0])]),
        [0.0, 0.0],
        [],
    )
    np.testing.assert_allclose(by_u, [[0.5, 0.5], [0.25, 0.0]], rtol=1e-15)
