"""The names of PETSc's options: which exist, which are read late, which a wrong one may mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from daeosens.errors import nearest

NESTED = re.compile(
    r"(mg|fas)_(levels|coarse|fine)_|(sub|fieldsplit|npc|inner|esteig|redundant|redistribute"
    r"|telescope|galerkin|exotic|deflation|hmg_inner|fetidp|lsc|schur|callbacks|misfit"
    r"|pc_bddc|pc_gamg|pc_lmvm|mat_lmvm_j0)_|ksp_(?=ksp_|pc_)|tao_\w+?_(?=ksp_|pc_|mat_|tao_)"
)
"""Prefixes of the solvers inside solvers, which PETSc makes at set-up or at the first solve."""

EXTERNAL = re.compile(
    r"(pc_(hypre|ml|spai|parms|hpddm|amgx)|ksp_hpddm"
    r"|mat_(mumps|superlu|superlu_dist|umfpack|cholmod|klu|spqr|pastix|strumpack|mkl_\w+))_"
)
"""Options of packages that the PETSc of PyPI is built without: not in the list of known names."""

RESERVED: Mapping[str, str] = {
    "ts_init_time": "t_span",
    "ts_exact_final_time": "t_span",
    "ts_time_span": "t_eval",
    "ts_eval_times": "t_eval",
    "ts_dt": "dt",
}
"""PETSc options that would contradict a field of ``Stepping``, or an argument of ``solve``, in
silence (``ts_dt`` is an old name)."""

LATE = re.compile(
    r"(pc|mat|vec|is|sf|viewer)_|\w+_view(_|$)"
    r"|snes_(adapt|compare|test|convergence)_|ts_(adjoint|convergence)_|tao_test_"
)
"""Options that PETSc 3.26 may read only during the solve."""


@cache
def known_options() -> Mapping[str, str]:
    """Return the names of PETSc's options, without dash and prefix, by lower-case name.

    PETSc ignores the case.  The list is made by ``scripts/petsc-options``.
    """
    names = resources.files("daeosens.petsc").joinpath("options.txt").read_text("ascii").split()
    return {name.lower(): name for name in names}


def is_known(name: str) -> bool:
    """Whether PETSc has this option, or has it for an inner solver named in front of it.

    Examples
    --------
    >>> [is_known(name) for name in ("ts_rtol", "ts_rtoll", "mg_levels_1_pc_type", "u_pc_type")]
    [True, False, True, False]
    """
    parts = name.lower().split("_")
    n_tails = len(parts) - 1 if NESTED.match(name.lower()) else 1
    # A name behind any prefix: every tail is tried where the beginning is that of an inner
    # solver.
    tails = ("_".join(parts[start:]) for start in range(n_tails))
    return any(tail in known_options() or EXTERNAL.match(tail) is not None for tail in tails)


def is_late(name: str) -> bool:
    """Whether PETSc has this option, but may read it only during the solve.

    Examples
    --------
    >>> [is_late(name) for name in ("ts_view", "ts_rtol", "sub_pc_type", "sub_pc_tpye")]
    [True, False, True, False]
    """
    late = any(pattern.match(name.lower()) for pattern in (NESTED, LATE))
    return late and is_known(name)


def split_prefix(name: str, prefixes: Sequence[str]) -> tuple[str, str]:
    """Split a name into the longest of the prefixes that it begins with, if any, and the rest.

    Examples
    --------
    >>> split_prefix("slow_ts_rtol", ["slow_", "fast_"])
    ('slow_', 'ts_rtol')
    """
    own = max((p for p in prefixes if name.lower().startswith(p.lower())), key=len, default="")
    return name[: len(own)], name[len(own) :]


def advice(prefix: str, name: str) -> str:
    """Say what may be wrong with an option ``prefix + name`` that nothing reads.

    Examples
    --------
    >>> advice("slow_", "ts_rtoll")
    'did you mean "slow_ts_rtol"?'
    """
    if is_known(name):
        return "PETSc has it, but not for the methods and types chosen here"
    lower = name.lower()
    inner = NESTED.match(lower)
    fronts = [prefix, prefix + inner.group()] if inner else [prefix]
    known = (front + option for front in fronts for option in known_options().values())
    guess = nearest(prefix + lower, known)
    field = RESERVED.get(guess.strip('"').removeprefix(prefix).lower())
    if field is not None:
        where = "solve" if field == "t_eval" else "Stepping"
        return f"did you mean {where}(..., {field}=...)?"
    return f"did you mean {guess}?" if guess else "PETSc has none of a similar name"
