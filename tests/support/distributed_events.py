"""A hybrid problem on any number of ranks: a room that a heater keeps between two temperatures.

u_t = u_xx/40 + [on] a (1 + 0.3 sin 2t) s(x) - c u^2 on N points, insulated ends.  The heater goes
off where the temperature v at a sensor rises to (b + d) m(t), and on where it falls to b m(t), with
m(t) = 1 + 0.05 sin t and v = u + u^2/10; each time it comes on it has lost some of its power a.  At
the time w, a parameter, a window is opened for a moment.  All callbacks are PETSc style, with every
derivative of both orders.

The parameters are the numbers (a, b, d, c, w), or the field s(x).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from petsc4py import PETSc

from daeosens import ODE, Event, LeastSquares, Running, Terminal, hybrid
from daeosens.costs import AtEvent, EventTime
from daeosens.costs.objective import Objective
from daeosens.problem import INDEPENDENT, Problem, Products

N = 14
NAMES = ("power", "low", "gap", "loss", "window")
P0 = np.array([4.0, 1.0, 0.35, 0.6, 1.27])
SENSOR = 8
OBSERVED = (0.5, 1.7)


@dataclass(frozen=True)
class Room:
    """The grid on a communicator, and what is evaluated there."""

    comm: Any
    template: PETSc.Vec
    field: bool

    @property
    def x(self) -> np.ndarray:
        """Where the rank's own points are."""
        return np.arange(*self.template.getOwnershipRange()) / N

    def vec(self, values: Any) -> PETSc.Vec:
        """Return a vector with the rank's own values."""
        vec = self.template.duplicate()
        vec.setArray(values)
        return vec

    def total(self, values: Any) -> Any:
        """Return the sum over the points of all ranks, of the rank's own rows."""
        return self.comm.tompi4py().allreduce(np.sum(values, axis=0))

    def at_sensor(self, u: PETSc.Vec) -> float:
        first, last = u.getOwnershipRange()
        return self.total([local(u)[SENSOR - first]] if first <= SENSOR < last else [0.0])

    @property
    def sensor(self) -> np.ndarray:
        """1 at the sensor, 0 elsewhere."""
        return (np.arange(*self.template.getOwnershipRange()) == SENSOR).astype(float)

    def numbers(self, **entries: Any) -> np.ndarray:
        """Return an array [m] with some entries; of a field there are none."""
        return np.array([entries.get(name, 0.0) for name in NAMES])

    def of(self, p: Any) -> np.ndarray:
        """Return all five numbers."""
        return P0 if self.field else np.asarray(p)

    def shape(self, p: Any) -> np.ndarray:
        """Return s at the rank's own points."""
        return local(p) if self.field else self.profile

    @property
    def profile(self) -> np.ndarray:
        return 1.0 + 0.5 * np.sin(2 * np.pi * self.x + 0.3)


def local(vec: PETSc.Vec) -> np.ndarray:
    return vec.getArray(readonly=True)


def make_room(comm: Any, *, field: bool = False) -> Room:
    return Room(comm, PETSc.Vec().createMPI(N, comm=comm), field)


def _laplacian(room: Room) -> PETSc.Mat:
    sizes = room.template.getSizes()
    matrix = PETSc.Mat().createAIJ((sizes, sizes), nnz=(3, 3), comm=room.comm)
    for i in range(*room.template.getOwnershipRange()):
        neighbours = [j for j in (i - 1, i + 1) if 0 <= j < N]
        matrix.setValues([i], neighbours, [N**2 / 40] * len(neighbours))
        matrix.setValue(i, i, -len(neighbours) * N**2 / 40)
    matrix.assemble()
    return matrix


# ---- equations -----------------------------------------------------------------------------------


