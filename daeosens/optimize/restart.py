"""Restart files: each accepted iterate is saved, and a later run continues from the last one.

A file is HDF5 followed by a checksum of all of its bytes, which HDF5 does not mind: nothing of a
damaged file is looked at.  The checksum also tells whether another process has written to the file.
"""

from __future__ import annotations

import io
import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import DaeosensError, InputError
from daeosens.io.files import replace_file
from daeosens.io.hdf5 import HDF5_ERRORS, changed_image
from daeosens.optimize.methods import MEMORY, NEWTON, TRUST_REGION
from daeosens.optimize.result import Iterate
from daeosens.optimize.start import Bounds
from daeosens.optimize.tao.run import TaoRun
from daeosens.petsc.options import Options
from daeosens.petsc.vectors import Array, read, scatter

FORMAT = "daeosens restart 2"
MARK = b"checksum"
TAIL = len(MARK) + 32
"""Bytes after HDF5's: a mark, and the checksum of all before it."""

COLUMNS = (
    "value",
    "gradient_norm",
    "step",
    "evaluations",
    "failed_solves",
    "hessian_products",
)
RADIUS = {"tao_trust0", "tao_bnk_init_type", "tao_ntr_init_type"}
"""Options for the first radius."""

ACTIVE = "tao_bnk_as_tol"
"""PETSc 3.26: what it is set to is tightened on the way."""

T = TypeVar("T")
_h5: Any = h5py  # untyped


@dataclass(frozen=True, eq=False)
class Saved:
    """What a restart file holds.

    Parameters
    ----------
    identity : mapping of str
        The problem in words: method, size, bounds.
    x : ndarray [n]
        The last accepted iterate.
    iterates : list of Iterate
        All so far.
    radius : float
        Trust radius of TAO; 0: none yet.
    forgotten : str
        What TAO knew and the file does not; empty: nothing.
    writer : str
        The process that wrote it.
    checksum : bytes
        Of the file, where it has been read.
    """

    identity: Mapping[str, str]
    x: Array
    iterates: list[Iterate]
    radius: float
    forgotten: str
    writer: str = ""
    checksum: bytes = b""


@dataclass
class RestartWriter:
    """Saves a descent after each accepted iterate.

    Parameters
    ----------
    path : Path
        The file.
    identity : mapping of str
        As in ``Saved``.
    learns : bool
        Whether the preconditioner has a memory.
    checksum : bytes
        Of the file as this process has last read or written it; empty: there was none.
    """

    path: Path
    identity: Mapping[str, str]
    learns: bool
    checksum: bytes = b""

    def save(self, descent: TaoRun, tao: PETSc.TAO) -> None:
        """Replace the file by one with the newest iterate.  Collective on the descent's x."""
        x = descent.x
        radius: Any = 0.0
        if descent.hessian is not None:
            # before the first step it is not chosen yet, whatever TAO says
            radius = tao.getCurrentTrustRegionRadius() if len(descent.iterates) > 1 else 0.0
        forgotten = self._forgotten(descent, tao)
        # One file by rank 0: h5py need not be built with MPI, and one checksum covers all.
        parts: Any = x.comm.tompi4py().gather(read(x).copy())

        def write() -> bytes:
            values = np.concatenate(parts)
            saved = Saved(self.identity, values, descent.iterates, radius, forgotten, _writer())
            return _write(self.path, saved, self.checksum)

        self.checksum = _on_first_rank(x.comm, write)

    def _forgotten(self, descent: TaoRun, tao: PETSc.TAO) -> str:
        """Say what of TAO's state is not in the file, for the experiments see the tests."""
        if descent.hessian is None:
            return MEMORY[descent.method]
        things: list[str] = []
        if self.learns:
            things.append("limited-memory preconditioner")
        # Krylov solvers end with a negative reason also at an indefinite matrix, after which NLS
        # and BNLS shift the Hessian and remember by how much.
        krylov: Any = tao.getKSP().getConvergedReason()
        curved = krylov < 0 and krylov != PETSc.KSP.ConvergedReason.DIVERGED_MAX_IT
        curved = curved or krylov == PETSc.KSP.ConvergedReason.CONVERGED_NEG_CURVE
        scope = descent.scope
        entries: set[str] = set() if scope is None else set(scope.entries)
        if ACTIVE in entries:
            things.append("tolerance for active bounds")
        if RADIUS & entries:  # they will be heeded again
            things.append("trust radius")
        shifts = descent.algorithm in ("nls", "bnls")
        if shifts and len(descent.iterates) > 1 and (descent.hessian.shifted or curved):
            things.append("shift of the indefinite Hessian")
        return " and ".join(things)


