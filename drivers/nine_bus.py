"""Stability of a power network after a fault: three generators, nine buses, a DAE with events.

    x' = f(x, y),  0 = g(x, y);  x [21]: machines and exciters,  y [24]: currents and bus voltages

A bus is short-circuited for a fifth of a second.  At both ends of the fault the currents and
voltages jump: they are solved for anew, and that is differentiated.  The voltage regulator of a
machine may reach its ceiling in between, an event whose time follows from the state; clearing the
fault frees it.  The gradient of the frequencies' excess over their limits, in the powers of the
generators, the resistance and the end of the fault, comes by adjoint, tangent and differences; then
the powers are dispatched anew so that the limits hold.

    python drivers/nine_bus.py configs/nine_bus.toml          (or mpiexec -n 2 python ...)

Data: the WSCC test case as in Sauer and Pai, Power System Dynamics and Stability, chapter 7;
PETSc's tutorials ts/tutorials/power_grid/stability_9bus solve it too; docs/reproduce.md compares.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Annotated, Literal

import numpy as np

import daeosens as ds
from daeosens.cli.study import drive
from daeosens.costs.objective import Objective
from daeosens.io import Results, between, increasing, length, positive
from daeosens.petsc import scatter

# ---- the test case: 100 MVA, 60 Hz; per unit and seconds -----------------------------------------

LINES = (  # from, to, resistance, reactance, charging
    (4, 5, 0.010, 0.085, 0.176),
    (4, 6, 0.017, 0.092, 0.158),
    (5, 7, 0.032, 0.161, 0.306),
    (6, 9, 0.039, 0.170, 0.358),
    (7, 8, 0.0085, 0.072, 0.149),
    (8, 9, 0.0119, 0.1008, 0.209),
)
TRANSFORMERS = ((1, 4, 0.0576), (2, 7, 0.0625), (3, 9, 0.0586))  # from, to, reactance
LOADS = np.zeros(9, complex)  # at the voltages of the load flow; constant impedances
LOADS[[4, 5, 7]] = 1.25 + 0.5j, 0.9 + 0.3j, 1.0 + 0.35j
POWERS, VOLTAGES = np.array([1.63, 0.85]), np.array([1.04, 1.025, 1.025])  # machine 1 balances
SYNCHRONOUS = 2.0 * np.pi * 60.0
INERTIA = 2.0 * np.array([23.64, 6.4, 3.01]) / SYNCHRONOUS
DAMPING = 0.1 * INERTIA
XD, XQ = np.array([0.146, 0.8958, 1.3125]), np.array([0.4360, 0.8645, 1.2578])
XD1, XQ1 = np.array([0.0608, 0.1198, 0.1813]), np.array([0.0969, 0.1969, 0.25])  # transient
TD, TQ = np.array([8.96, 6.0, 5.89]), np.array([0.31, 0.535, 0.6])  # open circuit
KA, TA, KE, TE, KF, TF, K1, K2 = 20.0, 0.2, 1.0, 0.314, 0.063, 0.35, 0.0039, 1.555  # exciters
CEILING = 7.0  # of a voltage regulator

# ---- the unknowns: nine for each machine, then real and imaginary part of each bus voltage -------

EQ, ED, ANGLE, SPEED, ID, IQ, FIELD, FEEDBACK, REGULATOR = np.arange(9)[:, None] + 9 * np.arange(3)
REAL, IMAGINARY = 27 + 2 * np.arange(9), 28 + 2 * np.arange(9)
VR, VI = REAL[:3], IMAGINARY[:3]  # at the machines
ALGEBRAIC = np.concatenate([ID, IQ, np.arange(27, 45)])
MASS = np.diag(np.where(np.isin(np.arange(45), ALGEBRAIC), 0.0, 1.0))

# ---- load flow and start -------------------------------------------------------------------------


def admittance(resistance: float, charging: float) -> np.ndarray:
    """Return the matrix [9, 9] of the lines, and of transformers with these losses."""
    result = np.zeros((9, 9), complex)
    transformers = ((a, b, resistance, x, charging) for a, b, x in TRANSFORMERS)
    for a, b, r, x, c in (*LINES, *transformers):
        i, j, y = a - 1, b - 1, 1.0 / complex(r, x)
        result[[i, j], [i, j]] += y + 0.5j * c
        result[[i, j], [j, i]] -= y
    return result


def load_flow(y: np.ndarray, loads: np.ndarray, powers: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return voltages and powers [9] at the buses, and their derivatives [9, 2] in ``powers``."""
    wanted = -loads
    wanted[1:3] += powers
    angle, size, step = np.zeros(9), np.concatenate([VOLTAGES, np.ones(6)]), np.ones(14)
    while abs(step).max() > 1e-13:
        v = size * np.exp(1j * angle)
        current = y @ v
        by_angle = 1j * v[:, None] * (np.diag(current) - y * v).conj()
        by_size = v[:, None] * (y * (v / size)).conj() + np.diag(current.conj() * v / size)
        by_unknown = np.hstack([by_angle[:, 1:], by_size[:, 3:]])
        jacobian = np.vstack([by_unknown.real[1:], by_unknown.imag[3:]])
        mismatch = v * current.conj() - wanted
        step = np.linalg.solve(jacobian, np.concatenate([mismatch.real[1:], mismatch.imag[3:]]))
        angle[1:] -= step[:8]
        size[3:] -= step[8:]
    moved = np.linalg.solve(jacobian, np.eye(14)[:, :2])
    v_moved = np.hstack([np.diag(1j * v)[:, 1:], np.diag(v / size)[:, 3:]]) @ moved
    return v, v * current.conj(), v_moved, by_unknown @ moved


