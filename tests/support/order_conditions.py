"""Order conditions of Runge-Kutta methods by rooted trees (Butcher)."""

import math
from functools import cache

import numpy as np


@cache
def trees(order):
    """Rooted trees of so many nodes, each the sorted tuple of its branches."""

    def forests(nodes, largest):
        if nodes == 0:
            yield ()
        for k in range(min(nodes, largest), 0, -1):
            for tree in trees(k):
                for others in forests(nodes - k, k):
                    yield (tree, *others)

    return sorted({tuple(sorted(forest)) for forest in forests(order - 1, order - 1)})


def n_nodes(tree):
    return 1 + sum(map(n_nodes, tree))


def density(tree):
    return n_nodes(tree) * np.prod([density(branch) for branch in tree])


def weight(a, tree):
    return np.prod([a @ weight(a, branch) for branch in tree], axis=0) * np.ones(len(a))


def defects(a, b, order):
    """Return what is missing in each condition of that order (Butcher)."""
    return [abs(b @ weight(a, tree) - 1 / density(tree)) for tree in trees(order)]


def symmetry(tree):
    """In how many ways the branches of a tree, and theirs, can be exchanged."""
    different = {branch: tree.count(branch) for branch in tree}
    return np.prod(
        [math.factorial(many) * symmetry(branch) ** many for branch, many in different.items()]
    )


def principal_error(a, b, order):
    """The norm of what is missing in the conditions of that order, weighed as errors are."""
    weights = [1 / symmetry(tree) for tree in trees(order)]
    return np.linalg.norm(np.multiply(weights, defects(a, b, order)))