def identity_of(
    method: str, x: PETSc.Vec, limits: Bounds | None, further: Mapping[str, str]
) -> dict[str, str]:
    """Describe a problem in words, the same on every rank; bounds by their sum and extremes."""
    words = {"method": method, "size": str(x.getSize()), **further}
    for name, side in zip(("lower bound", "upper bound"), limits or (None, None), strict=True):
        if side is None:
            words[name] = "none"
            continue
        values: Array = np.concatenate(side.comm.tompi4py().allgather(read(side)))
        finite = values[np.isfinite(values)]
        # Weighted by position, so that bounds in another order have another sum.
        weights = 1.0 + np.arange(len(values))[np.isfinite(values)]
        words[name] = f"{len(finite)} finite, checksum {math.fsum(weights * finite):.12g}"
    return words


def load(path: Path, identity: Mapping[str, str], comm: PETSc.Comm) -> Saved | None:
    """Read a restart file, or return None where there is none.  Collective.

    Raises
    ------
    InputError
        On every rank: not a restart file, or one of another problem; a folder that is not there, or
        that cannot be written to.
    """
    saved = _on_first_rank(comm, lambda: _saved_in(path))
    if saved is None:
        return None
    names = {*identity, *saved.identity}
    different = [
        f"{name}: {saved.identity.get(name, 'none')} in the file, {identity.get(name, 'none')} here"
        for name in sorted(names)
        if saved.identity.get(name) != identity.get(name)
    ]
    if different:
        raise InputError(
            f"restart = {path}: the file is of another problem; " + "; ".join(different),
            expected="the same functional, bounds and method as when it was written",
            remedy="another file name",
        )
    return saved


def resume(descent: TaoRun, saved: Saved, x: PETSc.Vec, path: Path) -> str:
    """Put a descent and its start x [n] where the file was left, and return a note in words."""
    last = saved.iterates[-1]
    scatter(saved.x, x)
    x.copy(descent.x)
    descent.iterates = list(saved.iterates)
    descent.evaluations.count, descent.evaluations.failed = last.evaluations, last.failed_solves
    # The unit of J is chosen at the first iterate; the same one gives TAO the same numbers to the
    # last bit.
    descent.evaluations.measure(abs(saved.iterates[0].value))
    descent.resuming = True
    descent.continued = True
    note = f"continued from iterate {last.iteration} in {path.name}"
    verb = "start" if " and " in saved.forgotten else "starts"
    return f"{note}; the {saved.forgotten} {verb} anew" if saved.forgotten else f"{note}, exactly"


def options_for(saved: Saved, descent: TaoRun) -> Options:
    """Return the options that give TAO back what the file kept."""
    algorithm = descent.algorithm
    if algorithm not in NEWTON:
        return {}
    prefix = "tao_brgn_subsolver_" if descent.method == "brgn" else ""
    options: dict[str, object] = {}
    if saved.radius > 0.0 and (algorithm in TRUST_REGION or algorithm == "bnls"):
        # A constant radius in the place of the search for one at a first point.
        family = "ntr" if algorithm == "ntr" else "bnk"
        options[f"{prefix}tao_{family}_init_type"] = "constant"
        options[f"{prefix}tao_trust0"] = saved.radius
    return options


def _write(path: Path, saved: Saved, known: bytes) -> bytes:
    """Replace the file, which must still be the known one, and return the new checksum."""
    # The file ends with its checksum, so 32 bytes tell whether it is still what was read or
    # written last.
    if path.exists() and _last_bytes(path, 32) != known:
        _refuse_other_writer(path)

    def put(file: Any) -> None:
        file.attrs["format"] = FORMAT
        file.attrs["writer"] = saved.writer
        file.attrs["radius"] = saved.radius
        file.attrs["forgotten"] = saved.forgotten
        identity = file.create_group("problem")
        for name, words in saved.identity.items():
            identity.attrs[name] = words
        file["x"] = saved.x
        for column in COLUMNS:
            file[f"history/{column}"] = [getattr(iterate, column) for iterate in saved.iterates]

    # Made in memory and put in place in one step: a job that is killed leaves the old file or the
    # new one.
    image = bytes(changed_image(b"", put))
    checksum = _checksum(image)
    replace_file(path, image + MARK + checksum)
    return checksum


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read()


