"""Files in and out: configurations, tables of data, results folders, XDMF for ParaView.

In come TOML files and command lines, which become checked dataclasses (``config``), and tables of
measurements; out go results folders: what was said, facts in summary.json, arrays in HDF5.  Nothing
here knows of problems.  Read first: ``config/read`` and ``results``.
"""

from daeosens.io.config.schema import between, existing_file, increasing, length, positive
from daeosens.io.results import Results, open_results
from daeosens.io.tables import Table, read_table
from daeosens.io.xdmf import Snapshot, UniformGrid, write_xdmf

__all__ = [
    "Results",
    "Snapshot",
    "Table",
    "UniformGrid",
    "between",
    "existing_file",
    "increasing",
    "length",
    "open_results",
    "positive",
    "read_table",
    "write_xdmf",
]
