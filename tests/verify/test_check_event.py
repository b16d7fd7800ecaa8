"""``check`` of events, modes and derivatives in time: exactly the wrong one is named."""

import re
from types import SimpleNamespace

import forms
import numpy as np
import pytest
from petsc4py import PETSc

from daeosens import DAE, ODE, Event, Running, SolveError, Terminal, check, hybrid
from daeosens.costs import AtEvent, EventTime
from daeosens.petsc import read, write
from daeosens.problem import AUTONOMOUS, INDEPENDENT

T = 0.3

# ---- right callbacks, from which one at a time is made wrong ------------------------------------

# g = a u_0^2 + t b u_1 + t^2 u_2, with p = (a, b, c)
SCALAR = {
    "value": lambda t, u, p: p[0] * u[0] ** 2 + t * p[1] * u[1] + t**2 * u[2],
    "u": lambda t, u, p: np.array([2 * p[0] * u[0], t * p[1], t**2]),
    "p": lambda t, u, p: np.array([u[0] ** 2, t * u[1], 0.0]),
    "t": lambda t, u, p: p[1] * u[1] + 2 * t * u[2],
    "hessian": lambda t, u, p, du, dp: (
        np.array([2 * (dp[0] * u[0] + p[0] * du[0]), t * dp[1], 0.0]),
        np.array([2 * u[0] * du[0], t * du[1], 0.0]),
    ),
    "hessian_t": lambda t, u, p: (
        np.array([0.0, p[1], 2 * t]),
        np.array([0.0, u[1], 0.0]),
        2 * u[2],
    ),
}


def rhs_hessian_t(t, u, p, w):
    """Derivatives of w^T f_t of the right-hand side of ``forms``."""
    e = np.exp(-t)
    by_p = [-p[1] * u[0] * e * w[2], -p[0] * u[0] * e * w[2], 2 * np.cos(2 * t) * w[0]]
    by_t = -4 * p[2] * np.sin(2 * t) * w[0] + p[0] * p[1] * u[0] * e * w[2]
    return np.array([-p[0] * p[1] * e * w[2], 0.0, 0.0]), np.array(by_p), by_t


# The map of the reset is that right-hand side: any function with known derivatives will do.
MAP = {
    "value": forms.rhs,
    "u": forms.rhs_u,
    "p": forms.rhs_p,
    "t": forms.rhs_t,
    "hessian": forms.rhs_hessian,
    "hessian_t": rhs_hessian_t,
}
PARTS = ("u", "p", "t", "hessian", "hessian_t")


def off(callback):
    """Return the callback with a constant added to one entry of what it gives."""

    def wrong(*arguments):
        result = callback(*arguments)
        if isinstance(result, tuple):
            return (wrong_entry(result[0]), *result[1:])
        return wrong_entry(result)

    return wrong


def wrong_entry(values):
    values = np.array(values, dtype=float)
    values.reshape(-1)[0] += 1e-2
    return values


def spoil(table, part):
    return {key: off(entry) if key == part else entry for key, entry in table.items()}


def bare(names):
    """Return the names without the argument that was moved: "when_hessian du" is when_hessian."""
    return {re.sub(r" d(u|udot|p|t)$", "", name) for name in names}


def terminal(table):
    named = {"gradient_u": "u", "gradient_p": "p", "value_t": "t"}
    named |= {"hessian_product": "hessian", "hessian_t": "hessian_t"}
    return {"value": table["value"]} | {name: table[key] for name, key in named.items()}


def running(table):
    keywords = terminal(table)
    return {"density": keywords.pop("value"), "density_t": keywords.pop("value_t"), **keywords}


def named(prefix, table):
    return {f"{prefix}_{part}": table[part] for part in PARTS}


