"""Right-hand sides and scalars as callbacks of PETSc style: sums of terms over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens.petsc.vectors import Array, summed
from daeosens.problem.grids.finite_elements import FiniteElements
from daeosens.tracing.weak_form.parameters import Fields, Numbers
from daeosens.tracing.weak_form.term import Term, first_entry, time_entry


class Form:
    """The right-hand side as callbacks of PETSc style: sums of terms."""

    def __init__(
        self, space: FiniteElements, parameters: Numbers | Fields, terms: Sequence[Term]
    ) -> None:
        self._space, self._parameters, self._terms = space, parameters, terms

    def create_matrix(self) -> PETSc.Mat:
        """Return a matrix for ``jacobian``."""
        return self._space.create_matrix(*(term.points for term in self._terms))

    def rhs(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` with f [n]."""
        self._collect(t, u, p, out, lambda term, z, numbers: term.values(z, numbers))

    def jacobian(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Mat) -> None:
        """Fill a matrix with f_u [n, n]."""
        numbers, of_fields = self._parameters.split(p)
        at = self._space.coefficients(u)
        blocks = [
            term.element_matrices(term.at(t, at, of_fields), numbers).ravel()
            for term in self._terms
        ]
        entries: Any = np.concatenate(blocks)
        out.setValuesCOO(entries, PETSc.InsertMode.INSERT_VALUES)

    def push_p(self, t: float, u: PETSc.Vec, p: Any, dp: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` with f_p dp [n]."""
        along, of_fields = self._parameters.split(dp)

        def change(term: Term, z: Array, numbers: Array) -> Array:
            by_numbers = term.push_p(z, numbers, along)
            if not of_fields.size:
                return by_numbers
            dz = term.along(None, of_fields)
            return by_numbers + (term.jacobian(z, numbers) @ dz[:, :, None])[:, :, 0]

        self._collect(t, u, p, out, change)

    def pull_p(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, out: PETSc.Vec) -> None:
        """Fill ``out`` with f_p^T w [m]."""
        numbers, of_fields = self._parameters.split(p)
        at, weights = self._space.coefficients(u), self._space.directions(w)
        sums, by_fields = np.zeros(len(numbers)), np.zeros_like(of_fields)
        for term in self._terms:
            z, along = term.at(t, at, of_fields), term.along(weights, None)
            sums += term.pull_p(z, numbers, along)
            if by_fields.size:
                slopes = (along[:, None] @ term.jacobian(z, numbers))[:, 0]
                by_fields += term.collected_fields(slopes)
        self._parameters.joined(sums, by_fields, out)

    def rhs_t(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` with f_t [n]."""
        self._collect(t, u, p, out, lambda term, z, numbers: term.jacobian(z, numbers)[:, :, -1])

    def hessian_product(
        self,
        t: float,
        u: PETSc.Vec,
        p: Any,
        w: PETSc.Vec,
        du: PETSc.Vec,
        dp: Any,
        *out: PETSc.Vec,
    ) -> Any:
        """Give the derivatives of f_u^T w [n] and f_p^T w [m] along (du, dp)."""
        numbers, of_fields = self._parameters.split(dp)
        along = self._space.directions(du)
        by_p, _ = self._second(
            t, u, p, w, lambda term, _z: term.along(along, of_fields), numbers, out
        )
        return by_p

    def hessian_t(self, t: float, u: PETSc.Vec, p: Any, w: PETSc.Vec, *out: PETSc.Vec) -> Any:
        """Give the derivatives of w^T f_t in u [n], p [m] and t."""
        by_p, by_t = self._second(t, u, p, w, lambda _term, z: time_entry(z), None, out)
        return by_t if len(out) > 1 else (by_p, by_t)

    def _collect(
        self,
        t: float,
        u: PETSc.Vec,
        p: Any,
        out: PETSc.Vec,
        values: Callable[[Term, Array, Array], Array],
    ) -> None:
        """Fill ``out`` with Phi^T of values [Q, Z] at the points of all terms."""
        numbers, of_fields = self._parameters.split(p)
        at = self._space.coefficients(u)
        parts = [
            term.collected(values(term, term.at(t, at, of_fields), numbers)) for term in self._terms
        ]
        self._space.add(np.sum(parts, axis=0), out)

    def _second(
        self,
        t: float,
        u: PETSc.Vec,
        p: Any,
        w: PETSc.Vec,
        along: Callable[[Term, Array], Array],
        dp: Array | None,
        out: tuple[PETSc.Vec, ...],
    ) -> tuple[Any, float]:
        """Fill ``out`` with the derivative of f_u^T w, and return those of w^T f_p and w^T f_t."""
        numbers, of_fields = self._parameters.split(p)
        at, weights = self._space.coefficients(u), self._space.directions(w)
        changes = np.zeros(len(numbers)) if dp is None else dp
        return _joined_second(
            self._space,
            self._parameters,
            [
                (term, z, term.along(weights, None), along(term, z))
                for term in self._terms
                for z in [term.at(t, at, of_fields)]
            ],
            (numbers, changes),
            out,
        )


def _joined_second(
    space: FiniteElements,
    parameters: Numbers | Fields,
    terms: Sequence[tuple[Term, Array, Array, Array]],
    numbers: tuple[Array, Array],
    out: tuple[PETSc.Vec, ...],
) -> tuple[Any, float]:
    """Add up second derivatives of terms at z, with weights and along dz; numbers are p and dp."""
    p, dp = numbers
    by_u: Any = 0.0
    by_fields: Any = 0.0
    sums = np.zeros(len(p) + 1)
    for term, z, weights, dz in terms:
        by_z, by_p = term.second(z, p, weights, dz, dp)
        by_u = by_u + term.collected(by_z)
        by_fields = by_fields + term.collected_fields(by_z)
        sums += np.append(by_p, by_z[:, -1].sum())
    space.add(by_u, out[0])
    by_t = float(summed(sums[-1], space.comm))
    return parameters.joined(sums[:-1], by_fields, out[1] if len(out) > 1 else None), by_t  # type: ignore[arg-type]


class Integral:
    """A scalar over the domain as callbacks of PETSc style."""

    def __init__(self, space: FiniteElements, parameters: Numbers | Fields, term: Term) -> None:
        self._space, self._parameters, self._term = space, parameters, term
        self.derivatives: dict[str, Any] = {
            "gradient_u": self.gradient_u,
            "gradient_p": self.gradient_p,
            "hessian_product": self.hessian_product,
            "hessian_t": self.hessian_t,
        }

    def value(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return the integral."""
        z, numbers = self._at(t, u, p)
        return float(summed(self._term.values(z, numbers)[:, 0].sum(), self._space.comm))

    def gradient_u(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec) -> None:
        """Fill ``out`` with its gradient in u [n]."""
        slopes = self._term.jacobian(*self._at(t, u, p))[:, 0]
        self._space.add(self._term.collected(slopes), out)

    def gradient_p(self, t: float, u: PETSc.Vec, p: Any, out: PETSc.Vec | None = None) -> Any:
        """Give its gradient in p [m]."""
        z, numbers = self._at(t, u, p)
        sums = self._term.pull_p(z, numbers, first_entry(z))
        by_fields = self._term.collected_fields(self._term.jacobian(z, numbers)[:, 0])
        return self._parameters.joined(sums, by_fields, out)  # type: ignore[arg-type]

    def value_t(self, t: float, u: PETSc.Vec, p: Any) -> float:
        """Return its derivative in t."""
        slopes = self._term.jacobian(*self._at(t, u, p))[:, 0, -1]
        return float(summed(slopes.sum(), self._space.comm))

    def hessian_product(
        self, t: float, u: PETSc.Vec, p: Any, du: PETSc.Vec, dp: Any, *out: PETSc.Vec
    ) -> Any:
        """Give the derivatives of both gradients along (du, dp)."""
        changes, of_fields = self._parameters.split(dp)
        along = self._term.along(self._space.directions(du), of_fields)
        return self._second(t, u, p, along, changes, out)[0]

    def hessian_t(self, t: float, u: PETSc.Vec, p: Any, *out: PETSc.Vec) -> Any:
        """Give the derivatives of ``value_t`` in u [n], p [m] and t."""
        z, numbers = self._at(t, u, p)
        by_p, by_t = self._second(t, u, p, time_entry(z), np.zeros(len(numbers)), out)
        return by_t if len(out) > 1 else (by_p, by_t)

    def _at(self, t: float, u: PETSc.Vec, p: Any) -> tuple[Array, Array]:
        """Return z [Q, Z] and the numbers among the parameters."""
        numbers, of_fields = self._parameters.split(p)
        return self._term.at(t, self._space.coefficients(u), of_fields), numbers

    def _second(
        self, t: float, u: PETSc.Vec, p: Any, dz: Array, dp: Array, out: tuple[PETSc.Vec, ...]
    ) -> tuple[Any, float]:
        z, numbers = self._at(t, u, p)
        terms = [(self._term, z, first_entry(z), dz)]
        return _joined_second(self._space, self._parameters, terms, (numbers, dp), out)
