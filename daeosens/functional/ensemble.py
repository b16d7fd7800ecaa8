"""Ensembles: one model for many initial states and parameter sets, shared out among ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.costs.objective import Objective, require_objective
from daeosens.derivatives.adjoint import adjoint, evaluate
from daeosens.derivatives.solve import solve
from daeosens.errors import GrazingError, InputError, SolveError, require
from daeosens.functional.ensemble_parts import Part, file_name, read_part, shares, write_part
from daeosens.io.files import admit_path, unwritable
from daeosens.io.saved import ANOTHER_FOLDER, SAME, of_another_problem
from daeosens.io.tasks import Helped, claimed, helping
from daeosens.petsc.agreement import on_every_rank, on_first_rank
from daeosens.petsc.ranks import admit_comm, agree, contents
from daeosens.petsc.vectors import Array, finite_array, gather
from daeosens.problem.admission import numbers_by_name
from daeosens.problem.problem import Problem
from daeosens.timestepping.stepping import Stepping


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Runs of one model; members that failed have NaN in all arrays.

    Attributes
    ----------
    times : array [K]
        ``t_eval`` and the end of the span.
    states : array [B, K, n]
        State of each member at these times; NaN after an event that ended its run.
    values : array [B]
        Costs; empty without an objective.
    gradients_u0, gradients_p : array [B, n], [B, m]
        Their gradients; empty without an objective.
    failures : mapping of int to str
        Why members have failed.

    Examples
    --------
    >>> from daeosens import ODE, Stepping
    >>> from daeosens.functional import solve_batch
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> solve_batch(decay, [1.0], [[0.5], [1.0]], Stepping((0.0, 2.0), "rk4", dt=0.1))
    Ensemble(2 members, 1 times, n = 1, 0 failed)
    """

    times: Array
    states: Array
    values: Array
    gradients_u0: Array
    gradients_p: Array
    failures: Mapping[int, str]

    def __repr__(self) -> str:
        """Return the number of members, and of those that failed."""
        members, points, n = self.states.shape
        return f"Ensemble({members} members, {points} times, n = {n}, {len(self.failures)} failed)"


def solve_batch(
    problem: Problem,
    u0: npt.ArrayLike,
    p: npt.ArrayLike | Mapping[str, Any] | None,
    stepping: Stepping,
    objective: Objective | None = None,
    t_eval: npt.ArrayLike | None = None,
    *,
    gradients: bool = True,
    comm: MPI.Intracomm | None = None,
    folder: str | Path | None = None,
) -> Ensemble:
    """Solve a model for many initial states and parameter sets, with gradients of a cost.

    Each member takes its own steps and has its own events, as if it were solved alone.  A member
    that fails does not stop the others.  Collective on ``comm``: member k runs on rank
    k mod ``comm.size``, and every rank gets all results.

    Parameters
    ----------
    problem : Problem
        On one rank (``size=n``).
    u0 : array_like [n] or [B, n]
        Initial states, or one for all members.
    p : array_like [m] or [B, m], or None
        Parameters, or one set for all members; or a mapping, in which each parameter has one value,
        or one for each member along its first axis.
    stepping : Stepping
        Method and step sizes.
    objective : Objective, optional
        A cost of each member.
    t_eval : array_like [K]
        As for ``solve``.
    gradients : bool
        Whether the gradients of the cost are wanted, or its values only.
    comm : MPI.Intracomm, optional
        Whose ranks share the members, all of which call this; by default each rank runs all.
    folder : str or Path, optional
        Members that are done are written there, at most 256 files; a rerun takes them from there.
        Programs that run at the same time share the members by it, and ranks of ``comm`` do: one
        that dies loses those of the file that it is at, which another one does again.

    Returns
    -------
    Ensemble

    Raises
    ------
    InputError
        Shapes that do not fit together; a distributed problem; a folder of another ensemble.

    Examples
    --------
    >>> import numpy as np
    >>> from daeosens import ODE, Stepping, Terminal
    >>> from daeosens.functional import solve_batch
    >>> decay = ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    >>> final = Terminal(lambda t, u, p: u[0])
    >>> stepping = Stepping((0.0, 2.0), "rk4", dt=0.1)
    >>> runs = solve_batch(decay, [1.0], [[0.5], [1.0]], stepping, final)
    >>> runs.values.round(5), runs.gradients_p[:, 0].round(5)
    (array([0.36788, 0.13534]), array([-0.73576, -0.27067]))
    """
    require(problem, Problem, "problem", "ODE(f, size, parameters), or trace(f, ...) compiled")
    require(stepping, Stepping, "stepping", 'Stepping((0.0, 1.0), "rk6vr", rtol=1e-6)')
    if objective is not None:
        require_objective(objective)
    require(gradients, bool, "gradients", "gradients=False")
    comm = MPI.COMM_SELF if comm is None else admit_comm(comm)
    agree(
        comm,
        "solve_batch",
        u0=u0,
        p=p,
        stepping=stepping,
        objective=contents(objective),
        t_eval=() if t_eval is None else t_eval,
        gradients=gradients,
        folder=folder is not None,
    )
    if isinstance(p, Mapping):
        p = _sets_by_name(problem, p)
    starts, sets = _members(problem, u0, p)
    times = np.append(finite_array(() if t_eval is None else t_eval, "t_eval"), stepping.t_span[1])
    members = len(starts)

    def empty(numbers: Sequence[int]) -> Part:
        costs = len(numbers) if objective is not None else 0
        wanted = costs if gradients else 0
        return Part(
            numbers,
            np.full((len(numbers), len(times), problem.size), np.nan),
            np.full(costs, np.nan),
            np.full((wanted, problem.size), np.nan),
            np.full((wanted, problem.n_parameters), np.nan),
        )

    def run(numbers: Sequence[int]) -> Part:
        part = empty(numbers)
        for row, k in enumerate(numbers):
            try:
                trajectory = solve(problem, starts[k], sets[k], stepping, times[:-1])
                last = trajectory.times[-1]
                # An event may have ended the run before; later times stay NaN.
                passed = [n for n, time in enumerate(times) if time <= last]
                part.states[row, passed] = [
                    gather(trajectory.stored[trajectory.index(times[n])]) for n in passed
                ]
                if objective is None:
                    continue
                if not gradients:
                    part.values[row] = evaluate(trajectory, objective)
                    continue
                gradient = adjoint(trajectory, objective)
                part.gradients_u0[row], part.gradients_p[row] = gradient.gather()
                part.values[row] = gradient.value
            except (SolveError, GrazingError) as error:
                part.failures[k] = str(error)
                # Also what was computed before its adjoint failed: a member has failed or it has
                # not.
                part.states[row] = np.nan
        return part

    if folder is None:
        parts = comm.allgather(
            on_every_rank(comm, lambda: run(range(comm.rank, members, comm.size)))
        )
    else:
        digest = blake2b(
            np.ascontiguousarray(starts).tobytes() + np.ascontiguousarray(sets).tobytes()
        )
        settings = f"{digest.hexdigest()} {stepping} {type(objective).__name__} {times.tolist()}"
        parts = _shared(comm, admit_path(folder, "folder"), members, settings, empty, run)
    whole = empty(range(members))
    for part in parts:
        for array, rows in zip(whole.arrays, part.arrays, strict=True):
            if len(array):
                array[[*part.numbers]] = rows
        whole.failures.update(part.failures)
    return Ensemble(times, *whole.arrays, dict(sorted(whole.failures.items())))


