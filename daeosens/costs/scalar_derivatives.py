"""What derivatives a scalar of (t, u, p) has: those supplied, automatic ones, or their refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from daeosens.errors import InputError, UnsupportedError
from daeosens.petsc.vectors import Array
from daeosens.problem.automatic_derivatives import AutomaticJacobian, ignores
from daeosens.problem.automatic_hessian import AutomaticHessian, in_time
from daeosens.problem.c_callback import Compiled, Role, Roles
from daeosens.problem.callback_guard import guarded
from daeosens.problem.problem import AUTONOMOUS, INDEPENDENT, Problem


@dataclass(frozen=True)
class Keywords:
    """What a scalar is to the user, and what its derivatives are called where they are given.

    ``value`` is empty where the scalar goes by its title alone.
    """

    kind: str = "cost"
    value: str = ""
    u: str = "gradient_u"
    p: str = "gradient_p"
    t: str = "value_t"
    hessian: str = "hessian_product"
    hessian_t: str = "hessian_t"


COST = Keywords()


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of a scalar as the user gave them: callbacks, words, or None."""

    u: Callable[..., Any] | str | None = None
    p: Callable[..., Any] | str | None = None
    t: Callable[..., Any] | str | None = None
    hessian: Callable[..., Any] | None = None
    hessian_t: Callable[..., Any] | str | None = None


def named(title: str, keyword: str) -> str:
    """Return what a callback is called in messages."""
    return f"{title} {keyword}" if keyword else title


@dataclass(frozen=True)
class ScalarDerivatives:
    """Derivatives of a scalar as callbacks; what is missing is automatic, or a refusal.

    Attributes
    ----------
    problem : Problem
    title : str
        Whose callbacks these are: the name of each is this and its keyword.
    function, value : callable
        The scalar as it was given, and guarded.
    supplied : Derivatives
        What the user supplied, and what is known to be zero.
    keywords : Keywords
    """

    problem: Problem
    title: str
    function: Callable[..., Any]
    value: Callable[..., Any]
    supplied: Derivatives
    keywords: Keywords

    @property
    def numpy(self) -> bool:
        """Whether callbacks see arrays."""
        return self.problem.style == "numpy"

    @property
    def automatic(self) -> bool:
        """Whether derivatives can be propagated through the function.

        They need Python code on arrays: neither PETSc vectors nor C can be seen through.
        """
        return self.numpy and not isinstance(self.function, Compiled)

    @property
    def name(self) -> str:
        """What the scalar is called in messages."""
        return named(self.title, self.keywords.value)

    def first(self, position: int) -> Callable[..., Any] | None:
        """Return the derivative in t, u or p (0, 1, 2); None if it is zero."""
        kind = "tup"[position]
        derivative, keyword = getattr(self.supplied, kind), getattr(self.keywords, kind)
        name = named(self.title, keyword)
        if _is_zero(derivative):
            return None
        if callable(derivative):
            return guarded(derivative, name, self.problem.comm)
        word = INDEPENDENT if position else AUTONOMOUS
        if derivative is not None:
            raise InputError(f"{name} = {derivative!r}", expected=f'a callback or "{word}"')
        if self.automatic:
            step = AutomaticJacobian(self.function, position, self.name, f"{keyword}=callback")
            # A scalar is an observation of one row: its Jacobian [1, n] without the first axis.
            if position:
                return lambda *point: step(*point)[0]
            return lambda *point: step(*point)[0, 0]
        return _refusing(name, f'{keyword}=callback, or "{word}"')

    def second(self) -> Callable[..., Any] | None:
        """Return the user's second derivatives, automatic ones, or their refusal."""
        keyword = self.keywords.hessian
        name = named(self.title, keyword)
        if self.supplied.hessian is not None:
            return guarded(self.supplied.hessian, name, self.problem.comm)
        gradients = {1: self.supplied.u, 2: self.supplied.p}
        # A gradient that is zero by declaration has no second derivatives, mixed ones included.
        wanted = {k: gradient for k, gradient in gradients.items() if gradient != INDEPENDENT}
        if not wanted:
            return None
        # Gradients that the user gave in Python are differentiated once; where they are missing
        # the value is, twice.
        first = {
            k: _row(gradient) if _in_python(gradient) else None for k, gradient in wanted.items()
        }
        if not self.automatic and (not self.numpy or None in first.values()):
            return _refusing(name, f"{keyword}=callback{_NOT_AUTOMATIC}", "gradients only")
        product = AutomaticHessian(self.value, first, self.name, f"{keyword}=callback")
        nothing = (np.zeros(self.problem.size), np.zeros(self.problem.n_parameters))

        def call(t: float, u: Array, p: Any, du: Array, dp: Any) -> tuple[Array, Array]:
            directions = {1: du, 2: dp}
            result = product((t, u, p), np.ones(1), {k: directions[k] for k in wanted})
            return result.get(1, nothing[0]), result.get(2, nothing[1])

        return call

    def second_in_time(self) -> Callable[..., Any] | None:
        """Return the derivatives of ``value_t``, like ``second``."""
        keyword = self.keywords.hessian_t
        name = named(self.title, keyword)
        user = self.supplied.hessian_t
        if isinstance(user, str) and user != INDEPENDENT:
            raise InputError(f"{name} = {user!r}", expected=f'a callback or "{INDEPENDENT}"')
        if user is not None and not isinstance(user, str):
            user = guarded(user, name, self.problem.comm)
        # value_t is zero or a constant: nothing to differentiate.
        if _is_zero(self.supplied.t) or isinstance(user, str):
            return None
        if user is not None:
            return user
        gradients: dict[int, Any] = {0: self.supplied.t, 1: self.supplied.u, 2: self.supplied.p}
        wanted = {k: gradient for k, gradient in gradients.items() if gradient != INDEPENDENT}
        first: dict[int, Any] = {
            k: (_row(gradient) if k else gradient) if _in_python(gradient) else None
            for k, gradient in wanted.items()
        }
        if not self.automatic and (not self.numpy or None in first.values()):
            other = f' or {self.keywords.t}="{AUTONOMOUS}"'
            return _refusing(name, f"{keyword}=callback{other}{_NOT_AUTOMATIC}", "gradients only")
        product = in_time(self.value, first, self.name, f"{keyword}=callback")
        nothing = (np.zeros(self.problem.size), np.zeros(self.problem.n_parameters))

        def call(t: float, u: Array, p: Any) -> tuple[Array, Array, float]:
            # Along t: (psi_ut, psi_pt, psi_tt).
            result = product((t, u, p), np.ones(1), {0: np.ones(1)})
            by_u, by_p = result.get(1, nothing[0]), result.get(2, nothing[1])
            return by_u, by_p, float(result[0][0])

        return call


