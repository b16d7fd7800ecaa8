"""Order conditions of Runge-Kutta methods by rooted trees (Butcher)."""

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