def _mode(room: Room, laplacian: PETSc.Mat, *, on: float) -> Problem:
    def heat(t):
        return on * (1.0 + 0.3 * np.sin(2 * t))

    def rhs(t, u, p, out):
        a, c = room.of(p)[[0, 3]]
        laplacian.mult(u, out)
        out.setArray(local(out) + a * heat(t) * room.shape(p) - c * local(u) ** 2)

    def jacobian(t, u, p, out):
        laplacian.copy(out)
        diagonal = room.vec(-2.0 * room.of(p)[3] * local(u))
        out.setDiagonal(diagonal, addv=PETSc.InsertMode.ADD_VALUES)

    def jacobian_p(t, u, p, out):
        if room.field:
            out.zeroEntries()
            out.shift(P0[0] * heat(t))
        else:
            out.getDenseArray()[...] = 0.0
            out.getDenseArray()[:, 0] = heat(t) * room.profile
            out.getDenseArray()[:, 3] = -(local(u) ** 2)
        out.assemble()

    def rhs_t(t, u, p, out):
        out.setArray(room.of(p)[0] * on * 0.6 * np.cos(2 * t) * room.shape(p))

    def hessian_product(t, u, p, w, du, dp, out, *out_p):
        c, dc = room.of(p)[3], 0.0 if room.field else dp[3]
        out.setArray(-2.0 * (dc * local(u) + c * local(du)) * local(w))
        if room.field:
            out_p[0].zeroEntries()
            return None
        return room.numbers(loss=-2.0 * room.total(local(u) * local(du) * local(w)))

    def hessian_t(t, u, p, w, out, *out_p):
        out.zeroEntries()
        a, slope = room.of(p)[0], on * 0.6 * np.cos(2 * t)
        by_t = -a * on * 1.2 * np.sin(2 * t) * room.total(room.shape(p) * local(w))
        if room.field:
            out_p[0].setArray(a * slope * local(w))
            return by_t
        return room.numbers(power=slope * room.total(room.profile * local(w))), by_t

    parameters: Any = room.template if room.field else NAMES
    return ODE(
        rhs,
        state=room.template,
        parameters=parameters,
        jacobian=jacobian,
        jacobian_p=jacobian_p,
        rhs_t=rhs_t,
        hessian_product=hessian_product,
        hessian_t=hessian_t,
        jacobian_matrix=laplacian,
    )


# ---- events --------------------------------------------------------------------------------------


def _threshold(room: Room, name: str, gap: float, **keywords: Any) -> Event:
    """Return the event v = (b + gap d) m(t)."""

    def level(p):
        return room.of(p)[1] + gap * room.of(p)[2]

    def when(t, u, p):
        here = room.at_sensor(u)
        return here + 0.1 * here**2 - level(p) * (1.0 + 0.05 * np.sin(t))

    def by_p(factor):
        return room.numbers(low=-factor, gap=-gap * factor)

    def when_u(t, u, p, out):
        out.setArray((1.0 + 0.2 * room.at_sensor(u)) * room.sensor)

    def when_hessian(t, u, p, du, dp, out, *out_p):
        out.setArray(0.2 * room.at_sensor(du) * room.sensor)
        return out_p[0].zeroEntries() if room.field else np.zeros(5)

    def when_hessian_t(t, u, p, out, *out_p):
        out.zeroEntries()
        by_t = level(p) * 0.05 * np.sin(t)
        if room.field:
            out_p[0].zeroEntries()
            return by_t
        return by_p(0.05 * np.cos(t)), by_t

    return Event(
        when,
        name=name,
        when_u=when_u,
        when_p=INDEPENDENT if room.field else lambda t, u, p: by_p(1.0 + 0.05 * np.sin(t)),
        when_t=lambda t, u, p: -level(p) * 0.05 * np.cos(t),
        when_hessian=when_hessian,
        when_hessian_t=when_hessian_t,
        **keywords,
    )


def _window(room: Room) -> Event:
    """Return u+ = u - c (1 + t) q(x) u^2/10 at the time w."""
    cold = 0.1 * (1.0 + np.cos(2 * np.pi * room.x))

    def factor(t, p):
        return room.of(p)[3] * (1.0 + t) * cold

    def reset(t, u, p, out):
        out.setArray(local(u) - factor(t, p) * local(u) ** 2)

    def apply(t, u, p, v, out):
        out.setArray((1.0 - 2.0 * factor(t, p) * local(u)) * local(v))

    def reset_p(t, u, p, out):
        if not room.field:
            out.getDenseArray()[...] = 0.0
            out.getDenseArray()[:, 3] = -(1.0 + t) * cold * local(u) ** 2
        else:
            out.zeroEntries()
        out.assemble()

    def reset_hessian(t, u, p, w, du, dp, out, *out_p):
        dc = 0.0 if room.field else dp[3]
        bend = factor(t, p) * local(du) + (1.0 + t) * cold * dc * local(u)
        out.setArray(-2.0 * bend * local(w))
        if room.field:
            return out_p[0].zeroEntries()
        changes = (1.0 + t) * cold * local(u) * local(du) * local(w)
        return room.numbers(loss=-2.0 * room.total(changes))

    def reset_hessian_t(t, u, p, w, out, *out_p):
        out.setArray(-2.0 * room.of(p)[3] * cold * local(u) * local(w))
        if room.field:
            out_p[0].zeroEntries()
            return 0.0
        return room.numbers(loss=-room.total(cold * local(u) ** 2 * local(w))), 0.0

    return Event(
        P0[4] if room.field else "window",
        reset,
        name="window",
        reset_u=Products(apply, apply),
        reset_p=reset_p,
        reset_t=lambda t, u, p, out: out.setArray(-room.of(p)[3] * cold * local(u) ** 2),
        reset_hessian=reset_hessian,
        reset_hessian_t=reset_hessian_t,
    )


