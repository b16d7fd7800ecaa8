"""A problem on any number of ranks: reaction, diffusion and advection on a ring, in every style.

u_t = a u_xx - 0.5 u_x + r u (1 - u) + cos(t) s(x),  periodic on [0, 1), central differences.

The parameters are the numbers (a, r), or the field r(x) with a = 0.02.  The values of neighbours on
other ranks come from a DMDA's ghost points or, for a plain vector, from messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import DAE, ODE, LeastSquares, Prior, Running, Terminal
from daeosens.costs.objective import Objective
from daeosens.problem import Problem, Products

N = 24
A, R = 0.02, 1.5
ADVECTION = 0.5


def positions(vec: PETSc.Vec) -> np.ndarray:
    """Return where the rank's own points are."""
    start, end = vec.getOwnershipRange()
    return np.arange(start, end) / N


def local(vec: PETSc.Vec) -> np.ndarray:
    return vec.getArray(readonly=True)


@dataclass(frozen=True)
class Ring:
    """The grid on a communicator, with or without a DMDA."""

    comm: Any
    dm: PETSc.DM | None
    template: PETSc.Vec

    def vec(self, function: Callable[[np.ndarray], Any]) -> PETSc.Vec:
        """Return function(x) as a vector."""
        vec = self.template.duplicate()
        vec.setArray(function(positions(vec)))
        return vec

    def with_ghosts(self, vec: PETSc.Vec) -> np.ndarray:
        """Return the rank's own values with one neighbour on either side.  Collective."""
        if self.dm is not None:
            work = self.dm.getLocalVec()
            self.dm.globalToLocal(vec, work)
            values = work.getArray().copy()
            self.dm.restoreLocalVec(work)
            return values
        comm, own = vec.comm.tompi4py(), local(vec)
        before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        right = comm.sendrecv(own[0], dest=before, source=after)
        left = comm.sendrecv(own[-1], dest=after, source=before)
        return np.array([left, *own, right])

    def second(self, values: np.ndarray) -> np.ndarray:
        return (values[:-2] - 2 * values[1:-1] + values[2:]) * N**2

    def first(self, values: np.ndarray) -> np.ndarray:
        return (values[2:] - values[:-2]) * (N / 2)


def make_ring(comm: Any, *, dm: bool) -> Ring:
    """Lay the ring out over the ranks of a communicator."""
    if dm:
        grid = PETSc.DMDA().create(
            [N], dof=1, stencil_width=1, boundary_type=("periodic",), comm=comm
        )
        return Ring(comm, grid, grid.createGlobalVec())
    return Ring(comm, None, PETSc.Vec().createMPI(N, comm=comm))


@dataclass(frozen=True)
class Model:
    """The callbacks, which only read their arguments; a and r as callbacks see them."""

    ring: Ring
    field: bool

    def coefficients(self, p: Any) -> tuple[Any, Any]:
        return (A, local(p)) if self.field else (p[0], p[1])

    def rhs(self, t, u, p, out):
        a, r = self.coefficients(p)
        values, own = self.ring.with_ghosts(u), local(u)
        source = np.cos(t) * np.sin(2 * np.pi * positions(u))
        out.setArray(
            a * self.ring.second(values)
            - ADVECTION * self.ring.first(values)
            + r * own * (1 - own)
            + source
        )

    def rhs_t(self, t, u, p, out):
        out.setArray(-np.sin(t) * np.sin(2 * np.pi * positions(u)))

    def stencil(self, u, p):
        a, r = self.coefficients(p)
        diagonal = -2 * a * N**2 + r * (1 - 2 * local(u))
        return a * N**2 + ADVECTION * N / 2, diagonal, a * N**2 - ADVECTION * N / 2

    def jacobian(self, t, u, p, out):
        left, diagonal, right = self.stencil(u, p)
        start, end = u.getOwnershipRange()
        for i, here in zip(range(start, end), diagonal, strict=True):
            out.setValues([i], [(i - 1) % N, i, (i + 1) % N], [left, here, right])
        out.assemble()

    def apply(self, t, u, p, v, out):
        left, diagonal, right = self.stencil(u, p)
        values = self.ring.with_ghosts(v)
        out.setArray(left * values[:-2] + diagonal * values[1:-1] + right * values[2:])

    def apply_transpose(self, t, u, p, w, out):
        left, diagonal, right = self.stencil(u, p)
        values = self.ring.with_ghosts(w)
        out.setArray(right * values[:-2] + diagonal * values[1:-1] + left * values[2:])

    def columns(self, u):
        """Return df/d(a, r) for numbers, the diagonal of df/dr for a field."""
        own = local(u)
        if self.field:
            return own * (1 - own)
        return np.column_stack([self.ring.second(self.ring.with_ghosts(u)), own * (1 - own)])

    def jacobian_p(self, t, u, p, out):
        columns = self.columns(u)
        if not self.field:
            out.getDenseArray()[...] = columns
        else:
            start, end = u.getOwnershipRange()
            out.zeroEntries()
            for i, value in zip(range(start, end), columns, strict=True):
                out.setValue(i, i, value)
        out.assemble()

    def apply_p(self, t, u, p, v, out):
        columns = self.columns(u)
        if self.field:
            out.setArray(columns * local(v))
        else:
            parts = v.comm.tompi4py().allgather(local(v))
            out.setArray(columns @ np.concatenate(parts))

    def apply_p_transpose(self, t, u, p, w, out):
        columns = self.columns(u)
        if self.field:
            out.setArray(columns * local(w))
        else:
            sums = w.comm.tompi4py().allreduce(columns.T @ local(w))
            start, end = out.getOwnershipRange()
            out.setArray(sums[start:end])

    def hessian_product(self, t, u, p, w, du, dp, out, *out_p):
        _a, r = self.coefficients(p)
        da, dr = (0.0, local(dp)) if self.field else (dp[0], dp[1])
        slope, bend = 1 - 2 * local(u), -2 * local(du)
        out.setArray(
            da * self.ring.second(self.ring.with_ghosts(w)) + (dr * slope + r * bend) * local(w)
        )
        change = slope * local(du)
        if self.field:
            out_p[0].setArray(change * local(w))
            return None
        columns = np.column_stack([self.ring.second(self.ring.with_ghosts(du)), change])
        return u.comm.tompi4py().allreduce(columns.T @ local(w))

    def mass_hessian(self, v, p, w, dv, dp, out):
        out.setArray(dp[0] * _mass_product(self.ring, w))
        change = v.comm.tompi4py().allreduce(local(w) @ _mass_product(self.ring, dv))
        return np.array([change, 0.0])


