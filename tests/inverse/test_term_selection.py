"""Terms chosen by fits of the equations: what curves through noisy measurements get wrong."""

from dataclasses import replace

import numpy as np
import pytest

import daeosens as ds
from daeosens import Experiment, InputError, Parameter
from daeosens.inverse import Discovery, Normal, Term, polynomials

STEPPING = ds.Stepping((0.0, 4.0), "rk6vr", rtol=1e-7)
TRUE = {"r0: A", "r0: B"}
NOISE = 0.005


@pytest.fixture(scope="module")
def experiments():
    """A turns into B and back, warm and cold."""
    there = lambda p: 0.8 * np.exp(-p.E * (1.0 / p.T - 1.0))  # noqa: E731
    model = ds.trace(
        lambda t, u, p: (there(p) * u[0] - 0.3 * u[1]) * np.array([-1.0, 1.0]),
        ["A", "B"],
        ["E", "T"],
    )
    t, rng = np.linspace(0.0, 4.0, 41), np.random.default_rng(2)
    listed = []
    for temperature, first in ((0.9, [2.0, 0.1]), (1.2, [0.3, 1.5])):
        run = ds.solve(model, first, {"E": 3.0, "T": temperature}, STEPPING, t_eval=t[1:])
        states = np.vstack([first, run.at(t[1:])]) + NOISE * rng.standard_normal((41, 2))
        data = {"t": t, "A": states[:, 0], "B": states[:, 1]}
        listed.append(Experiment(data, STEPPING, parameters={"T": temperature}))
    return listed


def discovery(**options):
    warm = Term("A", lambda t, u, p: u[0] * np.exp(-p.E * (1.0 / p.T - 1.0)), own=["E"])
    others = [term for term in polynomials(["A", "B"], 2) if term.name not in ("1", "A")]
    return Discovery(
        [warm, *others],
        stoichiometry=[[-1.0], [1.0]],
        parameters={"E": Parameter(1.0, lower=0.0, upper=20.0)},
        sigma=NOISE,
        interpolant="smooth",
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"tolerance": 0.1}, {"criterion": "aic"}])
def test_terms_are_left_out_until_the_true_ones_are_there(experiments, options):
    search = discovery(**options)
    found = search.fit(experiments)
    selected = search.select(found, experiments, noise=Normal(NOISE))
    assert set(selected.terms) == TRUE
    errors = selected.fit.covariance
    for name, value in (("r0: A", 0.8), ("r0: B", -0.3), ("r0: A: E", 3.0)):
        assert abs(selected.fit.estimate[name] - value) < 3.0 * errors.error(name)
    assert selected.fit.p_value > 0.01
    # the criterion of what was taken is the least of all
    assert min(selected.path, key=lambda choice: choice.bic).terms == selected.terms
    assert "as found" in repr(selected)


@pytest.mark.slow
def test_a_term_that_was_not_found_is_added(experiments):
    search = discovery(threshold=0.5)
    found = search.fit(experiments)
    alone = replace(found, path=(replace(found.path[-1], terms=("r0: A",)),))
    selected = search.select(alone, experiments, noise=Normal(NOISE))
    assert set(selected.terms) == TRUE
    assert any(choice.change.startswith("with ") for choice in selected.path)


def test_what_cannot_be_selected_is_refused(experiments):
    search = discovery(tolerance=0.5)
    found = search.fit(experiments)
    with pytest.raises(InputError, match="noise of unknown level"):
        search.select(found, experiments, noise=Normal())
    with pytest.raises(InputError, match="discovered is int"):
        search.select(3, experiments, noise=Normal(NOISE))
    plain = [Experiment(e.data, parameters=e.parameters) for e in experiments]
    with pytest.raises(InputError, match="stepping"):
        search.select(found, plain, noise=Normal(NOISE))
    coupled = discovery(tolerance=0.5, inequalities=[({"r0: A": 1.0}, 0.0)])
    with pytest.raises(InputError, match="constraints between coefficients"):
        coupled.select(found, experiments, noise=Normal(NOISE))
