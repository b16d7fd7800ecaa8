"""The TAO types that ``minimize`` knows: what each can, needs and remembers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from petsc4py import PETSc

from daeosens.errors import UnsupportedError

METHODS: Mapping[str, str] = {
    "lmvm": "limited-memory BFGS",
    "blmvm": "limited-memory BFGS with bounds",
    "bqnls": "quasi-Newton active set with bounds",
    "bncg": "nonlinear conjugate gradients with bounds",
    "nls": "Newton with line search",
    "ntr": "Newton with trust region",
    "bnls": "Newton active set with bounds and line search",
    "bntr": "Newton active set with bounds and trust region",
    "bntl": "Newton active set with bounds, trust region, then line search",
    "brgn": "Gauss-Newton on the residual, with bounds",
}
UNBOUNDED = ("lmvm", "nls", "ntr")
"""PETSc 3.26: TAO types that ignore bounds, with no more than an -info message."""

NEWTON = ("nls", "ntr", "bnls", "bntr", "bntl")
"""They take products with the Hessian.

PETSc 3.26: NTL solves with a quasi-Newton matrix just where it has none, a segmentation fault.
Without bounds BNTL is the same method, and sound.
"""

TRUST_REGION = ("ntr", "bntr", "bntl")
"""They ask for values alone, and for the gradient where they accept a step."""

WITHDRAWN: Mapping[str, str] = {
    "pounders": "PETSc 3.26 writes beyond its arrays (heap corrupted, often a crash); "
    'try: "brgn", which has the derivatives of the residual from the sweeps'
}
"""TAO types that were offered once, and why they are not."""

LEAST_SQUARES = ("brgn",)
FIRST_ORDER = tuple(name for name in METHODS if name not in NEWTON + LEAST_SQUARES)

_Reason = PETSc.TAO.ConvergedReason
REASONS: Mapping[int, tuple[str, str]] = {
    _Reason.CONVERGED_GATOL: ("CONVERGED_GATOL", "gradient norm within gradient_tolerance"),
    _Reason.CONVERGED_GRTOL: ("CONVERGED_GRTOL", "gradient norm within tao_grtol times the value"),
    _Reason.CONVERGED_GTTOL: (
        "CONVERGED_GTTOL",
        "gradient norm within relative_gradient_tolerance times the first one",
    ),
    _Reason.CONVERGED_STEPTOL: ("CONVERGED_STEPTOL", "step shorter than tao_steptol"),
    _Reason.CONVERGED_MINF: ("CONVERGED_MINF", "value below tao_fmin"),
    _Reason.CONVERGED_USER: ("CONVERGED_USER", "value changed by less than value_tolerance"),
    _Reason.DIVERGED_MAXITS: ("DIVERGED_MAXITS", "max_iterations reached"),
    _Reason.DIVERGED_NAN: ("DIVERGED_NAN", "not a number"),
    _Reason.DIVERGED_MAXFCN: ("DIVERGED_MAXFCN", "more than tao_max_funcs evaluations"),
    _Reason.DIVERGED_LS_FAILURE: (
        "DIVERGED_LS_FAILURE",
        "the line search found no acceptable step (rounding, a kink or pole, or a wrong gradient)",
    ),
    _Reason.DIVERGED_TR_REDUCTION: (
        "DIVERGED_TR_REDUCTION",
        "the trust region shrank to nothing (rounding reached, or a wrong gradient or Hessian)",
    ),
    _Reason.DIVERGED_USER: ("DIVERGED_USER", "stopped by the user"),
}

PRODUCTS: Mapping[str, str] = {"exact": "hessian_product", "gauss_newton": "gauss_newton_product"}
"""The ability of the functional behind each choice of ``hessian``."""


def first_order_method(*, bounded: bool) -> str:
    """Return the method where none is named: with first derivatives, and one that keeps bounds."""
    return "bqnls" if bounded else "lmvm"


def bounds_complaints(method: str) -> list[str]:
    """Say that a method would ignore bounds."""
    if method not in UNBOUNDED:
        return []
    alike = "hessian" if method in NEWTON else "first"
    able = [name for name in METHODS if name not in UNBOUNDED + LEAST_SQUARES]
    able = [name for name in able if (name in NEWTON) == (alike == "hessian")]
    return [f'method "{method}" ignores bounds, and there are bounds; try: {listed(able)}']


def check_abilities(functional: object, method: str, hessian: str, *, bounded: bool) -> None:
    """Refuse, before anything expensive, a method that needs what the functional lacks.

    Raises
    ------
    UnsupportedError
        Names the ability, the methods that do without it, and the remedy.
    """
    if method in NEWTON:
        needed = [PRODUCTS[hessian]]
    else:
        needed = ["residual", "residual_jacobian"] if method in LEAST_SQUARES else []
    missing = [name for name in needed if not hasattr(functional, name)]
    if not missing:
        if method in NEWTON and hessian == "exact" and hasattr(functional, "check_second_order"):
            functional.check_second_order()  # type: ignore[attr-defined]
        squares = needed and (method not in NEWTON or hessian == "gauss_newton")
        if squares and hasattr(functional, "check_squares"):
            functional.check_squares()  # type: ignore[attr-defined]
        return
    without = [name for name in FIRST_ORDER if not (bounded and name in UNBOUNDED)]
    remedy = f"method {listed(without)}, which need the gradient only"
    other = "gauss_newton" if hessian == "exact" else "exact"
    if method in NEWTON and hasattr(functional, PRODUCTS[other]):
        remedy += f'; or hessian="{other}"'
    what = f'hessian="{hessian}" of method "{method}"' if method in NEWTON else f'method "{method}"'
    raise UnsupportedError(
        f"{what} needs {' and '.join(missing)}, which {type(functional).__name__} lacks",
        expected=f"a functional with {', '.join(needed)}",
        remedy=remedy,
    )


def listed(words: Iterable[str]) -> str:
    """Quote and join.

    Examples
    --------
    >>> listed(["nls", "ntr"])
    '"nls", "ntr"'
    """
    return ", ".join(f'"{word}"' for word in words)
