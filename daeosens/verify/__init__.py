"""Evidence that derivatives are right: Taylor tests, duality, checks of each callback.

In comes a functional or a problem, out come observed orders or a table of verdicts that names what
is wrong.  Read first: ``taylor`` and ``check``.
"""

from daeosens.verify.taylor import Taylor, duality

__all__ = ["Taylor", "duality"]
