"""What ``import daeosens`` offers."""

import inspect

import pytest

import daeosens

DOCUMENTED = [
    name
    for name in daeosens.__all__
    if callable(getattr(daeosens, name)) and not name.endswith("Error")
]


def test_names_are_sorted_and_there():
    assert daeosens.__all__ == sorted(set(daeosens.__all__), key=lambda n: (not n.isupper(), n))
    assert len(DOCUMENTED) > 50


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_has_an_example(name):
    """They are run by scripts/check."""
    assert "\n>>> " in inspect.getdoc(getattr(daeosens, name))
