"""Names of methods, and what each of them can do."""

import numpy as np
import pytest
from forms import ADDITIVE, NO_ESTIMATE
from forms import METHODS as OF_ONE_PART

import daeosens as ds
from daeosens import InputError
from daeosens.methods.registry import METHODS as NAMED
from daeosens.methods.registry import find_method, nearest
from daeosens.methods.rk.method import EXPLICIT
from daeosens.methods.theta.method import THETA, ThetaMethod

METHODS = OF_ONE_PART + ADDITIVE


def test_every_name_is_found():
    for name in METHODS:
        assert find_method(name).name == name
    for method in EXPLICIT:
        assert find_method(method.kind) is find_method(method.name)
    assert set(NAMED) == {name for name in METHODS if not name.startswith("theta:")}


def test_methods_know_what_they_can_do():
    for name in METHODS:
        method = find_method(name)
        assert method.explicit == name.startswith("rk")
        assert method.adaptive == (name not in NO_ESTIMATE)
        assert (method.tableau is None) == (method in THETA or name.startswith("theta:"))
    held = {name for name in METHODS if find_method(name).holds_at_end}
    assert set(METHODS) - held == {"midpoint"}
    carried = [find_method(name).carried for name in ("cn", "beuler", "theta:0.8", "esdirk4")]
    assert carried == pytest.approx([1.0, 0.0, 0.25, 0.0])


@pytest.mark.parametrize(("value", "order"), [("0.5", 2), ("1", 1), ("0.7", 1), ("1e-3", 1)])
def test_theta_takes_any_weight_of_the_end(value, order):
    method = find_method(f"theta:{value}")
    assert isinstance(method, ThetaMethod)
    assert (method.theta, method.order, method.endpoint) == (float(value), order, True)


@pytest.mark.parametrize("value", ["0", "1.01", "-0.5", "half", "", "nan"])
def test_theta_outside_its_range_is_refused(value):
    message = (
        rf'method = "theta:{value}"\n  expected: theta in \(0, 1\]\n  try: "theta:0.5" or "cn"'
    )
    with pytest.raises(InputError, match=message):
        find_method(f"theta:{value}")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("beular", "beuler"), ("rk5pd", "rk5dp"), ("midpont", "midpoint")),
        *(("theta", "theta:<value>"), ("RK45", "rk6vr"), ("DOP853", "rk8vr")),
    ],
)
def test_unknown_method_names_the_nearest_one(name, meant):
    with pytest.raises(InputError, match=rf'method = "{name}" is unknown(.|\n)*try: "{meant}'):
        find_method(name)


def test_unknown_method_with_nothing_near_lists_them_all():
    with pytest.raises(InputError) as raised:
        find_method("zzz")
    assert all(name in str(raised.value) for name in NAMED)
    assert 'try: "rk6vr", or "esdirk5"' in str(raised.value)
    assert nearest("zzz", NAMED) == ""


MASSES = np.array([2.0, 3.0]), np.array([0.4, -1.0])
"""m and k of a spring, and a direction."""


def mass(p):
    return np.array([[1.0, 0.5 * p[0]], [0.0 * p[0], p[0]]])


def pull(t, u, p):  # x' + m v' / 2 = v - k x / 2 and m v' = -k x
    return np.array([u[1] - 0.5 * p[1] * u[0], -p[1] * u[0]])


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("method", ["esdirk5", "rk8vr"])
def test_a_mass_with_parameters_is_refused_with_a_remedy_that_works(make, method):
    p, along = MASSES
    stepping = ds.Stepping((0.0, 1.0), method, rtol=1e-10)
    with pytest.raises(ds.UnsupportedError, match=r"\n  try: a regular .*solve\(mass\(p\), rhs\(t"):
        ds.solve(make(pull, 2, ["m", "k"], mass=mass), [1.0, 0.0], p, stepping)
    solved = make(lambda t, u, p: np.linalg.solve(mass(p), pull(t, u, p)), 2, ["m", "k"])
    run = ds.solve(solved, [1.0, 0.0], p, stepping)
    place = ds.Terminal(lambda t, u, p: u[0])
    gradient, product = ds.adjoint(run, place), ds.hessian_product(run, place, dp=along)
    # cos(w) with w = sqrt(k / m), whose derivatives by log m and log k are -w/2 and w/2
    w, signs = np.sqrt(p[1] / p[0]), np.array([-0.5, 0.5])
    assert gradient.value == pytest.approx(np.cos(w), abs=1e-9)
    slopes = w * signs / p
    np.testing.assert_allclose(gradient.p, -np.sin(w) * slopes, atol=1e-8)
    bent = np.outer(slopes, slopes) / w - np.diag(w * signs / p**2)
    exact = -np.cos(w) * np.outer(slopes, slopes) - np.sin(w) * bent
    np.testing.assert_allclose(product.p, exact @ along, atol=1e-7)
    assert ds.verify.duality(run, place) < 1e-12


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
def test_so_is_a_singular_one(make):
    """Of c v' = i - v, 0 = i + v: v = exp(-2 t / c), its equations divided by their entries."""
    stepping = ds.Stepping((0.0, 1.0), "esdirk5", rtol=1e-9)
    entries = make(
        lambda t, u, p: np.array([u[1] - u[0], u[1] + u[0]]),
        2,
        ["c"],
        mass=lambda p: np.array([[p[0], 0.0 * p[0]], [0.0 * p[0], 0.0 * p[0]]]),
    )
    with pytest.raises(ds.UnsupportedError, match=r"diag\(c, 0\) .* as diag\(1, 0\)"):
        ds.solve(entries, [1.0, -1.0], [2.0], stepping)
    divided = make(
        lambda t, u, p: np.array([(u[1] - u[0]) / p[0], u[1] + u[0]]),
        2,
        ["c"],
        mass=np.diag([1.0, 0.0]),
    )
    run = ds.solve(divided, [1.0, -1.0], [2.0], stepping)
    end = ds.Terminal(lambda t, u, p: u[1])
    slope, bent = -0.5 * np.exp(-1.0), (0.5 - 0.25) * np.exp(-1.0)
    assert ds.adjoint(run, end).p[0] == pytest.approx(slope, rel=1e-7)
    assert ds.hessian_product(run, end, dp=[1.0]).p[0] == pytest.approx(bent, rel=1e-6)
