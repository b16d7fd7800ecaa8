"""What is to be simulated: equations, events, modes, controls and grids, as frozen descriptions.

In come a user's callbacks (or C functions) and sizes; out comes a ``Problem``, whose functions and
derivatives act on PETSc vectors, with a second view of the same callbacks on arrays of many points
(``batched``).  Nothing is integrated here.

Read first: ``problem`` (the description), ``equations`` (ODE and DAE), ``event``, ``modes``
(hybrid systems), ``parts`` (IMEX methods); then ``event_kinds`` and ``grids``.
"""

from daeosens.petsc.c_function import Native
from daeosens.problem.controls import PiecewiseConstant, PiecewiseLinear, Spline
from daeosens.problem.doses import Doses, with_doses
from daeosens.problem.event_kinds import NamedEvent, System, events_named, saturated, with_events
from daeosens.problem.matrices import Products
from daeosens.problem.modes import add_events
from daeosens.problem.parts import imex
from daeosens.problem.problem import AUTONOMOUS, COLORING, INDEPENDENT, Problem

__all__ = [
    "AUTONOMOUS",
    "COLORING",
    "INDEPENDENT",
    "Doses",
    "NamedEvent",
    "Native",
    "PiecewiseConstant",
    "PiecewiseLinear",
    "Problem",
    "Products",
    "Spline",
    "System",
    "add_events",
    "events_named",
    "imex",
    "saturated",
    "with_doses",
    "with_events",
]
