"""Files in and out: configurations, tables of data, results folders, XDMF for ParaView."""

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