def machines_at(vr, vi, p, q):
    """Return the machines' unknowns [9, 3] at rest and the voltage references [3]."""
    size = np.sqrt(vr**2 + vi**2)
    ir, ii = (vr * p + vi * q) / size**2, (vi * p - vr * q) / size**2
    angle = np.arctan((vi + XQ * ir) / (vr - XQ * ii))
    s, c = np.sin(angle), np.cos(angle)
    i_d, i_q = ir * s - ii * c, ir * c + ii * s
    eq, ed = vr * c + vi * s + XD1 * i_d, vr * s - vi * c - XQ1 * i_q
    field = eq + (XD - XD1) * i_d
    regulator = KE * field + K1 * np.exp(K2 * field)
    speed = SYNCHRONOUS + 0.0 * eq
    unknowns = np.array([eq, ed, angle, speed, i_d, i_q, field, KF / TF * field, regulator])
    return unknowns, size + regulator / KA


# ---- the equations of the healthy network --------------------------------------------------------


def residual(y, u, torque, reference):
    """Return x' and g [45] for admittances y [18, 18] from (real, imaginary) to (imag., real)."""
    s, c = np.sin(u[ANGLE]), np.cos(u[ANGLE])
    vd, vq = u[VR] * s - u[VI] * c, u[VR] * c + u[VI] * s
    slip, size = u[SPEED] - SYNCHRONOUS, np.sqrt(u[VR] ** 2 + u[VI] ** 2)
    power = u[ED] * u[ID] + u[EQ] * u[IQ] + (XQ1 - XD1) * u[ID] * u[IQ]
    error = reference - size + u[FEEDBACK] - KF / TF * u[FIELD]
    out = np.empty(45, dtype=np.result_type(u, torque))
    out[EQ] = (-u[EQ] - (XD - XD1) * u[ID] + u[FIELD]) / TD
    out[ED] = (-u[ED] + (XQ - XQ1) * u[IQ]) / TQ
    out[ANGLE] = slip
    out[SPEED] = (torque - power - DAMPING * slip) / INERTIA
    out[ID] = (vq - u[EQ]) / XD1 + u[ID]
    out[IQ] = (u[ED] - vd) / XQ1 + u[IQ]
    out[FIELD] = (-KE * u[FIELD] - K1 * np.exp(K2 * u[FIELD]) + u[REGULATOR]) / TE
    out[FEEDBACK] = (KF / TF * u[FIELD] - u[FEEDBACK]) / TF
    out[REGULATOR] = (KA * error - u[REGULATOR]) / TA
    out[27:] = y @ u[27:]
    out[VR] += u[ID] * c - u[IQ] * s  # less the machines' currents, imaginary parts first
    out[VI] -= u[ID] * s + u[IQ] * c
    return out


