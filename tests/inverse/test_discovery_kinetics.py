"""Published reaction kinetics found again: exactly the true terms, constants and energies."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daeosens import InputError, Parameter
from daeosens.inverse import Discovery, Term, polynomials
from daeosens.inverse.rate_groups import joined

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.fixture(scope="module")
def cases():
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module("discovery_problems").CASES
    finally:
        sys.path.remove(str(BENCH))


def found(case, count=0):
    experiments = case.experiments(count=count)
    return case.discovery(experiments).fit(case.seen(experiments))


def test_enzyme_and_substrate(cases):
    case = cases["menten"]
    result = found(case)
    assert set(result.path[-1].terms) == {flow.name for flow in case.flows}
    constants, energies = case.errors(result.estimate)
    assert constants < 0.003
    assert energies < 0.01
    assert len(result.path[0].terms) == 11


def test_stoichiometry_as_equalities_between_coefficients(cases):
    """Each unknown has coefficients of its own; nothing but balances of elements couples them."""
    case = cases["menten"]
    experiments = case.experiments()
    library = [
        Term(name, lambda t, u, p, k=k: u[k[0]] * (u[k[1]] if k[1:] else 1.0) * heated(p, k))
        for name, k in (("C", (2,)), ("A B", (0, 1)), ("A", (0,)), ("B B", (1, 1)))
    ]

    def heated(p, places):
        energy = p.E_C if places == (2,) else p.E_AB
        return np.exp(-energy / 8.314e-3 * (1.0 / p.T - 1.0 / 373.0))

    # B + C and A + C + D are kept, whatever the term
    equalities = [
        row
        for term in library
        for row in (
            ({f"B: {term.name}": 1.0, f"C: {term.name}": 1.0}, 0.0),
            ({f"{letter}: {term.name}": 1.0 for letter in "ACD"}, 0.0),
        )
    ]
    energy = Parameter(50.0, lower=0.0, upper=250.0)
    result = Discovery(
        library, parameters={"E_C": energy, "E_AB": energy}, equalities=equalities, tolerance=0.01
    ).fit(experiments)
    truth = {"A: A B": -0.3, "A: C": 0.4, "B: A B": -0.3, "B: C": 1.5}
    truth |= {"C: A B": 0.3, "C: C": -1.5, "D: C": 1.1, "E_AB": 20.0, "E_C": 75.0}
    assert result.estimate == pytest.approx(truth, rel=0.02)


@pytest.mark.slow
def test_six_reactions_of_esters(cases, request):
    """With the candidates of the published program; ten short experiments, with --all thirty."""
    case, count = cases["esters"], 30
    if not request.config.getoption("all"):
        case, count = replace(case, times=np.linspace(0.0, 1.95, 40)), 10
    result = found(case, count)
    assert set(result.path[-1].terms) == {flow.name for flow in case.flows}
    assert len(result.path[0].terms) == 84
    constants, energies = case.errors(result.estimate)
    assert constants < 0.001
    assert energies < 0.005


def test_rates_that_nothing_couples_are_problems_of_their_own():
    times = np.linspace(0.0, 4.0, 81)
    data = {"t": times, "x": np.exp(-times), "y": np.exp(-0.5 * times)}
    alone = Discovery(polynomials(["x", "y"], 1)[1:], tolerance=0.01)
    row = ({"x: x": 1.0, "y: y": -2.0}, 0.0)
    for result in (alone.fit(data), replace(alone, equalities=[row]).fit(data)):
        assert result.estimate == pytest.approx({"x: x": -1.0, "y: y": -0.5}, rel=1e-5)
    assert joined(3, []) == [(0,), (1,), (2,)]
    assert joined(3, [[2, 0]]) == [(0, 2), (1,)]


def test_a_shared_parameter_couples_rates_and_own_ones_do_not():
    times = np.linspace(0.0, 3.0, 121)
    x, y = np.exp(-0.8 * times), np.exp(-1.6 * times)
    power = Term("x^n", lambda t, u, p: u[0] ** p.n)
    other = Term("y^n", lambda t, u, p: u[1] ** p.n)
    start = {"n": Parameter(1.5, lower=0.2, upper=3.0)}
    data = {"t": times, "x": x, "y": y}
    one = Discovery([power, other], parameters=start, threshold=0.05).fit(data)
    assert one.estimate == pytest.approx({"x: x^n": -0.8, "y: y^n": -1.6, "n": 1.0}, rel=1e-4)
    own = [replace(power, own=["n"], rates=["x"]), replace(other, own=["n"], rates=["y"])]
    two = Discovery(own, parameters=start, threshold=0.05).fit(data)
    assert two.estimate["x: x^n: n"] == pytest.approx(1.0, rel=1e-4)
    assert two.estimate["y: y^n: n"] == pytest.approx(1.0, rel=1e-4)
    rates = two.predict(np.column_stack([x, y]))
    assert rates == pytest.approx(np.column_stack([-0.8 * x, -1.6 * y]), rel=1e-3)


def test_what_does_not_fit_together_is_refused_by_name():
    data = {"t": np.linspace(0.0, 1.0, 21), "x": np.linspace(1.0, 2.0, 21) ** 2}
    terms = polynomials(["x"], 1)
    with pytest.raises(InputError, match=r'equalities\[0\] names "x: y"'):
        Discovery(terms, equalities=[({"x: y": 1.0}, 0.0)]).fit(data)
    with pytest.raises(InputError, match='term "x" is a candidate of "z"'):
        Discovery([replace(terms[1], rates=["z"])]).fit(data)
    with pytest.raises(InputError, match='term "x": its own "E" has no start'):
        Discovery([replace(terms[1], own=["E"])]).fit(data)
    with pytest.raises(InputError, match=r"tolerance = 1\.5"):
        Discovery(terms, tolerance=1.5)
    with pytest.raises(InputError, match=r"threshold = 0\.1 beside tolerance = 0\.1"):
        Discovery(terms, tolerance=0.1, threshold=0.1)
    with pytest.raises(InputError, match=r"tolerance = 1e-12, but all terms together leave"):
        Discovery(terms[:1], tolerance=1e-12).fit(data)
