"""What explicit methods need for a given error of the gradient, against docs/reproduce.md."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from daeosens.methods import find_method
from reproduction.explicit_methods import CASES, ERRORS, STAGES, TIGHTEST, Case, ratios

# the loosest tolerances have errors that warnings tell
pytestmark = pytest.mark.filterwarnings("ignore::daeosens.errors.DiscretizationWarning")

PAGE = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
QUICK = [case for case in CASES if case.rhs.__name__ in ("orbit", "rigid_body", "lorenz")]
work = cache(Case.work)


def printed(first):
    """Return the numbers [errors, methods] of a table's rows that begin so."""
    rows = [rf"^\| {re.escape(first)}{bound:.0e} \| ([\d. |]*) \|$" for bound in ERRORS]
    return np.array(
        [re.findall(row, PAGE, re.MULTILINE)[0].split(" | ") for row in rows], dtype=float
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_the_page_says_what_each_method_needs(case):
    needed = np.array([work(case)[method] for method in STAGES]).T
    np.testing.assert_allclose(printed(f"{case.name} | "), needed, rtol=0.05)


def test_means_of_the_page_are_those_of_its_rows():
    rows = [dict(zip(STAGES, printed(f"{case.name} | ").T, strict=True)) for case in CASES]
    means = np.array([ratios(rows)[method] for method in STAGES]).T
    np.testing.assert_allclose(printed(""), means, atol=0.0051)


@pytest.mark.slow
def test_sixth_order_beats_the_fifth_orders_and_eighth_order_from_errors_of_1e_7():
    """What docs/stepping.md recommends; single problems may prefer the neighbours."""
    means = ratios([work(case) for case in QUICK])
    for other in ("rk3bs", "rk5f", "rk5dp", "rk5bs"):
        assert (means["rk6vr"][1:] < means[other][1:]).all()
    assert (means["rk8vr"][2:] < 0.9 * means["rk6vr"][2:]).all()
    assert means["rk6vr"][0] < 0.9 * means["rk8vr"][0]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_the_reference_is_that_of_another_method(case):
    gradient = case.gradients()
    (exact, _), (other, _) = gradient("rk8vr", TIGHTEST), gradient("rk7vr", 1e-13)
    assert np.linalg.norm(other - exact) < 3e-11 * np.linalg.norm(exact)


def test_new_stages_of_each_step():
    for method, count in STAGES.items():
        scheme = find_method(method).tableau
        a, b = scheme.a, scheme.b
        first_same_as_last = b[-1] == 0 and (a[-1] == b).all()
        assert count == len(b) - first_same_as_last