def residual_u(y, u):
    """Return the derivative of the residual in u [45, 45]."""
    s, c = np.sin(u[ANGLE]), np.cos(u[ANGLE])
    vd, vq = u[VR] * s - u[VI] * c, u[VR] * c + u[VI] * s
    size = np.sqrt(u[VR] ** 2 + u[VI] ** 2)
    out = np.zeros((45, 45), dtype=u.dtype)
    out[EQ, EQ], out[EQ, ID], out[EQ, FIELD] = -1 / TD, -(XD - XD1) / TD, 1 / TD
    out[ED, ED], out[ED, IQ] = -1 / TQ, (XQ - XQ1) / TQ
    out[ANGLE, SPEED] = 1.0
    out[SPEED, EQ], out[SPEED, ED] = -u[IQ] / INERTIA, -u[ID] / INERTIA
    out[SPEED, SPEED] = -DAMPING / INERTIA
    out[SPEED, ID] = -(u[ED] + (XQ1 - XD1) * u[IQ]) / INERTIA
    out[SPEED, IQ] = -(u[EQ] + (XQ1 - XD1) * u[ID]) / INERTIA
    out[ID, EQ], out[ID, ID], out[ID, ANGLE] = -1 / XD1, 1.0, -vd / XD1
    out[ID, VR], out[ID, VI] = c / XD1, s / XD1
    out[IQ, ED], out[IQ, IQ], out[IQ, ANGLE] = 1 / XQ1, 1.0, -vq / XQ1
    out[IQ, VR], out[IQ, VI] = -s / XQ1, c / XQ1
    out[FIELD, FIELD] = -(KE + K1 * K2 * np.exp(K2 * u[FIELD])) / TE
    out[FIELD, REGULATOR] = 1 / TE
    out[FEEDBACK, FIELD], out[FEEDBACK, FEEDBACK] = KF / TF**2, -1 / TF
    out[REGULATOR, FIELD], out[REGULATOR, FEEDBACK] = -KA * KF / TF / TA, KA / TA
    out[REGULATOR, REGULATOR] = -1 / TA
    out[REGULATOR, VR] = -KA / TA * u[VR] / size
    out[REGULATOR, VI] = -KA / TA * u[VI] / size
    out[27:, 27:] = y
    out[VR, ID], out[VR, IQ], out[VR, ANGLE] = c, -s, -(u[ID] * s + u[IQ] * c)
    out[VI, ID], out[VI, IQ], out[VI, ANGLE] = -s, -c, u[IQ] * s - u[ID] * c
    return out


# ---- the study -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    bus: Annotated[int, between(1, 9)] = 9
    start: Annotated[float, positive(), "s"] = 1.0
    clearing: Annotated[float, positive(), "s"] = 1.2
    resistance: Annotated[float, positive(), "to ground, per unit"] = 1e-4

    def __post_init__(self) -> None:
        if not self.start < self.clearing:
            raise ds.InputError(
                f"start = {self.start:g}, clearing = {self.clearing:g}", expected="start < clearing"
            )


@dataclass(frozen=True)
class Optimizer:
    method: Literal["blmvm", "bqnls", "bncg"] = "blmvm"
    gradient_tolerance: Annotated[float, positive(), "largest gradient norm at the end"] = 1e-8
    max_iterations: Annotated[int, positive()] = 100


@dataclass(frozen=True)
class Config:
    stepping: ds.Stepping
    powers: Annotated[
        tuple[float, ...], length(2, 3), "of machines 2 and 3, or all three, at the start"
    ]
    bounds: Annotated[tuple[float, float], increasing(), "of the powers"] = (0.5, 2.0)
    fault: Fault = Fault()
    ceilings: Annotated[
        tuple[Annotated[int, between(1, 3)], ...], "machines whose regulators may reach theirs"
    ] = (3,)
    limits: Annotated[tuple[float, float], increasing(), "of the frequencies [Hz]"] = (59.0, 61.0)
    dispatch: Annotated[float, "cost of a unit of power moved, squared"] = 0.0
    losses: Annotated[tuple[float, float], "transformers: resistance, charging"] = (0.0, 0.0)
    optimizer: Optimizer = Optimizer()

    def __post_init__(self) -> None:
        end = self.stepping.t_span[1]
        if not self.fault.clearing < end:
            raise ds.InputError(
                f"fault.clearing = {self.fault.clearing:g}",
                expected=f"a time before the end of stepping.t_span, {end:g}",
            )


