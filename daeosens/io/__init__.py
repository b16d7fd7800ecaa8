"""Files in and out: configurations, tables of data, results folders, XDMF for ParaView.

In come TOML files and command lines, which become checked dataclasses (``config``), and tables of
measurements; out go results folders: what was said, facts in summary.json, arrays in HDF5.  Nothing
here knows of problems.  Read first: ``config/read`` and ``results``.
"""

from daeosens.io.config.read import build_config, config_help, parse_toml, read_config
from daeosens.io.config.schema import between, existing_file, increasing, length, positive
from daeosens.io.hdf5 import read_array
from daeosens.io.results import Results, close_results, open_results, read_status
from daeosens.io.tables import Table, read_table
from daeosens.io.xdmf import Snapshot, UniformGrid, write_xdmf

__all__ = [
    "Results",
    "Snapshot",
    "Table",
    "UniformGrid",
    "between",
    "build_config",
    "close_results",
    "config_help",
    "existing_file",
    "increasing",
    "length",
    "open_results",
    "parse_toml",
    "positive",
    "read_array",
    "read_config",
    "read_status",
    "read_table",
    "write_xdmf",
]
