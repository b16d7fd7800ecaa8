"""A kind of event for daeosens, by somebody else: an unknown that falls back from a level."""

from typing import Annotated

import numpy as np

from daeosens.problem import System
from daeosens.problem.event_kinds import Component, Number


class Hiccup:
    direction = 1

    def __init__(self, index, level, depth, name):
        self.index, self.level, self.depth, self.name = index, level, depth, name

    def when(self, t, u, p):
        return u[self.index] - self.level(p)

    def reset(self, t, u, p):
        return u - self.depth(p) * (np.arange(len(u)) == self.index)


def hiccup(
    system: System,
    *,
    component: Annotated[Component, "what falls back"],
    level: Annotated[Number, "where it does"],
    depth: Annotated[Number, "how far"] = 1.0,
    name: str = "hiccup",
) -> Hiccup:
    """Let an unknown that rises to a level fall back."""
    index = system.index(component)
    return Hiccup(index, system.quantity(level), system.quantity(depth), name)
