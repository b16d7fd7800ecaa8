"""Second derivatives that a run with events will need are asked for before the first run."""

import re
from dataclasses import replace

import forms
import numpy as np
import pytest
from petsc4py import PETSc

import daeosens as ds
from daeosens.costs import AtEvent, EventTime
from daeosens.problem import AUTONOMOUS
from tests.verify.test_check_event import PARTS, Swarm, running, terminal

SPAN = ds.Stepping((0.0, 0.4), "rk4", dt=0.1)


def functional_without(missing, terminal_event=False, explicit=False, early=False):
    """Return a PETSc-style functional with one derivative left out; its event may happen early."""
    swarm = Swarm()
    scalar, flow = swarm.scalar(""), swarm.map("")
    scalars = {part: getattr(scalar, part) for part in ("value", *PARTS)}
    whole = terminal(scalars)

    def left(prefix, keywords):
        return {name: entry for name, entry in keywords.items() if prefix + name != missing}

    level = 0.9 * scalar.value(0.0, swarm.u, swarm.p) if early else 0.0
    event = ds.Event(
        0.2 if explicit else lambda t, u, p: scalar.value(t, u, p) - level,
        flow.value,
        name="kick",
        terminal=terminal_event,
        changes={"b": ds.Terminal(**left("changes ", whole))},
        **({} if explicit else left("", {f"when_{part}": scalars[part] for part in PARTS})),
        **left("", {f"reset_{part}": getattr(flow, part) for part in PARTS}),
    )
    equations = {"jacobian": flow.u, "jacobian_p": flow.p, "rhs_t": flow.t}
    equations |= {"hessian_product": flow.hessian, "hessian_t": flow.hessian_t}
    problem = ds.ODE(
        flow.value, state=swarm.u, parameters=["a", "b"], **left("", equations), events=[event]
    )
    cost = (
        ds.Terminal(**left("terminal ", whole))
        + AtEvent(event="kick", **left("at event ", whole))
        + ds.Running(**left("running ", running(scalars)))
    )
    values = {"a": ds.Parameter(0.7), "b": ds.Parameter(0.4)}
    return ds.Reduced(problem, cost, SPAN, ds.Parameters(values, swarm.u))


SECOND = ("hessian_product", "hessian_t")
NEEDED = [
    *((name, f"'{name}'") for name in SECOND),
    *((f"when_{part}", f"'event \"kick\" when_{part}'") for part in ("hessian", "hessian_t")),
    *((f"reset_{part}", f"'event \"kick\" reset_{part}'") for part in ("hessian", "hessian_t")),
    *((f"changes {name}", f'\'event "kick" changes["b"] {name}\'') for name in SECOND),
    *((f"at event {name}", f"'at event \"kick\" {name}'") for name in SECOND),
    *((f"running {name}", f"'running {name}'") for name in SECOND),
    ("terminal hessian_product", "'terminal hessian_product'"),
]


@pytest.mark.mpi
@pytest.mark.parametrize(("missing", "named"), NEEDED)
def test_what_is_missing_is_named_before_the_first_run(missing, named):
    functional = functional_without(missing)
    with pytest.raises(ds.UnsupportedError) as raised:
        ds.minimize(functional, method="ntr")
    assert f"{named} is needed and was not supplied" in str(raised.value)
    assert f"expected: {missing.split()[-1]}=callback" in str(raised.value)
    assert functional.count.forward == 0


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("missing", "named"), [item for item in NEEDED if item[0] != "terminal hessian_product"]
)
def test_what_is_missing_at_events_is_named_before_the_sweeps(missing, named, monkeypatch):
    functional = functional_without(missing, early=True)
    run = functional.trajectory(functional.start())
    assert run.moving
    monkeypatch.setattr(
        "daeosens.derivatives.sweeps.second_order.sweep_forward", None
    )  # no sweep has begun
    with pytest.raises(ds.UnsupportedError, match=f"{re.escape(named)} is needed and was not"):
        ds.hessian_product(run, functional.objective, dp=[1.0, 0.0])


@pytest.mark.mpi
def test_second_derivatives_at_events_are_evaluated_once_for_a_hessian(monkeypatch):
    functional = functional_without("", early=True)
    seen = []
    monkeypatch.setattr(
        "daeosens.derivatives.sweeps.second_order.evaluate_at_events", lambda *_: seen.append(1)
    )
    for _ in range(2):
        functional.hessian_product(functional.start(), functional.start())
    assert seen == [1]


