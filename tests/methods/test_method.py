"""Names of methods, and what each of them can do."""

import pytest
from forms import ADDITIVE, NO_ESTIMATE
from forms import METHODS as OF_ONE_PART

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