def whole(
    when=SCALAR, reset=MAP, change=SCALAR, rhs=MAP, end=SCALAR, crossing=SCALAR, density=SCALAR
):
    """Return what ``check`` gets: a problem with one of everything that events bring, and a cost.

    Every derivative is given.
    """
    event = Event(
        when["value"],
        reset["value"],
        name="bounce",
        changes={"b": Terminal(**terminal(change))},
        **named("when", when),
        **named("reset", reset),
    )
    problem = ODE(
        rhs["value"],
        3,
        forms.NAMES,
        jacobian=rhs["u"],
        jacobian_p=rhs["p"],
        rhs_t=rhs["t"],
        hessian_product=rhs["hessian"],
        hessian_t=rhs["hessian_t"],
        events=[event, Event(0.5, name="pause")],
    )
    cost = (
        Terminal(**terminal(end))
        + AtEvent(event="bounce", **terminal(crossing))
        + Running(**running(density))
    )
    return problem, cost


COST = {"u": "gradient_u", "p": "gradient_p", "t": "value_t"}
COST |= {"hessian": "hessian_product", "hessian_t": "hessian_t"}
EQUATION = {"u": "jacobian", "p": "jacobian_p", "t": "rhs_t"} | {
    key: COST[key] for key in ("hessian", "hessian_t")
}
WRONG = {
    "when": {part: f'event "bounce" when_{part}' for part in PARTS},
    "reset": {part: f'event "bounce" reset_{part}' for part in PARTS},
    "change": {part: f'event "bounce" changes["b"] {name}' for part, name in COST.items()},
    "end": {part: f"terminal {name}" for part, name in COST.items()},
    "crossing": {part: f'at event "bounce" {name}' for part, name in COST.items()},
    "density": {part: f"running {name}" for part, name in (COST | {"t": "density_t"}).items()},
    "rhs": EQUATION,
}


def test_right_ones_are_confirmed():
    problem, cost = whole()
    verdicts = check(problem, forms.U0, forms.P0, T, objective=cost)
    assert verdicts.passed, verdicts
    assert {row.verdict for row in verdicts.rows} == {"right"}
    assert max(row.error for row in verdicts.rows) < 1e-8
    names = {row.name for row in verdicts.rows}
    assert bare(names) == {name for value in WRONG.values() for name in value.values()}
    assert {f'event "bounce" when_hessian_t {d}' for d in ("du", "dp", "dt")} <= names
    assert {f'event "bounce" reset_hessian {d}' for d in ("du", "dp")} <= names


@pytest.mark.parametrize(
    ("where", "part", "name"),
    [(where, part, name) for where, names in WRONG.items() for part, name in names.items()],
)
def test_exactly_the_wrong_one_is_named(where, part, name):
    problem, cost = whole(**{where: spoil(MAP if where in ("rhs", "reset") else SCALAR, part)})
    verdicts = check(problem, forms.U0, forms.P0, T, objective=cost)
    assert bare(verdicts.wrong) == {name}
    assert any("instead of" in row.detail for row in verdicts.rows if row.verdict == "wrong")


@pytest.mark.parametrize(("output", "argument"), [(0, "du"), (1, "dp"), (2, "dt")])
def test_the_wrong_part_of_a_derivative_in_time_is_named(output, argument):
    def wrong(t, u, p, w):
        result = list(rhs_hessian_t(t, u, p, w))
        result[output] = wrong_entry(result[output])
        return tuple(result)

    problem, _ = whole(rhs=MAP | {"hessian_t": wrong})
    assert check(problem, forms.U0, forms.P0, T).wrong == (f"hessian_t {argument}",)


@pytest.mark.parametrize("wrong", [False, True])
def test_residual_in_time(wrong):
    """A residual whose derivative in time depends on everything: F = M u' (1 + t u_0 a) - f."""

    def residual(t, u, udot, p):
        return forms.MASS @ udot * (1 + t * u[0] * p[0]) - forms.rhs(t, u, p)

    def hessian_t(t, u, udot, p, w):
        by_u, by_p, by_t = rhs_hessian_t(t, u, p, w)
        m = w @ forms.MASS @ udot
        by_u, by_p = -by_u, -by_p
        by_u[0] += m * p[0]
        by_p[0] += m * u[0]
        return by_u, forms.MASS.T @ w * u[0] * p[0] * (2.0 if wrong else 1.0), by_p, -by_t

    problem = DAE(residual, 3, forms.NAMES, hessian_t=hessian_t)
    verdicts = check(problem, forms.U0, forms.P0, T)
    assert verdicts.wrong == (("hessian_t dudot",) if wrong else ())
    rows = {row.name for row in verdicts.rows if row.name.startswith("hessian_t")}
    assert rows == {f"hessian_t {d}" for d in ("du", "dudot", "dp", "dt")}


