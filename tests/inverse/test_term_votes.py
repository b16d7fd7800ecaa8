"""Votes of ensembles: shares, terms without enough votes, one member that sees all."""

import numpy as np
import pytest

from daeosens import InputError
from daeosens.inverse import Discovery, polynomials


def test_an_ensemble_needs_terms_with_so_many_votes():
    times = np.linspace(0.0, 4.0, 41)
    noise = 0.2 * np.random.default_rng(0).standard_normal(41)
    data = {"t": times, "x": np.exp(-0.5 * times) + noise}
    search = Discovery(polynomials(["x"]), threshold=0.3)
    result = search.ensemble(data, members=8, votes=0.0, seed=1)
    assert {*result.inclusion} == {*result.estimate}
    assert len({*result.inclusion.values()}) > 1
    again = search.ensemble(data, members=8, votes=0.0, seed=1)
    assert again.inclusion == result.inclusion
    assert again.estimate == result.estimate
    most = max(result.inclusion.values())
    assert most < 1.0
    with pytest.raises(InputError, match=rf"(?s)votes = 1, .*{most:g} or less"):
        search.ensemble(data, members=8, votes=1.0, seed=1)
    # one member that sees everything is the search itself, but for the order of sums
    whole = search.ensemble(data, members=1, part=1.0)
    assert whole.estimate == pytest.approx(search.fit(data).estimate, rel=1e-9)


def test_a_part_that_is_too_small_is_named_and_not_data_that_nobody_gave():
    t = np.linspace(0.0, 4.0, 12)
    data = {"t": t, "x": 2.0 * np.exp(-0.5 * t)}
    search = Discovery(polynomials(["x"]), threshold=0.01)
    message = r"(?s)part = 0\.1: a member that sees 2 of 12 times is refused(.*)try: a larger part"
    with pytest.raises(InputError, match=message):
        search.ensemble(data, members=5, part=0.1)
    short = {name: column[:3] for name, column in data.items()}
    with pytest.raises(InputError, match=r"^3 measurements for 3 parameters"):  # of what was given
        search.ensemble(short, members=5, part=0.1)


def test_data_in_which_nothing_changes_are_told():
    t = np.linspace(0.0, 4.0, 12)
    search = Discovery(polynomials(["x"]), threshold=0.01)
    with pytest.raises(InputError, match=r"no term explains anything(?s:.*)unknowns change"):
        search.fit({"t": t, "x": 0.0 * t})