def _checksum(image: bytes) -> bytes:
    return blake2b(image, digest_size=32).digest()


def _writer() -> str:
    rank = f" (rank {MPI.COMM_WORLD.rank} of its job)" if MPI.COMM_WORLD.size > 1 else ""
    return f"process {os.getpid()} of {socket.gethostname()}{rank}"


def _refuse_other_writer(path: Path) -> None:
    writer = _read(path).writer
    ranks = MPI.COMM_WORLD.size > 1
    raise InputError(
        f"restart = {path}: {writer} has written to it since {_writer()} looked",
        expected="a file for each minimisation that runs at the same time",
        remedy='restart=f"run-{rank}.h5", where each rank minimises for itself'
        if ranks
        else "another file name",
    )


def _saved_in(path: Path) -> Saved | None:
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK):
        problem = "cannot be written to" if folder.is_dir() else "is not there"
        raise InputError(f"restart = {path}: the folder {folder} {problem}", remedy="another one")
    return _read(path) if path.exists() else None


def _read(path: Path) -> Saved:
    what = f"restart = {path}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{what} cannot be read ({error.strerror})") from error
    image, tail = content[:-TAIL], content[-TAIL:]
    if not tail.startswith(MARK) or tail != MARK + _checksum(image):
        raise InputError(
            f"{what} is not a restart file, or it is damaged: its checksum is wrong",
            expected="a whole restart file of minimize",
            remedy="another file name, or remove it",
        )
    try:
        with _h5.File(io.BytesIO(image), "r") as file:
            saved = _saved(file)
    except HDF5_ERRORS as error:
        raise InputError(
            f"{what} cannot be read ({error})",
            expected=f"a file of the format {FORMAT}",
            remedy="another file name",
        ) from error
    return replace(saved, checksum=tail[len(MARK) :])


def _saved(file: Any) -> Saved:
    """Take a file apart; a ValueError or KeyError says what is wrong."""
    if file.attrs.get("format") != FORMAT:
        raise ValueError(f"its format is {file.attrs.get('format')!r}")
    columns = [file[f"history/{column}"][...].tolist() for column in COLUMNS]
    rows = enumerate(zip(*columns, strict=True))
    identity = {str(name): str(words) for name, words in file["problem"].attrs.items()}
    x = np.array(file["x"], dtype=float)
    iterates = [Iterate(number, *row) for number, row in rows]
    radius = float(file.attrs["radius"])
    numbers = np.array([[i.value, i.gradient_norm, i.step] for i in iterates], dtype=float)
    if x.ndim != 1 or str(x.size) != identity.get("size"):
        raise ValueError(f"x has shape {list(x.shape)}, its size is {identity.get('size')}")
    if not (iterates and np.isfinite(x).all() and np.isfinite(numbers).all() and radius >= 0.0):
        raise ValueError("no iterates, or numbers that are not finite")
    return Saved(
        identity, x, iterates, radius, str(file.attrs["forgotten"]), str(file.attrs["writer"])
    )


def _on_first_rank(comm: PETSc.Comm, task: Callable[[], T]) -> T:
    """Run a task on rank 0; its result, or its error, comes to every rank."""
    outcome: tuple[T | None, str, str] = (None, "", "")
    if comm.rank == 0:
        try:
            outcome = (task(), "", "")
        # Errors of rank 0 travel as words and are raised anew on every rank, for an exception on
        # one alone would leave the others in the broadcast.
        except InputError as error:
            outcome = (None, str(error), "input")
        except DaeosensError as error:
            outcome = (None, f"the restart file: {error}", "file")
    result, message, kind = comm.tompi4py().bcast(outcome)
    if kind:
        raise (InputError if kind == "input" else DaeosensError)(message)
    return result
