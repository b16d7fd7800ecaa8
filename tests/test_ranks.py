"""Ranks that do not wait for each other; test_mpi_failure.py shows it on several."""

import sys

from mpi4py import MPI

from daeosens.ranks import install_abort_hook


def test_no_hook_is_installed_on_one_rank():
    if MPI.COMM_WORLD.size == 1:
        before = sys.excepthook
        install_abort_hook()
        assert sys.excepthook is before
