"""What all equations have in common: the style of their callbacks, layouts, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from petsc4py import PETSc

from daeosens.errors import InputError, is_iterable, is_whole
from daeosens.petsc.c_function import admit_native
from daeosens.petsc.ranks import agree, anchor
from daeosens.petsc.vectors import MOST, created
from daeosens.problem.matrices import dense
from daeosens.problem.problem import Style


@dataclass(frozen=True, eq=False)
class CallbackLayout:
    """What ODE and DAE have in common: style, layouts and names."""

    style: Style
    state: PETSc.Vec
    parameter: PETSc.Vec
    parameter_names: tuple[str, ...]
    field_parameter: bool
    dm: PETSc.DM | None
    template: Callable[[], PETSc.Mat]
    faults: list[str] = field(default_factory=list[str])
    state_names: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return what goes into a ``Problem`` as it is."""
        names = (
            "style",
            "state",
            "parameter",
            "state_names",
            "parameter_names",
            "field_parameter",
            "dm",
            "faults",
        )
        return {name: getattr(self, name) for name in names}


def make_frame(
    callback: Callable[..., Any],
    size: int | Sequence[str] | None,
    state: PETSc.Vec | PETSc.DM | None,
    parameters: int | Sequence[str] | PETSc.Vec,
    jacobian_matrix: PETSc.Mat | None,
    name: str,
) -> CallbackLayout:
    """Check what ODE and DAE have in common and return the layouts.

    Raises
    ------
    InputError
        Neither or both of ``size`` and ``state``, wrong types, repeated names.
    """
    if not callable(callback) and admit_native(callback) is None:
        raise InputError(f"{name} is {type(callback).__name__}", expected="a function")
    if (size is None) == (state is None):
        raise InputError(
            "both size and state are given" if size is not None else "neither size nor state given",
            expected="size=n for NumPy-style callbacks, or state=template for PETSc-style ones",
        )
    dm: PETSc.DM | None = None
    state_names: tuple[str, ...] = ()
    if size is not None:
        count, state_names = admit_size(size)
        # NumPy callbacks see all unknowns: each rank has the whole problem
        try:
            template = PETSc.Vec().createSeq(count, comm=PETSc.COMM_SELF)
        except PETSc.Error as error:
            raise InputError(
                f"size = {count}: there is no memory for so many unknowns",
                expected="a few of them; more are distributed, by state=template",
            ) from error
    elif isinstance(state, PETSc.DM):
        dm = state
        template = state.createGlobalVec()
    elif isinstance(state, PETSc.Vec):
        template = created(state, "state", "a Vec with a layout").duplicate()
    else:
        raise InputError(f"state is {type(state).__name__}", expected="a PETSc Vec or DM")
    agree(template.comm, "a problem (ODE, DAE) on several ranks", described_by=name)
    anchor(template.comm)
    if jacobian_matrix is not None and (
        size is not None or not isinstance(jacobian_matrix, PETSc.Mat)
    ):
        raise InputError(
            f"jacobian_matrix is {type(jacobian_matrix).__name__}"
            f"{' beside size' * (size is not None)}",
            expected="a PETSc Mat, for PETSc-style callbacks",
            remedy="state=template, or no jacobian_matrix",
        )
    parameter, names = _parameter_layout(parameters, template.comm)

    def matrix() -> PETSc.Mat:
        if jacobian_matrix is not None:
            return jacobian_matrix.duplicate()
        # a DM knows which points neighbour each other, and so the pattern
        return dense(template, template) if dm is None else dm.createMat()

    return CallbackLayout(
        style="numpy" if size is not None else "petsc",
        state=template,
        parameter=parameter,
        state_names=state_names,
        parameter_names=names,
        field_parameter=isinstance(parameters, PETSc.Vec),
        dm=dm,
        template=matrix,
    )


def admit_size(size: object, most: int = MOST) -> tuple[int, tuple[str, ...]]:
    """Return how many unknowns there are, and their names; none where only the number is given.

    Raises
    ------
    InputError
        Neither a number nor names, or repeated names.

    Examples
    --------
    >>> admit_size(2), admit_size(["prey", "predator"])
    ((2, ()), (2, ('prey', 'predator')))
    """
    if is_whole(size) and size >= 1:
        if size > most:
            raise InputError(f"size = {size}", expected=f"at most {most} unknowns")
        return int(size), ()
    several = is_iterable(size) and not isinstance(size, (str, Mapping, np.ndarray))
    names: tuple[Any, ...] = tuple(cast("Iterable[Any]", size)) if several else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(
            f"size = {size!r}",
            expected='an integer of at least 1, or names of the unknowns such as ["prey", "fox"]',
        )
    _refuse_repeated("names of unknowns", names)
    return len(names), names


MOST_NAMED = 10_000_000
"""Parameters that have a name each, of which every rank has all; more of them are a field."""


def numbered_parameters(count: int) -> tuple[str, ...]:
    """Return names for so many parameters.

    Raises
    ------
    InputError
        A negative number, or too many.

    Examples
    --------
    >>> numbered_parameters(2)
    ('p0', 'p1')
    """
    if not 0 <= count <= MOST_NAMED:
        raise InputError(
            f"parameters = {count}",
            expected=f"at least 0 and at most {MOST_NAMED} parameters",
            remedy="parameters=template, a Vec, for a distributed field" * (count > 0),
        )
    return tuple(f"p{i}" for i in range(int(count)))


def _refuse_repeated(what: str, names: Iterable[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InputError(f"{what} {repeated} appear more than once")


def _parameter_layout(
    parameters: int | Sequence[str] | PETSc.Vec, comm: PETSc.Comm
) -> tuple[PETSc.Vec, tuple[str, ...]]:
    if isinstance(parameters, PETSc.Vec):
        return created(parameters, "parameters", "a Vec with a layout").duplicate(), ()
    names: tuple[str, ...] | None = None
    if is_whole(parameters):
        names = numbered_parameters(parameters)
    # of a mapping the values, or shapes, would be lost
    elif is_iterable(parameters) and not isinstance(parameters, (str, Mapping)):
        names = tuple(parameters)
    if names is None or not all(isinstance(name, str) and name for name in names):
        raise InputError(
            f"parameters = {parameters!r}", expected='a number, or names such as ["rate", "size"]'
        )
    _refuse_repeated("parameter names", names)
    # a few parameters are spread over the ranks as PETSc likes; callbacks see all of them
    vec = PETSc.Vec().create(comm=comm)
    vec.setSizes(len(names))
    vec.setType(PETSc.Vec.Type.STANDARD)
    return vec, names