WIDE = np.zeros(4)
SHAPES = [
    ({"when_t": lambda t, u, p: WIDE}, {}, 'event "kick" when_t'),
    ({"when_u": lambda t, u, p: WIDE}, {}, 'event "kick" when_u'),
    ({"when_hessian_t": lambda t, u, p: (WIDE, WIDE, 0.0)}, {}, 'event "kick" when_hessian_t'),
    ({"reset_t": lambda t, u, p: WIDE}, {}, 'event "kick" reset_t'),
    ({"reset_hessian_t": lambda t, u, p, w: (WIDE, WIDE, 0.0)}, {}, 'event "kick" reset_hessian_t'),
    ({}, {"value_t": lambda t, u, p: WIDE}, 'at event "kick" value_t'),
    ({}, {"hessian_t": lambda t, u, p: (WIDE, WIDE, 0.0)}, 'at event "kick" hessian_t'),
]


@pytest.mark.parametrize(("of_event", "of_cost", "named"), SHAPES)
def test_wrong_shapes_are_told_by_the_name_of_the_callback(of_event, of_cost, named, monkeypatch):
    """Before the first run by methods that need second derivatives; else before the sweeps."""
    event = ds.Event(
        lambda t, u, p: t + 0.01 * u[0] - 0.2,
        lambda t, u, p: u * (1.0 + 0.1 * t),
        name="kick",
        **of_event,
    )
    problem = ds.ODE(forms.rhs, 3, forms.NAMES, events=[event])
    functional = ds.Reduced(
        problem, AtEvent(lambda t, u, p: t * u[0], "kick", **of_cost), SPAN, CONTROL
    )
    message = rf"callback '{named}' returned shape \(4,\)"
    with pytest.raises(ds.InputError, match=message):
        functional.check_second_order()
    assert functional.count.forward == 0
    run = functional.trajectory(functional.start())
    monkeypatch.setattr("daeosens.derivatives.sweeps.second_order.sweep_forward", None)
    with pytest.raises(ds.InputError, match=message):
        ds.hessian_product(run, functional.objective, dp=[1.0, 0.0, 0.0])


@pytest.mark.mpi
def test_what_is_there_is_enough():
    functional = functional_without("")
    functional.check_second_order()
    assert functional.count.forward == 0
    functional_without("terminal hessian_t").check_second_order()  # the end is at a fixed time


@pytest.mark.mpi
def test_the_time_of_a_terminal_cost_moves_if_an_event_may_end_the_run():
    with pytest.raises(ds.UnsupportedError, match="'terminal hessian_t' is needed"):
        functional_without("terminal hessian_t", terminal_event=True).check_second_order()


@pytest.mark.mpi
@pytest.mark.parametrize("missing", ["hessian_t", "running hessian_t", "at event hessian_t"])
def test_events_at_fixed_times_need_no_derivatives_in_time(missing):
    functional_without(missing, explicit=True).check_second_order()


def kinked_in_time(mass):
    """Return a functional whose equations have no second derivative in time automatically."""

    def rhs(t, u, p):
        return forms.rhs(t, u, p) + 0.01 * abs(float(t) - 9.0) * u

    problem = ds.ODE(
        rhs,
        3,
        forms.NAMES,
        mass=mass,
        rhs_t=lambda t, u, p: forms.rhs_t(t, u, p) - 0.01 * u,
        events=[ds.Event(0.2, lambda t, u, p: u * p[0])],
    )
    control = replace(CONTROL, consistent=True)
    return ds.Reduced(
        problem, ds.Terminal(forms.terminal), ds.Stepping((0.0, 0.4), "cn", dt=0.1), control
    )


def test_events_at_fixed_times_solve_for_algebraic_variables():
    """Their equations are differentiated in time there, those of a regular mass are not."""
    functional = kinked_in_time(forms.MASS)
    functional.check_second_order()
    assert np.isfinite(functional.hessian(functional.start())).all()
    functional = kinked_in_time(forms.SINGULAR)
    with pytest.raises(ds.UnsupportedError, match=r"(?s)callback 'rhs'.*try: hessian_t=callback"):
        functional.check_second_order()
    assert functional.count.forward == 0
    with pytest.raises(ds.UnsupportedError, match=r"(?s)callback 'rhs'.*try: hessian_t=callback"):
        functional.hessian(functional.start())


def rough(t, u, p):
    return np.array([float(u[0]) * p[0], 0.0, 0.0])