_NOT_AUTOMATIC = (
    ": second derivatives of PETSc-style and compiled callbacks cannot be found automatically"
)


def with_natives(
    problem: Problem, title: str, value: Any, supplied: Derivatives, keywords: Keywords
) -> tuple[Any, Derivatives]:
    """Return the callbacks with C functions made callable."""
    roles = Roles(
        problem.size, problem.n_parameters, weighted=False, numpy=problem.style == "numpy"
    )

    def admit(role: Role, callback: Any, keyword: str) -> Any:
        if callback is None or isinstance(callback, str):
            return callback
        return roles.admit(role, callback, f"{title} {keyword}".strip())

    function = admit("number", value, keywords.value)
    if not callable(function):
        raise InputError(f"{title} = {value!r}", expected="a function (t, u, p) -> float")
    return function, Derivatives(
        admit("slope_u", supplied.u, keywords.u),
        admit("slope_p", supplied.p, keywords.p),
        admit("number", supplied.t, keywords.t),
        admit("hessian", supplied.hessian, keywords.hessian),
        admit("hessian_t", supplied.hessian_t, keywords.hessian_t),
    )


def _is_zero(derivative: object) -> bool:
    """Whether a derivative is zero by declaration."""
    return isinstance(derivative, str) and derivative in (INDEPENDENT, AUTONOMOUS)


def _in_python(derivative: object) -> TypeGuard[Callable[..., Any]]:
    """Whether a derivative is a callback that can be differentiated."""
    return callable(derivative) and not isinstance(derivative, Compiled)


def with_known(supplied: Derivatives, value: Callable[..., Any]) -> Derivatives:
    """Say of missing derivatives which are zero, because the function never reads the argument."""
    words = {"t": AUTONOMOUS, "u": INDEPENDENT, "p": INDEPENDENT}
    known = {
        name: word
        for position, (name, word) in enumerate(words.items())
        if getattr(supplied, name) is None and ignores(value, position)
    }
    return replace(supplied, **known) if known else supplied


def _row(gradient: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *point: np.reshape(gradient(*point), (1, -1))


def _refusing(name: str, expected: str, enough: str = "") -> Callable[..., Any]:
    def refuse(*_arguments: Any) -> Any:
        raise UnsupportedError(
            f"'{name}' is needed and was not supplied",
            expected=expected,
            remedy=f"{name.rsplit(maxsplit=1)[-1]}=..., or a method that needs {enough}"
            if enough
            else "",
        )

    return refuse