def test_a_time_derivative_of_a_mass_form_is_that_of_the_right_hand_side():
    right = ODE(forms.rhs, 3, forms.NAMES, mass=forms.MASS, hessian_t=rhs_hessian_t)
    assert check(right, forms.U0, forms.P0, T).passed
    wrong = ODE(forms.rhs, 3, forms.NAMES, mass=forms.MASS, hessian_t=off(rhs_hessian_t))
    assert check(wrong, forms.U0, forms.P0, T).wrong == ("hessian_t du",)


def test_equations_are_named_by_mode_and_events_by_name():
    right = {"jacobian": forms.rhs_u, "jacobian_p": forms.rhs_p}
    modes = {
        "on": ODE(forms.rhs, 3, forms.NAMES, **right),
        "off": ODE(forms.rhs, 3, forms.NAMES, **right | {"jacobian_p": off(forms.rhs_p)}),
        "half": DAE(
            lambda t, u, udot, p: udot - forms.rhs(t, u, p),
            3,
            forms.NAMES,
            jacobian_udot=off(lambda t, u, udot, p: np.eye(3)),
        ),
    }
    events = [
        Event(SCALAR["value"], mode="off", name="cold", when_u=SCALAR["u"]),
        Event(SCALAR["value"], mode="on", name="hot", when_u=off(SCALAR["u"])),
    ]
    verdicts = check(hybrid(modes, "on", events), forms.U0, forms.P0, T)
    assert verdicts.wrong == (
        'mode "off" jacobian_p',
        'mode "half" jacobian_udot',
        'event "hot" when_u',
    )
    sources = {row.name: row.source for row in verdicts.rows}
    assert sources['mode "on" jacobian'] == "callback"
    assert sources['mode "half" jacobian'] == "automatic"
    assert sources['event "cold" when_p'] == "automatic"
    assert "jacobian" not in sources


def test_false_claims_are_named():
    event = Event(
        SCALAR["value"],
        forms.rhs,
        name="bounce",
        when_t=AUTONOMOUS,
        reset_t=AUTONOMOUS,
        changes={"a": Terminal(SCALAR["value"], gradient_p=INDEPENDENT, hessian_t=INDEPENDENT)},
    )
    problem = ODE(forms.rhs, 3, forms.NAMES, events=[event])
    verdicts = check(problem, forms.U0, forms.P0, T, objective=EventTime("bounce"))
    assert verdicts.wrong == (
        'event "bounce" when_t',
        'event "bounce" reset_t',
        'event "bounce" changes["a"] gradient_p',
        'event "bounce" changes["a"] hessian_t du',
        'event "bounce" changes["a"] hessian_t dp',
        'event "bounce" changes["a"] hessian_t dt',
    )
    assert verdicts['event "bounce" when_t'].source == AUTONOMOUS
    assert verdicts['at event "bounce" gradient_u'].verdict == "right"


def test_functions_found_automatically_and_times_have_nothing_wrong():
    events = [
        Event(0.5, name="pause"),
        Event("a", name="late"),
        Event(
            SCALAR["value"],
            lambda t, u, p: t * u * p,
            name="kick",
            changes={"c": lambda t, u, p: t * u[0] * p[2] ** 2},
        ),
    ]
    verdicts = check(ODE(forms.rhs, 3, forms.NAMES, events=events), forms.U0, forms.P0, T)
    rows = {row.name for row in verdicts.rows if row.name.startswith("event")}
    assert rows == {
        *(f'event "kick" {value}' for value in ("when_u", "when_p", "when_t")),
        *(f'event "kick" {value}' for value in ("reset_u", "reset_p", "reset_t")),
        *(
            f'event "kick" changes["c"] {value}'
            for value in ("gradient_u", "gradient_p", "value_t")
        ),
    }
    assert {verdicts[name].source for name in rows} == {"automatic"}
    assert {verdicts[name].verdict for name in rows} == {"right"}


