"""What stages keep about problems: owned by a cache, dies with the problem, not copied."""

import gc
import weakref
from dataclasses import replace

from daeosens import ODE
from daeosens.problem.problem import ProblemCache


class Value:
    """Something that can be referred to weakly."""


def decay():
    return ODE(lambda t, u, p: -p[0] * u, 1, 1)


def test_a_problem_has_a_value_of_each_cache_made_once():
    lists, values, problem = ProblemCache(list), ProblemCache(Value), decay()
    lists.of(problem).append(1)
    assert lists.of(problem) == [1]
    assert values.of(problem) is values.of(problem)
    assert lists.of(decay()) == []


def test_a_changed_copy_starts_without():
    lists, problem = ProblemCache(list), decay()
    lists.of(problem).append(1)
    assert lists.of(replace(problem, breakpoints=(0.5,))) == []


def test_values_die_with_their_problem():
    values, problem = ProblemCache(Value), decay()
    value = weakref.ref(values.of(problem))
    del problem
    gc.collect()
    assert value() is None