def _worn(room: Room) -> Terminal:
    """Return the power after the heater has come on: a (0.97 - 0.02 mean u^2) + 0.05 sin t."""

    def mean(u):
        return u.dot(u) / N

    def gradient_u(t, u, p, out):
        u.copy(out)
        out.scale(-0.04 * p[0] / N)

    def hessian_product(t, u, p, du, dp, out):
        out.setArray(-0.04 / N * (p[0] * local(du) + dp[0] * local(u)))
        return room.numbers(power=-0.04 / N * u.dot(du))

    def hessian_t(t, u, p, out):
        out.zeroEntries()
        return np.zeros(5), -0.05 * np.sin(t)

    return Terminal(
        lambda t, u, p: p[0] * (0.97 - 0.02 * mean(u)) + 0.05 * np.sin(t),
        gradient_u,
        lambda t, u, p: room.numbers(power=0.97 - 0.02 * mean(u)),
        hessian_product,
        lambda t, u, p: 0.05 * np.cos(t),
        hessian_t,
    )


def make_thermostat(comm: Any, *, field: bool = False) -> tuple[Room, Problem, PETSc.Vec, Any]:
    """Return the room, the hybrid problem, the initial state and the parameters."""
    room = make_room(comm, field=field)
    laplacian = _laplacian(room)
    modes = {"on": _mode(room, laplacian, on=1.0), "off": _mode(room, laplacian, on=0.0)}
    changes = {} if field else {"power": _worn(room)}
    events = [
        _threshold(room, "hot", 1.0, direction=1, mode="off", within=["on"]),
        _threshold(room, "cold", 0.0, direction=-1, mode="on", within=["off"], changes=changes),
        _window(room),
    ]
    u0 = room.vec(0.8 + 0.2 * np.cos(2 * np.pi * room.x))
    p = room.vec(room.profile) if field else P0
    return room, hybrid(modes, "on", events), u0, p


def make_cost(room: Room) -> Objective:
    """Return a sum of costs of every kind, the same for any number of ranks."""

    def density_t(t, u, p):
        return u.dot(u) / N

    def density_hessian(t, u, p, du, dp, out, *out_p):
        du.copy(out)
        out.scale(2.0 * (1.0 + t) / N)
        return out_p[0].zeroEntries() if room.field else np.zeros(5)

    def density_hessian_t(t, u, p, out, *out_p):
        u.copy(out)
        out.scale(2.0 / N)
        if room.field:
            out_p[0].zeroEntries()
            return 0.0
        return np.zeros(5), 0.0

    def scaled(t, u, p, out):
        u.copy(out)
        out.scale(2.0 * (1.0 + t) / N)

    running = Running(
        lambda t, u, p: (1.0 + t) * u.dot(u) / N,
        scaled,
        INDEPENDENT,
        density_t,
        density_hessian,
        density_hessian_t,
    )
    same = (scaled, INDEPENDENT)
    at_event = AtEvent(
        running.density,
        "cold",
        1,
        "before",
        *same,
        value_t=density_t,
        hessian_product=density_hessian,
        hessian_t=density_hessian_t,
    )
    data = [room.vec(1.0 + 0.1 * np.sin(2 * np.pi * room.x + t)) for t in OBSERVED]
    end = Terminal(running.density, *same, hessian_product=density_hessian)
    misfit = LeastSquares(OBSERVED, data, sigma=0.5)
    return end + 0.7 * running + misfit + 0.4 * at_event + 0.3 * EventTime("hot", 1)
