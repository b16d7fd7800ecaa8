"""Problems and steps for the methods that daeosens is compared with."""

import numpy as np
from forms import NAMES, T_END, rhs, rhs_p, rhs_u
from petsc4py import PETSc

from daeosens import ODE, LeastSquares, Running, Stepping, Terminal
from daeosens.petsc import read, write
from daeosens.problem import Products

PRODUCTS = ODE(
    rhs,
    3,
    NAMES,
    jacobian=Products(
        lambda t, u, p, v: rhs_u(t, u, p) @ v, lambda t, u, p, w: rhs_u(t, u, p).T @ w
    ),
    jacobian_p=Products(
        lambda t, u, p, v: rhs_p(t, u, p) @ v, lambda t, u, p, w: rhs_p(t, u, p).T @ w
    ),
)


def stepping(method, dt, end=T_END):
    return Stepping((0.0, end), method, dt=dt)


def orders(errors):
    return np.log2(np.array(errors[:-1]) / errors[1:])


class Ring:
    """u_i' = d (u_{i-1} - 2 u_i + u_{i+1}) - r u_i^2 + cos(t) u_i on a ring, in PETSc style."""

    def __init__(self, *, products=False, field=False, n=11, kind=None):
        self.field = field
        self.grid = PETSc.DMDA().create(
            [n], dof=1, stencil_width=1, boundary_type="periodic", comm=PETSc.COMM_WORLD
        )
        self.local = self.grid.createLocalVec()
        self.u0 = self.grid.createGlobalVec()
        start, end = self.u0.getOwnershipRange()
        self.here = np.arange(start, end)
        write(self.u0, 1 + 0.5 * np.sin(self.here))
        self.p = np.array([0.7, 0.2])
        if field:
            self.p = self.grid.createGlobalVec()
            write(self.p, 0.3 + 0.1 * np.cos(self.here))
        by_u = Products(self.apply_u, self.apply_u) if products else self.fill_u
        by_p = Products(self.apply_p, self.apply_p) if field else self.fill_p
        template = None
        if kind is not None:
            template = self.grid.createMat().convert(kind, PETSc.Mat())
        self.problem = ODE(
            self.rhs,
            state=self.grid,
            parameters=self.p if field else 2,
            jacobian=by_u,
            jacobian_p=by_p,
            jacobian_matrix=template,
        )

    def rates(self, p):
        return (0.7, read(p)) if self.field else p

    def neighbours(self, v):
        self.grid.globalToLocal(v, self.local)
        values = read(self.local)
        return values[:-2] + values[2:]

    def rhs(self, t, u, p, out):
        d, r = self.rates(p)
        values = read(u)
        write(out, d * (self.neighbours(u) - 2 * values) - r * values**2 + np.cos(t) * values)

    def fill_u(self, t, u, p, out):
        d, r = self.rates(p)
        n, diagonal = u.size, -2 * d - 2 * r * read(u) + np.cos(t)
        out.zeroEntries()
        for i, value in zip(self.here, diagonal, strict=True):
            for column, entry in (((i - 1) % n, d), (i, value), ((i + 1) % n, d)):
                out.setValue(i, column, entry)
        out.assemble()

    def apply_u(self, t, u, p, v, out):
        d, r = self.rates(p)
        diagonal = -2 * d - 2 * r * read(u) + np.cos(t)
        write(out, d * self.neighbours(v) + diagonal * read(v))

    def fill_p(self, t, u, p, out):
        values = read(u)
        out.getDenseArray()[...] = np.column_stack([self.neighbours(u) - 2 * values, -(values**2)])
        out.assemble()

    def apply_p(self, t, u, p, v, out):
        write(out, -(read(u) ** 2) * read(v))

    def cost(self):
        """Half the squared final state, a misfit on the way, and a running cost."""

        def half(t, u, p):
            return 0.5 * u.dot(u)

        def gradient(t, u, p, out):
            u.copy(out)

        data = self.u0.duplicate()
        data.set(0.9)
        observed = LeastSquares([0.25], [data], 0.5)
        return (
            Terminal(half, gradient, "independent")
            + observed
            + Running(half, gradient, "independent")
        )


RINGS = [{}, {"products": True}, {"field": True}]
