"""Bi-level estimation: measurements in the place of solutions.

A traced right-hand side and measurements of all its unknowns come in; out go estimates of its
parameters, without an integration (``bilevel``).  ``formulation`` makes of each experiment its
``samples`` (interpolants and quadrature, tested in the ``weak_form``), and of all of them a
``functional`` of the nonlinear parameters, whose ``inner`` problem gives the linear ones;
``outer_constraints`` are on both.  ``windows`` goes on with the true equations, on short windows
(``shooting``) whose jumps are closed step by step, and ``start`` puts both before a fit.

Read first: ``estimate``, ``formulation``, ``functional``.
"""

from daeosens.inverse.bilevel.estimate import Bilevel, bilevel
from daeosens.inverse.bilevel.functional import BilevelFunctional

__all__ = ["Bilevel", "BilevelFunctional", "bilevel"]