@dataclass(frozen=True, eq=False)
class Start:
    """State [45], torques and voltage references [3] at the start, and d/dpowers of each."""

    state: np.ndarray
    torques: np.ndarray
    references: np.ndarray
    state_p: np.ndarray
    torques_p: np.ndarray
    references_p: np.ndarray


class Network:
    """The network, its loads as impedances, and its starts.

    For two powers machine 1 balances: the start is at rest.  For three the voltages and reactive
    powers of the machines are those of the load flow nevertheless, as in PETSc's tutorial: currents
    and voltages are solved for then, and the start is consistent but not at rest.
    """

    def __init__(self, losses: tuple[float, float]) -> None:
        lines = admittance(*losses)
        self.voltages, self.powers, _, _ = load_flow(lines, LOADS, POWERS)
        self.full = lines + np.diag(LOADS.conj() / abs(self.voltages) ** 2)
        self.real = np.empty((18, 18))
        self.real[0::2, 0::2] = self.full.imag
        self.real[0::2, 1::2] = self.real[1::2, 0::2] = self.full.real
        self.real[1::2, 1::2] = -self.full.imag
        self.start = lru_cache(maxsize=8)(self._start)

    def _start(self, powers: tuple[float, ...]) -> Start:
        start = self.machines_at_rest(powers)
        return start if len(powers) == 2 else self._settled(start)

    def machines_at_rest(self, powers: tuple[float, ...]) -> Start:
        """Return the start at voltages that, for three powers, are not those of the network."""
        n = len(powers)
        if n == 2:
            v, s, v_p, s_p = load_flow(self.full, np.zeros(9, complex), np.array(powers))
        else:
            v, s = self.voltages, np.array(powers) + 1j * self.powers.imag[:3]
            v_p, s_p = np.zeros((9, 3), complex), np.eye(3, dtype=complex)
        values = np.array([v.real[:3], v.imag[:3], s.real[:3], s.imag[:3]])
        slopes = np.array([v_p.real[:3], v_p.imag[:3], s_p.real[:3], s_p.imag[:3]])
        unknowns, references = machines_at(*values)
        moved = [machines_at(*(values + 1e-30j * slopes[..., k])) for k in range(n)]
        state, state_p = np.empty(45), np.empty((45, n))
        state[:27], state[REAL], state[IMAGINARY] = unknowns.T.ravel(), v.real, v.imag
        state_p[:27] = np.column_stack([machines[0].imag.T.ravel() for machines in moved]) / 1e-30
        state_p[REAL], state_p[IMAGINARY] = v_p.real, v_p.imag
        references_p = np.column_stack([machines[1].imag for machines in moved]) / 1e-30
        return Start(state, s.real[:3], references, state_p, s_p.real[:3], references_p)

    def _settled(self, start: Start) -> Start:
        """Solve for currents and voltages, on which the equations depend linearly."""
        state, state_p = start.state.copy(), start.state_p.copy()
        matrix = residual_u(self.real, state)[ALGEBRAIC]
        rest = residual(self.real, state, 0.0, 0.0)[ALGEBRAIC]
        state[ALGEBRAIC] -= np.linalg.solve(matrix[:, ALGEBRAIC], rest)
        state_p[ALGEBRAIC] = 0.0
        rest_p = residual_u(self.real, state)[ALGEBRAIC] @ state_p
        state_p[ALGEBRAIC] = -np.linalg.solve(matrix[:, ALGEBRAIC], rest_p)
        return replace(start, state=state, state_p=state_p)


def names(config: Config) -> tuple[str, ...]:
    n = len(config.powers)
    return (*(f"power_{k}" for k in range(4 - n, 4)), "resistance", "clearing")


