"""The sweep back: one loop over smooth windows, and over the events between them.

An engine carries rows over a window, the consecutive steps of one mode that are as those of a run
without events; how it does that is its own affair.  Steps that end at events, jumps and steps of
size 0 are carried by the step maps, whatever the engine.
"""

from __future__ import annotations

from typing import Protocol

from mpi4py import MPI

from daeosens.derivatives.engines.arrays.adjoint import ArraySweep
from daeosens.derivatives.engines.choice import (
    ASKED,
    Choice,
    Engine,
    check_of_delays,
    choose_engine,
    refuse_compiled,
    wants_compiled,
)
from daeosens.derivatives.engines.compiled.adjoint import CompiledSweep, open_sweep
from daeosens.derivatives.engines.delays.sweep import DelayedSweep
from daeosens.derivatives.engines.request import AdjointRequest, Rows, SweepError, windows
from daeosens.derivatives.engines.tsadjoint import TSAdjointSweep, jumps_apart
from daeosens.derivatives.engines.vectors.adjoint import VectorSweep
from daeosens.derivatives.faults import named_faults
from daeosens.methods.events.event_step import HybridStep
from daeosens.methods.step import StepMap
from daeosens.petsc._kernels import finite_numbers
from daeosens.petsc.vectors import Array, finite_vec
from daeosens.timestepping.trajectory.trajectory import Trajectory

NOT_FINITE = "values that are not finite, or a linear solver that failed"


class SweptBack(Protocol):
    """What a sweep back has come to, which engine it was, and why that one."""

    name: str
    why: str

    def values(self) -> list[float] | None:
        """Return the values of the costs, where the engine comes by them."""
        ...

    def rows(self) -> Rows:
        """Return the rows as vectors."""
        ...

    def matrices(self) -> tuple[Array, Array]:
        """Return the rows as arrays [M, n_local] and [M, m_local]."""
        ...


class BackwardSweep(SweptBack, Protocol):
    """What an engine does for one sweep back; its rows are at the state that it has reached."""

    @property
    def steps(self) -> StepMap:
        """The step map of what is between windows."""
        ...

    def observe(self, number: int) -> None:
        """Add what is observed at a state."""
        ...

    def back(self, first: int, last: int) -> None:
        """Carry the rows over a window, from state number ``last`` to ``first``.

        With what is observed on the way, ``first`` included.
        """
        ...

    def between(self, number: int) -> None:
        """Carry the rows over one step, or jump, that is in no window, and observe its start."""
        ...


def sweep_back(trajectory: Trajectory, request: AdjointRequest, engine: Engine) -> SweptBack:
    """Carry rows back to the first state, by the engine asked for or by the quickest.  Collective.

    Of a delay equation the steps look at earlier ones, so that its sweeps are over the whole run.

    Raises
    ------
    UnsupportedError
        The engine cannot; names the reason.
    SolveError
        A row, or a value on the way to it, is not finite.
    """
    if trajectory.problem.delays is not None:
        check_of_delays(engine)
        return DelayedSweep(trajectory, request)
    # C first; what it meets that is not finite is found again below, where messages have names
    not_in_c, why = "", wants_compiled(trajectory, engine, request.rows)
    if why:
        in_c = swept_in_c(trajectory, request, required=engine == "compiled")
        if isinstance(in_c, CompiledSweep):
            in_c.why = why
            return in_c
        not_in_c = in_c
    if engine == "tsadjoint":
        return _by_steps(trajectory, request, TSAdjointSweep, ASKED)
    chosen = choose_engine(trajectory, engine, not_in_c)
    if chosen.engine == "arrays":
        sweep = ArraySweep(trajectory, request)
        sweep.why = chosen.why
        _carry(trajectory, request, sweep)  # callbacks for many points look at what they return
        comm = trajectory.problem.comm
        finite = all(map(finite_numbers, sweep.matrices()))
        if finite if comm.size == 1 else comm.tompi4py().allreduce(finite, MPI.LAND):
            return sweep
        chosen = Choice("vectors", NOT_FINITE)  # they name what is not finite
    return _by_steps(trajectory, request, VectorSweep, chosen.why)


def _by_steps(
    trajectory: Trajectory,
    request: AdjointRequest,
    engine: type[VectorSweep | TSAdjointSweep],
    why: str,
) -> SweptBack:
    """Carry rows back on vectors, and name what is not finite."""
    with named_faults(trajectory, back=True):
        sweep = engine(trajectory, request)
        sweep.why = why
        _carry(trajectory, request, sweep)
        for name, rows in zip(("u0", "p"), sweep.rows(), strict=True):
            for row in rows:
                finite_vec(row, f"the gradient in {name}")
    return sweep


def swept_in_c(
    trajectory: Trajectory, request: AdjointRequest, *, required: bool = False
) -> CompiledSweep | str:
    """Carry rows back in C; or say why that cannot be, or that it failed.

    Raises
    ------
    UnsupportedError
        It cannot be, but is ``required``; names the reason.
    """
    sweep = open_sweep(trajectory, request)
    if isinstance(sweep, str):
        if required:
            refuse_compiled(sweep)
        return sweep
    try:
        _carry(trajectory, request, sweep)
        sweep.close()
    except SweepError:
        return NOT_FINITE
    return sweep


def _carry(trajectory: Trajectory, request: AdjointRequest, sweep: BackwardSweep) -> None:
    """Carry rows from ``request.last`` to the first state."""
    last = request.last
    sweep.observe(last)
    # step maps of vectors go through events by themselves: no windows
    if isinstance(sweep, VectorSweep):
        sweep.back(0, last)
        return
    hybrid = None
    if trajectory.crossings:
        hybrid = sweep.steps
        assert isinstance(hybrid, HybridStep)
    if isinstance(sweep, TSAdjointSweep):
        parts = jumps_apart(trajectory)
    else:
        parts = windows(trajectory, hybrid, request.densities, last)
    for first, end, smooth in reversed(parts):
        if smooth:
            if hybrid is not None:
                # the step maps learn that a window passes, as the adjoint of the time lives there
                hybrid.pass_by(first)
            sweep.back(first, end)
        else:
            sweep.between(first)
