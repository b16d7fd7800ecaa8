"""The doctor's report: what is there, what is missing, how to get it."""

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys

import pytest
from petsc4py import PETSc

from daeosens.cli import doctor


def test_healthy_here_with_the_versions_that_are_installed():
    text, healthy = doctor.report()
    assert healthy
    rows = dict(line.split(maxsplit=1) for line in text.splitlines() if "  " in line)
    assert rows["numpy"] == importlib.metadata.version("numpy")
    assert rows["PETSc"] == ".".join(map(str, PETSc.Sys.getVersion()))
    assert text.endswith("all that is needed is there")


def test_wrong_series_of_petsc_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(doctor, "REQUIRED", (3, 99))
    text, healthy = doctor.report()
    assert not healthy
    version = ".".join(map(str, PETSc.Sys.getVersion()))
    assert f"PETSc {version} is not of the 3.99 series: scripts/setup builds it" in text


def test_missing_launcher_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    text, healthy = doctor.report()
    assert not healthy
    assert "no mpiexec on PATH: apt install openmpi-bin" in text
    assert "none: needed to install, and to compile traced models" in text


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("matplotlib", "missing (figures): pip install"),
        ("highspy", "missing (LinearDAEO): pip install"),
        ("casadi", 'missing (trace, trace_stencil): pip install --no-build-isolation "daeo'),
    ],
)
def test_missing_module_is_named_with_the_remedy(monkeypatch, module, told):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else find(name)
    )
    text, healthy = doctor.report()
    assert healthy
    assert told in text


@pytest.mark.parametrize("arch", ["", "arch-opt"])
def test_parallel_solvers_and_options_are_read_from_petscs_headers(monkeypatch, tmp_path, arch):
    include = tmp_path / arch / "include"
    include.mkdir(parents=True)
    (include / "petscconf.h").write_text(
        "#define PETSC_HAVE_MUMPS 1\n#define PETSC_HAVE_SUPERLU_DIST 1\n"
    )
    (include / "petscconfiginfo.h").write_text(
        'static const char *petscconfigureoptions = "--download-mumps --with-fc=0";\n'
    )
    config = {"PETSC_DIR": str(tmp_path), "PETSC_ARCH": arch}
    monkeypatch.setattr("petsc4py.get_config", lambda: config)
    text, _ = doctor.report()
    assert "mumps, superlu_dist" in text
    assert "--download-mumps --with-fc=0" in text


def test_petsc_without_headers_is_reported_as_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr("petsc4py.get_config", lambda: {"PETSC_DIR": str(tmp_path)})
    text, healthy = doctor.report()
    assert healthy
    assert "unknown" in text
    assert "none: GMRES" in text


def test_without_petsc4py_the_remedy_is_named():
    program = "import sys; sys.modules['petsc4py'] = None; import daeosens"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "needs petsc4py 3.26" in done.stderr
    assert "try: scripts/setup" in done.stderr


@pytest.mark.parametrize(
    ("kernels", "flags", "advised"),
    [
        ("Haswell", ["sse2", "avx512f"], True),
        ("Haswell", ["sse2"], False),
        ("SkylakeX", ["sse2", "avx512f"], False),
    ],
)
def test_openblas_that_does_not_know_the_processor_gets_advice(
    monkeypatch, kernels, flags, advised
):
    library = {
        "user_api": "blas",
        "internal_api": "openblas",
        "filepath": "scipy.libs/libscipy_openblas.so",
        "version": "0.3.30",
        "architecture": kernels,
    }
    numpys = library | {"filepath": "numpy.libs/libscipy_openblas64.so", "version": "0.3.31"}
    monkeypatch.setattr(doctor, "threadpool_info", lambda: [numpys, library])
    monkeypatch.setattr(doctor, "_processor_flags", lambda: flags)
    text, healthy = doctor.report()
    assert healthy
    assert f"openblas 0.3.30, {kernels} kernels" in text
    assert ("OPENBLAS_CORETYPE=SkylakeX" in text) == advised
