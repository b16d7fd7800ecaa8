"""What MPI is told where programs are started on ranks."""

import os

import pytest

from daeosens.cli.launch import mpi_environment


def test_settings_for_mpi_leave_alone_what_is_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "environ", {"OMP_NUM_THREADS": "4"})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    few, many, serial = (mpi_environment(n) for n in (2, 3, None))
    assert many["OMP_NUM_THREADS"] == "4"
    assert many["OMPI_MCA_rmaps_base_oversubscribe"] == "1"
    assert few == {
        "OMP_NUM_THREADS": "4",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    assert serial == {"OMP_NUM_THREADS": "4"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert mpi_environment(2) == {"OMP_NUM_THREADS": "4"}
