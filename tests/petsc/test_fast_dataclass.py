"""Frozen dataclasses with a quicker constructor are what they were."""

from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from daeosens.petsc.fast_dataclass import quickly_made


@dataclass(frozen=True)
class Plain:
    a: int
    b: float = 2.0
    c: list[int] = field(default_factory=list)


@quickly_made
@dataclass(frozen=True)
class Pair:
    a: int
    b: float = 2.0
    c: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    ("given", "named"),
    [((1,), {}), ((1, 3.0, [4]), {}), ((), {"c": [5], "a": 1}), ((1,), {"b": 0})],
)
def test_fields_are_those_of_the_plain_class(given, named):
    assert vars(Pair(*given, **named)) == vars(Plain(*given, **named))


def test_each_instance_has_a_default_of_its_own():
    assert Pair(1).c is not Pair(1).c


def test_it_stays_frozen_and_comparable_and_can_be_replaced():
    pair = Pair(1)
    with pytest.raises(FrozenInstanceError):
        pair.a = 2
    assert replace(pair, b=5.0) == Pair(1, 5.0) != pair


def test_missing_and_unknown_arguments_name_the_class():
    with pytest.raises(TypeError, match=r"Pair.__init__\(\) missing .* 'a'"):
        Pair()
    with pytest.raises(TypeError, match=r"Pair.__init__\(\) got an unexpected .* 'd'"):
        Pair(1, d=2)
