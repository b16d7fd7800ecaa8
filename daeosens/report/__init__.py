"""Figures of results; needs matplotlib (the optional extra ``plot``).

In come arrays, trajectories and fits, out come PNG files; nothing is computed here that is not
drawn.  Read first: ``figures`` (what most need) and ``canvas`` (how all of them look).
"""

from daeosens.errors import DaeosensError

try:
    import matplotlib as mpl
except ImportError as error:
    raise DaeosensError(
        "figures need matplotlib, which is not installed",
        expected="the optional extra 'plot'",
        remedy='pip install --no-build-isolation "daeosens[plot]", or pip install matplotlib',
    ) from error

__all__ = ["mpl"]
