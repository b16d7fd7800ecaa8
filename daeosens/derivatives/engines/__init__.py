"""The ways to sweep over a smooth piece of a run, and the choice between them.

In come a trajectory and a request (``request``: which rows are carried from which state, and what
they observe on the way); an engine carries them over one window of steps after the other.
``vectors`` can do everything, one step after the other; ``arrays`` takes all points at once,
``compiled`` runs in C, ``delays`` sweeps delay equations, ``tsadjoint`` is PETSc's own.  What an
engine has to do is ``sweeps/backward.py:BackwardSweep``, when it is taken says ``choice``.

Read first: ``request``, ``choice`` (which engine runs, by ``limits``), ``vectors/adjoint``.
"""