def test_a_function_without_a_value_at_the_point_is_not_judged():
    def reset(t, u, p):
        if u[0] > 0.5:
            raise SolveError("no state beyond 0.5")
        return u

    event = Event(lambda t, u, p: np.log(u[0] - 5.0), reset, name="far")
    verdicts = check(ODE(forms.rhs, 3, forms.NAMES, events=[event]), forms.U0, forms.P0, T)
    assert verdicts.unclear == ('event "far" when', 'event "far" reset')
    assert verdicts['event "far" reset'].detail == "no state beyond 0.5"
    assert "returned nan" in verdicts['event "far" when'].detail
    assert verdicts.passed


def test_second_derivatives_of_what_fails_are_not_judged():
    problem = ODE(
        forms.rhs,
        3,
        forms.NAMES,
        jacobian=lambda t, u, p: np.zeros((2, 3)),
        hessian_product=forms.rhs_hessian,
    )
    verdicts = check(problem, forms.U0, forms.P0, T)
    assert verdicts.wrong == ("jacobian",)
    assert verdicts.unclear == ("hessian_product du", "hessian_product dp")
    assert "'jacobian' returned shape (2, 3)" in verdicts["hessian_product du"].detail


# ---- PETSc style, on several ranks --------------------------------------------------------------


class Swarm:
    """u_i' = -a u_i^2 + t b u_i + t^2; the same map is the reset of an event at g = 0.

    g = a |u|^2 - t b + t^2 sum(u); at the event b becomes g.  ``wrong`` says what is wrong.
    """

    def __init__(self, wrong=(), n=20):
        self.wrong = wrong
        self.u = PETSc.Vec().createMPI(n, comm=PETSc.COMM_WORLD)
        self.here = np.arange(*self.u.getOwnershipRange())
        write(self.u, 1 + 0.5 * np.sin(self.here))
        self.p = np.array([0.7, 0.4])

    def problem(self):
        g = self.scalar('event "kick" when_')
        changed = self.scalar('event "kick" changes["b"] ', COST)
        value = terminal({part: getattr(changed, part) for part in ("value", *PARTS)})
        reset, f = self.map('event "kick" reset_'), self.map("", EQUATION)
        event = Event(
            g.value,
            reset.value,
            name="kick",
            changes={"b": Terminal(**value)},
            **{f"when_{part}": getattr(g, part) for part in PARTS},
            **{f"reset_{part}": getattr(reset, part) for part in PARTS},
        )
        return ODE(
            f.value,
            state=self.u,
            parameters=["a", "b"],
            jacobian=f.u,
            jacobian_p=f.p,
            rhs_t=f.t,
            hessian_product=f.hessian,
            hessian_t=f.hessian_t,
            events=[event],
        )

    def off(self, name):
        """A small error of one entry, on one rank."""
        return 1e-2 * (self.here == 5) if name in self.wrong else 0.0

    def scalar(self, prefix, names=None):
        names = {part: prefix + (names or {}).get(part, part) for part in PARTS}

        def error(part):
            return 1e-2 if names[part] in self.wrong else 0.0

        def by_u(t, u, p, out):
            write(out, 2 * p[0] * read(u) + t**2 + self.off(names["u"]))

        def hessian(t, u, p, du, dp, out):
            write(out, 2 * (dp[0] * read(u) + p[0] * read(du)))
            return np.array([2 * u.dot(du) + error("hessian"), 0.0])

        def hessian_t(t, u, p, out):
            out.set(2 * t)
            return np.array([0.0, -1.0 + error("hessian_t")]), 2 * u.sum()

        return SimpleNamespace(
            value=lambda t, u, p: p[0] * u.dot(u) - t * p[1] + t**2 * u.sum(),
            u=by_u,
            p=lambda t, u, p: np.array([u.dot(u), -t + error("p")]),
            t=lambda t, u, p: -p[1] + 2 * t * u.sum() + error("t"),
            hessian=hessian,
            hessian_t=hessian_t,
        )

    def map(self, prefix, names=None):
        names = {part: prefix + (names or {}).get(part, part) for part in PARTS}

        def value(t, u, p, out):
            write(out, -p[0] * read(u) ** 2 + t * p[1] * read(u) + t**2)

        def by_u(t, u, p, out):
            for i, entry in zip(
                self.here, -2 * p[0] * read(u) + t * p[1] + self.off(names["u"]), strict=True
            ):
                out.setValue(i, i, entry)
            out.assemble()

        def by_p(t, u, p, out):
            columns = (-(read(u) ** 2), t * read(u) + self.off(names["p"]))
            out.getDenseArray()[...] = np.column_stack(columns)
            out.assemble()

        def by_t(t, u, p, out):
            write(out, p[1] * read(u) + 2 * t + self.off(names["t"]))

        def hessian(t, u, p, w, du, dp, out):
            write(out, (-2 * (dp[0] * read(u) + p[0] * read(du)) + t * dp[1]) * read(w))
            write(out, read(out) + self.off(names["hessian"]))
            both = self.u.comm.tompi4py().allreduce(read(u) * read(w) @ read(du))
            return np.array([-2 * both, t * w.dot(du)])

        def hessian_t(t, u, p, w, out):
            write(out, p[1] * read(w) + 10 * self.off(names["hessian_t"]))
            return np.array([0.0, u.dot(w)]), 2 * w.sum()

        return SimpleNamespace(
            value=value, u=by_u, p=by_p, t=by_t, hessian=hessian, hessian_t=hessian_t
        )