def system(config: Config, network: Network) -> ds.problem.Problem:
    """Return the network before, during and after the fault, then also with ceilings reached."""
    n, fault = len(config.powers), config.fault
    ground = np.array([REAL[fault.bus - 1], IMAGINARY[fault.bus - 1]])

    def mode(faulty: bool, limited: frozenset[int] = frozenset()) -> ds.problem.Problem:
        fixed = REGULATOR[[machine - 1 for machine in sorted(limited)]]

        def rhs(t, u, p):
            start = network.start(tuple(p[:n]))
            out = residual(network.real, u, start.torques, start.references)
            if faulty:
                out[ground] += u[ground[::-1]] / p[n]
            out[fixed] = 0.0
            return out

        def jacobian(t, u, p):
            out = residual_u(network.real, u)
            if faulty:
                out[ground, ground[::-1]] += 1.0 / p[n]
            out[fixed] = 0.0
            return out

        def jacobian_p(t, u, p):
            start = network.start(tuple(p[:n]))
            out = np.zeros((45, n + 2))
            out[SPEED, :n] = start.torques_p / INERTIA[:, None]
            out[REGULATOR, :n] = KA / TA * start.references_p
            if faulty:
                out[ground, n] = -u[ground[::-1]] / p[n] ** 2
            out[fixed] = 0.0
            return out

        return ds.ODE(
            rhs,
            45,
            names(config),
            jacobian=jacobian,
            jacobian_p=jacobian_p,
            rhs_t="autonomous",
            mass=MASS,
        )

    sets = [
        frozenset(s)
        for k in range(len(config.ceilings) + 1)
        for s in combinations(config.ceilings, k)
    ]
    during = {limited: " ".join(["fault", *map(str, sorted(limited))]) for limited in sets}
    modes = {
        "before": mode(False),
        **{during[s]: mode(True, s) for s in sets},
        "after": mode(False),
    }
    events = [
        ds.Event(fault.start, mode="fault", name="fault"),
        ds.Event("clearing", mode="after", within=tuple(during.values()), name="cleared"),
    ]
    for limited in sets:
        events += [
            at_ceiling(machine, during[limited], during[limited | {machine}])
            for machine in set(config.ceilings) - limited
        ]
    return ds.hybrid(modes, "before", events)


def at_ceiling(machine: int, before: str, after: str) -> ds.Event:
    unit = np.eye(45)[REGULATOR[machine - 1]]
    return ds.Event(
        lambda t, u, p: unit @ u - CEILING,
        direction=1,
        mode=after,
        within=[before],
        when_u=lambda t, u, p: unit,
        when_p=ds.problem.INDEPENDENT,
        when_t="autonomous",
        name=f"ceiling {machine}",
    )


