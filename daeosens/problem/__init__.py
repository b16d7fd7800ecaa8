"""What is to be simulated: equations, events, modes, controls and grids, as frozen descriptions.

In come a user's callbacks (or C functions) and sizes; out comes a ``Problem``, whose functions and
derivatives act on PETSc vectors, with a second view of the same callbacks on arrays of many points
(``batched``).  Nothing is integrated here.

Read first: ``problem`` (the description), ``equations`` (ODE and DAE), ``event``, ``modes``
(hybrid systems); then ``event_kinds`` and ``grids``.
"""