PETSC_WRONG = [
    *(f'event "kick" when_{part}' for part in PARTS),
    *(f'event "kick" reset_{part}' for part in PARTS),
    *(f'event "kick" changes["b"] {name}' for name in COST.values()),
    "hessian_t",
]


@pytest.mark.mpi
@pytest.mark.parametrize("wrong", [(), PETSC_WRONG])
def test_wrong_distributed_derivatives_of_events_are_named_on_every_rank(wrong):
    swarm = Swarm(wrong)
    verdicts = check(swarm.problem(), swarm.u, swarm.p, T)
    assert bare(verdicts.wrong) == set(wrong), verdicts
    if not wrong:
        assert {row.verdict for row in verdicts.rows} == {"right"}
        assert max(row.error for row in verdicts.rows) < 1e-8
    assert len(set(swarm.u.comm.tompi4py().allgather(str(verdicts)))) == 1


@pytest.mark.mpi
def test_missing_petsc_style_derivatives_of_events_are_listed():
    swarm = Swarm()
    g, f = swarm.scalar(""), swarm.map("")
    event = Event(g.value, f.value, name="kick", when_hessian=g.hessian, when_hessian_t=g.hessian_t)
    problem = ODE(f.value, state=swarm.u, parameters=["a", "b"], jacobian=f.u, events=[event])
    verdicts = check(
        problem, swarm.u, swarm.p, T, objective=AtEvent(g.value, "kick", gradient_u=g.u)
    )
    missing = {row.name for row in verdicts.rows if row.verdict == "not supplied"}
    assert missing == {
        "jacobian_p",
        "rhs_t",
        *(f'event "kick" {name}' for name in ("when_u", "when_p", "when_t")),
        *(f'event "kick" {name}' for name in ("reset_u", "reset_p", "reset_t")),
        *(f'at event "kick" {name}' for name in ("gradient_p", "value_t")),
    }
    assert bare(verdicts.unclear) == {
        'event "kick" when_hessian',
        'event "kick" when_hessian_t',
    }
    assert verdicts.passed