def _shared(
    comm: MPI.Intracomm,
    folder: Path,
    members: int,
    settings: str,
    empty: Callable[[Sequence[int]], Part],
    run: Callable[[Sequence[int]], Part],
) -> list[Part]:
    """Return all members, of which each program with the same folder has done some."""
    numbers = shares(members)
    names = [file_name(k) for k in range(len(numbers))]

    def read(k: int) -> Part:
        return read_part(folder / names[k], empty(numbers[k]), settings)

    def check() -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, error) from error
        done = [k for k, name in enumerate(names) if (folder / name).is_file()]
        if done:
            _check_same(folder / names[done[0]], read(done[0]), run(numbers[done[0]][:1]))

    def share() -> None:
        with closing(claimed(folder, names, MPI.COMM_SELF, comm.rank)) as todo:
            for k in todo:
                write_part(folder / names[k], run(numbers[k]), settings)

    on_first_rank(comm, check)
    on_every_rank(comm, share)
    if helping():
        raise Helped
    return on_first_rank(comm, lambda: [read(k) for k in range(len(numbers))])


def _check_same(path: Path, known: Part, again: Part) -> None:
    """Refuse members of another model or other data, which are not in the files."""
    pairs = zip(known.arrays, again.arrays, strict=True)
    if not all(np.allclose(a[:1], b, SAME, 1e-3 * SAME, equal_nan=True) for a, b in pairs):
        why = f"member {known.numbers[0]} is another one here"
        raise of_another_problem(path, "ensemble", why, ANOTHER_FOLDER)


def _sets_by_name(problem: Problem, p: Mapping[str, Any]) -> Array:
    """Return parameters [B, m] of all members, or [m] of one for all, from those by name."""
    names = problem.parameter_names
    # How many axes one value of a block has, from the commas in its last name; one axis more is
    # that of the members.
    axes = {name.partition("[")[0]: 1 + name.count(",") for name in names if name.endswith("]")}
    several = {name: np.asarray(value) for name, value in p.items()}
    several = {name: value for name, value in several.items() if value.ndim > axes.get(name, 0)}
    counts = {len(value) for value in several.values()}
    if not several:
        return numbers_by_name(p, names, "p")
    if len(counts) > 1:
        listed = ", ".join(f"{name}: {len(value)}" for name, value in several.items())
        raise InputError(
            f"p has values for different numbers of members ({listed})", expected="one"
        )
    members = [{name: value[k] for name, value in several.items()} for k in range(counts.pop())]
    return np.array(
        [numbers_by_name({**p, **member}, names, "p") for member in members], dtype=float
    )


def _members(problem: Problem, u0: npt.ArrayLike, p: npt.ArrayLike | None) -> tuple[Array, Array]:
    """Return the initial states [B, n] and the parameters [B, m] of all members."""
    if problem.comm.size > 1:
        raise InputError(
            f"solve_batch: the problem is distributed over {problem.comm.size} ranks",
            expected="a problem on one rank: size=n, or state=template on PETSc.COMM_SELF",
        )
    arguments = {"u0": (u0, problem.size), "p": (() if p is None else p, problem.n_parameters)}
    arrays = {
        name: np.atleast_2d(finite_array(values, name)) for name, (values, _) in arguments.items()
    }
    for name, (_, width) in arguments.items():
        if arrays[name].ndim != 2 or arrays[name].shape[1] != width:
            raise InputError(
                f"solve_batch: {name} has shape {np.shape(arguments[name][0])}",
                expected=f"[{width}], or [B, {width}] for B members",
            )
    members = max(len(array) for array in arrays.values())
    for name, rows in arrays.items():
        if len(rows) not in (1, members):
            raise InputError(
                f"solve_batch: {len(rows)} {name} for {members} members",
                expected="as many initial states as parameter sets, or one for all",
            )
    # one start or set for all members: rows of one array, without copies
    starts, sets = (np.broadcast_to(array, (members, array.shape[1])) for array in arrays.values())
    return starts, sets