@pytest.mark.parametrize("mode", ["on", "off"])
def test_equations_of_every_mode_are_evaluated(mode):
    smooth, kinked = ds.ODE(forms.rhs, 3, forms.NAMES), ds.ODE(rough, 3, forms.NAMES)
    modes = {name: kinked if name == mode else smooth for name in ("on", "off")}
    problem = ds.hybrid(modes, "on", [ds.Event(0.2, mode="off")])
    functional = ds.Reduced(problem, ds.Terminal(forms.terminal), SPAN, CONTROL)
    message = f"mode \"{mode}\": second derivatives of callback 'rhs'"
    with pytest.raises(ds.UnsupportedError, match=message):
        functional.check_second_order()
    assert functional.count.forward == 0


CONTROL = ds.Parameters(
    {name: ds.Parameter(value) for name, value in zip(forms.NAMES, forms.P0, strict=True)}, forms.U0
)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ({"when": lambda t, u, p: float(u[0]) - 0.5}, "when"),
        ({"when": lambda t, u, p: u[0] - float(t)}, "when"),
        ({"when": lambda t, u, p: u[0], "reset": lambda t, u, p: [float(x) for x in u]}, "reset"),
        ({"when": 0.2, "changes": {"a": lambda t, u, p: float(p[0])}}, 'changes["a"]'),
    ],
)
def test_functions_that_have_no_second_derivatives_are_named(event, name):
    problem = ds.ODE(forms.rhs, 3, forms.NAMES, events=[ds.Event(**event, name="kick")])
    functional = ds.Reduced(problem, ds.Terminal(forms.terminal), SPAN, CONTROL)
    with pytest.raises(ds.UnsupportedError) as raised:
        functional.check_second_order()
    assert f"second derivatives of callback 'event \"kick\" {name}'" in str(raised.value)


def test_what_has_no_value_at_the_start_is_not_refused():
    """Events happen elsewhere, and not at the first instant."""
    event = ds.Event(
        lambda t, u, p: np.log(u[0] - 2.0), lambda t, u, p: np.sqrt(u - 3.0), name="far"
    )
    problem = ds.ODE(forms.rhs, 3, forms.NAMES, events=[event])
    cost = AtEvent(lambda t, u, p: u[0] / t + np.log(u[0] - 5.0), "far") + EventTime("far")
    ds.Reduced(problem, cost, SPAN, CONTROL).check_second_order()


def test_a_newton_method_needs_no_second_derivative_in_time_of_an_autonomous_problem():
    """PETSc style: the words are enough."""
    template = PETSc.Vec().createSeq(1, comm=PETSc.COMM_SELF)
    template.set(1.0)

    def rhs(t, u, p, out):
        u.copy(out)
        out.scale(-p[0])

    def jacobian(t, u, p, out):
        out.setValue(0, 0, -p[0])
        out.assemble()

    def jacobian_p(t, u, p, out):
        out.getDenseArray()[:, 0] = -u.array_r
        out.assemble()

    def hessian(t, u, p, w, du, dp, out):
        w.copy(out)
        out.scale(-dp[0])
        return np.array([-w.dot(du)])

    def unit(t, u, p, out):
        out.set(1.0)

    def nothing(t, u, p, du, dp, out):
        out.zeroEntries()
        return np.zeros(1)

    event = ds.Event(
        lambda t, u, p: u.array_r[0] - 0.5,
        name="half",
        when_u=unit,
        when_p="independent",
        when_t=AUTONOMOUS,
        when_hessian=nothing,
    )
    problem = ds.ODE(
        rhs,
        state=template,
        parameters=["rate"],
        jacobian=jacobian,
        jacobian_p=jacobian_p,
        rhs_t=AUTONOMOUS,
        hessian_product=hessian,
        events=[event],
    )
    control = ds.Parameters({"rate": ds.Parameter(1.2)}, template)
    goal = ds.Stepping((0.0, 2.0), "rk8vr", dt=0.1)
    late = AtEvent(  # (t - ln 2)^2: the time of the event is ln 2 / rate
        lambda t, u, p: (t - np.log(2.0)) ** 2,
        "half",
        gradient_u="independent",
        gradient_p="independent",
        value_t=lambda t, u, p: 2 * (t - np.log(2.0)),
        hessian_t=lambda t, u, p, out: (np.zeros(1), 2.0),
    )
    functional = ds.Reduced(problem, late, goal, control)
    result = ds.minimize(functional, method="ntr", gradient_tolerance=1e-10)
    assert result.x.array[0] == pytest.approx(1.0, rel=1e-8)
