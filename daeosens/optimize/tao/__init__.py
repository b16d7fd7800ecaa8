"""PETSc TAO: its set-up, a run of it, Newton's and Gauss-Newton's pieces.

In come a functional, a start and options; out comes a point with the history of how it was come to.
``setup`` makes a TAO, ``run`` lets it descend and goes on after failed searches, ``newton`` and
``gauss_newton`` give it matrices and preconditioners.  Nothing else calls TAO.

Read first: ``run``, ``setup``.
"""