@dataclass(frozen=True)
class Distributed:
    """A lowered problem with its starting values."""

    problem: Problem
    ring: Ring
    u0: PETSc.Vec
    p: Any

    def direction(self) -> tuple[PETSc.Vec, Any]:
        """Return a direction in u0 and in p, the same for every number of ranks."""
        du = self.ring.vec(lambda x: np.cos(3 + 40 * x))
        if self.problem.field_parameter:
            return du, self.ring.vec(lambda x: np.sin(1 + 30 * x))
        return du, np.array([0.01, 0.4])


def make(comm: Any, style: str = "dmda", *, field: bool = False, form: str = "rhs") -> Distributed:
    """Build the problem.

    Parameters
    ----------
    comm : PETSc.Comm
        Where it lives.
    style : "dmda", "vec", "dense" or "products"
        A DM with its matrix; a plain vector with a sparse matrix, or with none given; matrix-free.
    field : bool
        The parameter is r(x).
    form : "rhs", "M", "M(p)" or "F"
        M is the tridiagonal mass matrix of linear elements (times 1 + a for "M(p)"); "F" the same
        as a residual.
    """
    ring = make_ring(comm, dm=style in ("dmda", "products"))
    model = Model(ring, field)
    derivatives: dict[str, Any] = {
        "jacobian": model.jacobian,
        "jacobian_p": model.jacobian_p,
        "rhs_t": model.rhs_t,
        "hessian_product": model.hessian_product,
    }
    if style == "products":
        derivatives["jacobian"] = Products(model.apply, model.apply_transpose)
        derivatives["jacobian_p"] = Products(model.apply_p, model.apply_p_transpose)
    if style == "vec":
        derivatives["jacobian_matrix"] = sparse_matrix(ring)
    parameters: Any = ring.template if field else ["a", "r"]
    state: Any = ring.template if ring.dm is None else ring.dm
    if form == "F":
        problem = DAE(**_as_residual(model, derivatives), state=state, parameters=parameters)
    else:
        mass: dict[str, Any] = {}
        if form == "M":
            mass = {"mass": filled_mass(ring)}
        if form == "M(p)":
            mass = {
                "mass": _mass_callback(model),
                "mass_p": _mass_p_callback(model),
                "mass_hessian": model.mass_hessian,
            }
        problem = ODE(model.rhs, state=state, parameters=parameters, **derivatives, **mass)
    u0 = ring.vec(lambda x: 0.5 + 0.3 * np.sin(2 * np.pi * x) + 0.1 * np.cos(6 * np.pi * x))
    p = ring.vec(lambda x: R + 0.5 * np.sin(4 * np.pi * x)) if field else np.array([A, R])
    return Distributed(problem, ring, u0, p)


def sparse_matrix(ring: Ring) -> PETSc.Mat:
    """Return a sparse matrix of zeros with the pattern of the stencil."""
    if ring.dm is not None:
        return ring.dm.createMat()
    sizes = ring.template.getSizes()
    matrix = PETSc.Mat().createAIJ((sizes, sizes), nnz=(3, 3), comm=ring.comm)
    matrix.setUp()
    start, end = ring.template.getOwnershipRange()
    for i in range(start, end):
        matrix.setValues([i], [(i - 1) % N, i, (i + 1) % N], [0.0, 0.0, 0.0])
    matrix.assemble()
    return matrix


def _fill_mass(factor: float, out: PETSc.Mat) -> None:
    start, end = out.getOwnershipRange()
    for i in range(start, end):
        row = np.array([1, 4, 1]) / 6 * factor
        out.setValues([i], [(i - 1) % N, i, (i + 1) % N], row)
    out.assemble()


