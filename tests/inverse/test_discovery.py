"""Model discovery: the true terms and no other, coefficients, refusals."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import daeosens as ds
from daeosens import Experiment, InputError, Parameter
from daeosens.inverse import Discovery, Normal, Term, feature_library, polynomials


def solved(rates, start, times):
    run = solve_ivp(rates, (times[0], times[-1]), start, "DOP853", times, rtol=1e-11, atol=1e-12)
    return run.y.T


def lorenz(t, u):
    return [10 * (u[1] - u[0]), u[0] * (28 - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]]


LORENZ = {
    "x: x": -10.0,
    "x: y": 10.0,
    "y: x": 28.0,
    "y: y": -1.0,
    "y: x z": -1.0,
    "z: z": -8 / 3,
    "z: x y": 1.0,
}
TIMES = np.linspace(0.0, 6.0, 601)


@pytest.fixture(scope="module")
def lorenz_states():
    return solved(lorenz, [-8.0, 7.0, 27.0], TIMES)


def named(states, names="xyz"):
    return dict(zip(names, states.T, strict=True))


def test_lorenz_has_seven_terms(lorenz_states):
    result = Discovery(polynomials(["x", "y", "z"]), threshold=0.02).fit(
        {"t": TIMES, **named(lorenz_states)}
    )
    assert result.estimate == pytest.approx(LORENZ, rel=1e-3)
    rates = np.array([lorenz(0.0, u) for u in lorenz_states])
    assert result.score(lorenz_states, rates) > 1.0 - 1e-6
    assert [len(step.terms) for step in result.path][-1] == 7
    assert result.path[0].smallest < 1e-3 < 0.02 < result.path[-1].smallest
    assert repr(result).splitlines()[0] == "x' = -10 x + 10 y"
    assert "dropped" in result.table()


@pytest.mark.parametrize("seed", range(3))
def test_lorenz_with_noise_by_the_weak_form(lorenz_states, seed):
    noise = np.random.default_rng(seed).standard_normal(lorenz_states.shape)
    data = {"t": TIMES, **named(lorenz_states + 0.01 * lorenz_states.std(axis=0) * noise)}
    search = Discovery(polynomials(["x", "y", "z"]), threshold=0.05, interpolant="smooth")
    assert {*replace(search, form="weak").fit(data).estimate} == {*LORENZ}
    # what noise does to the curves adds up along the run
    assert {*search.fit(data).estimate} > {*LORENZ}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_lorenz_with_more_noise_by_most_parts_of_the_data(lorenz_states, seed):
    noise = np.random.default_rng(seed).standard_normal(lorenz_states.shape)
    data = {"t": TIMES, **named(lorenz_states + 0.02 * lorenz_states.std(axis=0) * noise)}
    search = Discovery(polynomials(["x", "y", "z"]), threshold=0.05, interpolant="smooth", block=20)
    result = search.ensemble(data)
    assert {*result.estimate} == {*LORENZ}
    assert result.estimate == pytest.approx(LORENZ, rel=0.1)
    assert min(result.inclusion[name] for name in LORENZ) >= 0.8
    others = [share for name, share in result.inclusion.items() if name not in LORENZ]
    assert max(others) < 0.7
    # all data at once leave terms that are not there
    assert {*search.fit(data).estimate} > {*LORENZ}


def test_lorenz_with_noise_by_a_threshold_and_polished_by_a_fit(lorenz_states):
    noise = 0.01 * lorenz_states.std(axis=0)
    seen = lorenz_states + noise * np.random.default_rng(0).standard_normal(lorenz_states.shape)
    data = {"t": TIMES, **named(seen)}
    library = polynomials(["x", "y", "z"])
    result = Discovery(library, threshold=0.05, interpolant="smooth", block=20).fit(data)
    assert {*result.estimate} == {*LORENZ}
    short = {name: values[:51] for name, values in data.items()}
    stepping = ds.Stepping((0.0, 0.5), "rk5ts", rtol=1e-6)
    parameters = result.parameters(lorenz_states[0])
    fitted = ds.fit(result.model, short, parameters, stepping, noise=Normal(noise))
    assert fitted.converged
    for name, truth in LORENZ.items():
        error = fitted.covariance.error(name)
        assert abs(fitted.estimate[name] - truth) < 4.0 * error < 0.2 * abs(truth)


@pytest.mark.parametrize("criterion", ["bic", "aic"])
def test_the_weakest_term_leaves_until_a_criterion_rises(criterion):
    """Of prey and hunters, 12 candidates; the four that are there stay."""
    times = np.linspace(0.0, 10.0, 201)

    def hunters(t, u):
        return [0.6 * u[0] - 0.8 * u[0] * u[1], 0.5 * u[0] * u[1] - 0.7 * u[1]]

    data = {"t": times, **named(solved(hunters, [1.0, 0.6], times), ["x", "y"])}
    result = Discovery(polynomials(["x", "y"]), criterion=criterion).fit(data)
    truth = {"x: x": 0.6, "x: x y": -0.8, "y: y": -0.7, "y: x y": 0.5}
    assert result.estimate == pytest.approx(truth, rel=1e-6)
    assert len(result.path) == 12  # one at a time, to none
    values = [getattr(step, criterion) for step in result.path]
    assert [len(step.terms) for step in result.path][int(np.argmin(values))] == 4


def michaelis(t, u):
    first, second = 1.4 * u[0] / (0.3 + u[0]), 0.5 * u[1]
    return [-first, first - second, second]


def chain_data():
    times = np.linspace(0.0, 6.0, 301)
    return [
        Experiment({"t": times, **named(solved(michaelis, start, times), ["A", "C", "D"])})
        for start in ([2.0, 0.0, 0.1], [0.5, 1.0, 0.0])
    ]


def candidates():
    saturated = Term("A / (K + A)", lambda t, u, p: u[0] / (p.K + u[0]))
    return [*polynomials(["A", "C", "D"], 2)[1:], saturated]


STOICHIOMETRY = np.array([[-1, 0], [1, -1], [0, 1]])


def test_michaelis_menten_chain_with_stoichiometry_and_a_parameter_inside_of_a_term():
    result = Discovery(
        candidates(),
        stoichiometry=STOICHIOMETRY,
        parameters={"K": Parameter(1.0, scale="log")},
        threshold=0.03,
    ).fit(chain_data())
    assert {*result.estimate} == {"r0: A / (K + A)", "r1: C", "K"}
    assert result.estimate["K"] == pytest.approx(0.3, rel=1e-3)
    assert result.estimate["r0: A / (K + A)"] == pytest.approx(1.4, rel=1e-3)
    assert result.estimate["r1: C"] == pytest.approx(0.5, rel=1e-3)


def test_an_equality_couples_two_equations():
    times = np.linspace(0.0, 4.0, 81)
    decay = solved(lambda t, u: [-0.7 * u[0], 0.7 * u[0]], [1.0, 0.0], times)
    result = Discovery(
        polynomials(["A", "B"], 1)[1:],
        equalities=[({"A: A": 1.0, "B: A": 1.0}, 0.0), ({"A: B": 1.0, "B: B": 1.0}, 0.0)],
        threshold=0.01,
    ).fit({"t": times, **named(decay, "AB")})
    assert result.estimate == pytest.approx({"A: A": -0.7, "B: A": 0.7}, rel=1e-5)
    assert result.estimate["A: A"] == pytest.approx(-result.estimate["B: A"], rel=1e-15, abs=0.0)


def library_of(names, transform):
    return SimpleNamespace(
        fit=lambda x: None, transform=transform, get_feature_names=lambda symbols: names(*symbols)
    )


def test_a_feature_library_of_another_package_is_read_by_its_names():
    states = np.random.default_rng(0).uniform(0.5, 1.5, (7, 2))
    columns = lambda x: np.column_stack([x[:, 0] ** 2 * x[:, 1], np.sin(2 * x[:, 0])])  # noqa: E731
    good = library_of(lambda a, b: [f"{a}^2 {b}", f"sin(2 {a})"], columns)
    terms = feature_library(good, ["a", "b"], states)
    assert [term.name for term in terms] == ["a^2 b", "sin(2 a)"]
    assert terms[1].value(0.0, states.T, None) == pytest.approx(np.sin(2 * states[:, 0]))
    wrong = library_of(lambda a, b: [f"{a} {b}", f"sin(2 {a})"], columns)
    with pytest.raises(InputError, match='feature 0 is called "a b", but is another function'):
        feature_library(wrong, ["a", "b"], states)
    strange = library_of(lambda a, b: [f"f0({a},{b})", f"sin(2 {a})"], columns)
    with pytest.raises(InputError, match='"f0\\(a,b\\)", which is no formula'):
        feature_library(strange, ["a", "b"], states)


def test_what_cannot_be_looked_for_is_refused_by_name():
    terms = polynomials(["A", "C", "D"], 1)
    with pytest.raises(InputError, match="library is empty"):
        Discovery([])
    with pytest.raises(InputError, match='library has "A" twice'):
        Discovery([*terms, terms[1]])
    with pytest.raises(InputError, match="criterion = 'dic'"):
        Discovery(terms, criterion="dic")
    with pytest.raises(InputError, match=r"threshold = 1\.5"):
        Discovery(terms, threshold=1.5)
    with pytest.raises(InputError, match=r"ridge = 0\.0"):
        Discovery(terms, ridge=0.0)
    with pytest.raises(InputError, match=r"stoichiometry has shape \(2, 2\) for 3 unknowns"):
        Discovery(terms, stoichiometry=np.eye(2)).fit(chain_data())
    two = [Term("1", lambda t, u, p: 1.0), Term("t", lambda t, u, p: t)]
    with pytest.raises(InputError, match=r"threshold = 0\.999 leaves no term"):
        Discovery(two, threshold=0.999).fit({"time": TIMES, "x": TIMES + TIMES**2})