def excess(limits: tuple[float, float], u: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the sum of the frequencies' squared excess over their limits, and its gradient."""
    hertz = u[SPEED] / (2.0 * np.pi)
    over = np.maximum(hertz - limits[1], 0.0) - np.maximum(limits[0] - hertz, 0.0)
    gradient = np.zeros(45)
    gradient[SPEED] = over / np.pi
    return over @ over, gradient


def objective(config: Config) -> Objective:
    """Return the integral of the excess, and the cost of moved powers."""
    integral = ds.Running(
        lambda t, u, p: excess(config.limits, u)[0],
        lambda t, u, p: excess(config.limits, u)[1],
        ds.problem.INDEPENDENT,
        density_t="autonomous",
    )
    if config.dispatch == 0.0:
        return integral
    spread = 1.0 / np.sqrt(2.0 * config.dispatch)
    return integral + ds.Prior(config.powers, spread, names=names(config)[: len(config.powers)])


def functional(config: Config, network: Network, *, all_free: bool = False) -> ds.Reduced:
    """Return the excess as a function of the powers, or of all parameters."""
    n, fault = len(config.powers), config.fault
    least, most = config.bounds
    free = [ds.Parameter(power, lower=least, upper=most) for power in config.powers]
    others = [ds.Parameter(value, free=all_free) for value in (fault.resistance, fault.clearing)]
    control = ds.Parameters(
        dict(zip(names(config), [*free, *others], strict=True)),
        initial_state=lambda p: network.start(tuple(p[:n])).state,
        initial_state_p=lambda p: np.hstack(
            [network.start(tuple(p[:n])).state_p, np.zeros((45, 2))]
        ),
    )
    return ds.Reduced(system(config, network), objective(config), config.stepping, control)


def gradient_table(config: Config, network: Network) -> list[str]:
    """Return the gradient in all parameters by adjoint, tangent and differences to either side.

    A fault that is cleared at the end of a step is a kink of the discrete program: only there the
    sides differ.
    """
    reduced = functional(config, network, all_free=True)
    x = reduced.start()
    value, gradient = reduced.value_and_gradient(x)
    run = reduced.trajectory(x)
    units = [scatter(row, x.duplicate()) for row in np.eye(x.size)]
    directions = [reduced.control.push_forward(reduced.problem, x, unit) for unit in units]
    tangents = [
        ds.tangent(run, *direction).derivative(reduced.objective) for direction in directions
    ]
    lines = [
        f"excess {value:.9g}",
        "parameter           adjoint        tangent         left      right",
    ]
    for k, (name, unit) in enumerate(zip(names(config), units, strict=True)):
        sides = []
        for step in (-1e-4 * float(x.array[k]), 1e-4 * float(x.array[k])):
            near, far = (reduced.value(x + m * step * unit) for m in (1, 2))
            sides.append((4.0 * near - far - 3.0 * value) / (2.0 * step))
        numbers = f"{gradient.array[k]:15.8g} {tangents[k]:14.8g} {sides[0]:12.6g} {sides[1]:12.6g}"
        lines.append(f"{name:12s} {numbers}")
    return lines


def load_flow_table(network: Network) -> list[str]:
    polar = zip(abs(network.voltages), np.degrees(np.angle(network.voltages)), strict=True)
    lines = [
        f"bus {k}   {size:.4f} at {angle:7.3f} degrees" for k, (size, angle) in enumerate(polar, 1)
    ]
    for k, power in enumerate(network.powers[:3]):
        lines[k] += f", generates {power.real:.4f} + {power.imag:.4f}j"
    return lines


def check(config: Config) -> ds.verify.Taylor:
    return ds.taylor(functional(config, Network(config.losses)))


def study(config: Config, results: Results) -> bool:
    network = Network(config.losses)
    results.say("\n".join(load_flow_table(network)))
    reduced = functional(config, network)
    start = reduced.start()
    evidence = ds.taylor(reduced)
    results.say(evidence)
    # of a functional of its own: that which is minimised frees its last run where x moves
    before = functional(config, network).trajectory(start)
    results.say(before)
    for name, array in (("times", before.times), ("states", before.u)):
        results.write(name, array)
    if not evidence.passed:
        return False
    results.say("\n".join(gradient_table(config, network)))
    results.say(ds.optimize.result.HEADING)
    chosen = vars(config.optimizer)
    optimum = ds.minimize(reduced, progress=lambda iterate, _x: results.say(iterate), **chosen)
    results.say(optimum)
    run = reduced.trajectory(optimum.x)
    runs = {"before": before, "dispatched anew": run}
    for label, trajectory in runs.items():
        hertz = trajectory.u[:, SPEED] / (2.0 * np.pi)
        results.say(f"{label}: {hertz.min():.3f} to {hertz.max():.3f} Hz")
    results.record("value", optimum.value)
    results.record("powers", dict(zip(names(config), optimum.x.array.tolist(), strict=False)))
    results.record("events", {crossing.name: crossing.t for crossing in before.crossings})
    results.write("times_dispatched", run.times)
    results.write("states_dispatched", run.u)
    results.once(lambda: draw(results, config, runs))
    return optimum.converged


def draw(results: Results, config: Config, runs: Mapping[str, ds.timestepping.Trajectory]) -> None:
    from daeosens.report.hybrid_runs import (  # noqa: PLC0415 (optional extra)
        JumpSeries,
        Panel,
        events_of,
        jumps_figure,
    )

    columns = []
    for run in runs.values():
        named = not columns
        events, ends = events_of(run), run.times[[0, -1]]
        hertz, volts = (
            run.u[:, SPEED] / (2.0 * np.pi),
            np.hypot(run.u[:, REAL], run.u[:, IMAGINARY]),
        )
        speeds = [
            *(
                JumpSeries(f"machine {k + 1}" * named, run.times, hertz[:, k], events, "line")
                for k in range(3)
            ),
            *(JumpSeries("", ends, [limit, limit], (), "faint") for limit in config.limits),
        ]
        voltages = [
            JumpSeries(f"bus {bus}" * named, run.times, volts[:, bus - 1], events, "line")
            for bus in (1, 2, 3, 5, 9)
        ]
        columns.append([Panel("frequency [Hz]", speeds), Panel("voltage [per unit]", voltages)])
    path = results.path("nine_bus.png")
    moments = (config.fault.start, config.fault.clearing)
    jumps_figure(path, columns, time_label="t [s]", titles=list(runs), moments=moments)


if __name__ == "__main__":
    sys.exit(drive(__doc__, Config, study, check))
