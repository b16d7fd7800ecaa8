"""The command line: ``daeosens run | check | doctor``, and ``drive`` for drivers of one's own.

In come a driver and its configuration, out come results in a folder and an exit code.  Read first:
``study`` (a driver's life), then ``main``.
"""

from daeosens.cli.launch import mpi_environment
from daeosens.cli.study import drive

__all__ = ["drive", "mpi_environment"]