def filled_mass(ring: Ring) -> PETSc.Mat:
    matrix = sparse_matrix(ring)
    _fill_mass(1.0, matrix)
    return matrix


def _mass_product(ring: Ring, v: PETSc.Vec) -> np.ndarray:
    values = ring.with_ghosts(v)
    return (values[:-2] + 4 * values[1:-1] + values[2:]) / 6


def _mass_callback(model: Model):
    return lambda p, out: _fill_mass(1 + p[0], out)


def _mass_p_callback(model: Model):
    def fill(p, v, out):
        product = _mass_product(model.ring, v)
        out.getDenseArray()[...] = np.column_stack([product, 0 * product])
        out.assemble()

    return fill


def _as_residual(model: Model, derivatives: dict[str, Any]) -> dict[str, Any]:
    """Write M u' - f with M(p) = (1 + a) M as a residual."""
    mass_p = _mass_p_callback(model)

    def residual(t, u, udot, p, out):
        model.rhs(t, u, p, out)
        out.setArray((1 + p[0]) * _mass_product(model.ring, udot) - local(out))

    def by_u(t, u, udot, p, out):
        model.jacobian(t, u, p, out)
        out.scale(-1.0)

    def by_p(t, u, udot, p, out):
        mass_p(p, udot, out)
        out.getDenseArray()[...] -= model.columns(u)
        out.assemble()

    def by_t(t, u, udot, p, out):
        model.rhs_t(t, u, p, out)
        out.scale(-1.0)

    def hessian(t, u, udot, p, w, du, dudot, dp, out_u, out_udot):
        by_p = model.hessian_product(t, u, p, w, du, dp, out_u)
        out_u.scale(-1.0)
        return model.mass_hessian(udot, p, w, dudot, dp, out_udot) - by_p

    return {
        "residual": residual,
        "hessian_product": hessian,
        "jacobian": by_u,
        "jacobian_udot": lambda t, u, udot, p, out: _fill_mass(1 + p[0], out),
        "jacobian_p": by_p,
        "residual_t": by_t,
        **{key: derivatives[key] for key in derivatives if key == "jacobian_matrix"},
    }


def make_cost(
    case: Distributed, times: tuple[float, ...] = (0.06, 0.13), *, squares: bool = False
) -> Objective:
    """Return a sum of all kinds of cost (of sums of squares): the same for any number of ranks."""
    ring, field = case.ring, case.problem.field_parameter

    def terminal(t, u, p):
        return 0.5 * u.dot(u) + (p.sum() if field else p[0] * p[1])

    def terminal_p(t, u, p, *out):
        if field:
            out[0].set(1.0)
            return None
        return np.array([p[1], p[0]])

    def terminal_hessian(t, u, p, du, dp, out, *out_p):
        du.copy(out)
        if field:
            out_p[0].zeroEntries()
            return None
        return np.array([dp[1], dp[0]])

    def density_hessian(t, u, p, du, dp, out, *out_p):
        out.zeroEntries()
        if field:
            dp.copy(out_p[0])
            return None
        return np.array([0.0, 2 * dp[1]])

    def density(t, u, p):
        return (1 + t) * u.sum() + (0.5 * p.dot(p) if field else p[1] ** 2)

    def density_p(t, u, p, *out):
        if field:
            p.copy(out[0])
            return None
        return np.array([0.0, 2 * p[1]])

    data = [ring.vec(lambda x, t=t: 0.4 + 0.1 * np.sin(2 * np.pi * x + t)) for t in times]
    prior = Prior(ring.vec(lambda x: R + 0 * x), 2.0) if field else Prior([R], 0.3, names=["r"])
    misfits = (
        LeastSquares(times, data, sigma=0.5)
        + LeastSquares(times[:1], [averages(ring, data[0])], sigma=0.2, observe=averaging(ring))
        + prior
    )
    if squares:
        return misfits
    return (
        Terminal(terminal, lambda t, u, p, out: u.copy(out), terminal_p, terminal_hessian)
        + 0.7
        * Running(
            density,
            lambda t, u, p, out: out.set(1 + t),
            density_p,
            hessian_product=density_hessian,
        )
        + misfits
    )


def averaging(ring: Ring) -> PETSc.Mat:
    """Return the Mat [N/2, N] that averages neighbouring points."""
    rows = PETSc.Vec().createMPI(N // 2, comm=ring.comm)
    matrix = PETSc.Mat().createAIJ(
        (rows.getSizes(), ring.template.getSizes()), nnz=(2, 2), comm=ring.comm
    )
    start, end = rows.getOwnershipRange()
    for i in range(start, end):
        matrix.setValues([i], [2 * i, 2 * i + 1], [0.5, 0.5])
    matrix.assemble()
    return matrix


def averages(ring: Ring, vec: PETSc.Vec) -> PETSc.Vec:
    matrix = averaging(ring)
    result = matrix.createVecLeft()
    matrix.mult(vec, result)
    return result
