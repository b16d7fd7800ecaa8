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
