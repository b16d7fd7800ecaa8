"""Starts that do not satisfy the algebraic equations: which methods carry their error along."""

from dataclasses import replace

import numpy as np
import pytest
from forms import DIAGONAL
from petsc4py import PETSc

import daeosens as ds
from daeosens.petsc import read, write

K = np.array([1.3])
MASS = np.diag([1.0, 0.0])
AVERAGING = ("cn", "theta:0.5", "theta:0.7", "theta:0.95", "midpoint")
FORGETFUL = ("beuler", "theta:1.0", *DIAGONAL)


def rhs(t, u, p):
    return np.array([-u[1], u[1] - p[0] * u[0]])


FORMS = {
    "M": ds.ODE(rhs, 2, ["k"], mass=MASS),
    "M(p)": ds.ODE(rhs, 2, ["k"], mass=lambda p: MASS * p[0]),
    "F": ds.DAE(lambda t, u, udot, p: MASS @ udot - rhs(t, u, p), 2, ["k"], linear_in_udot=True),
    "rows exchanged": ds.ODE(
        lambda t, u, p: rhs(t, u, p)[::-1], 2, ["k"], mass=np.array([[0.0, 0.0], [1.0, 0.0]])
    ),
}


def stepping(method, t=0.0):
    return ds.Stepping((t, t + 1.0), method, dt=0.1)


@pytest.mark.parametrize("method", AVERAGING)
@pytest.mark.parametrize("form", ["M", "M(p)", "F"])
def test_methods_that_carry_the_error_along_refuse_it(form, method):
    forgetful = "esdirk4" if form == "M" else "beuler"
    message = (
        r"the start at t = 2 .* row 1 has the residual -?0.5, and "
        rf'method = "{method}" would .*\n  expected: at most 2.\d+e-06\n'
        r"  try: consistent_state\(problem, u0, p\); Parameters\(..., consistent=True\) .* "
        rf'method="{forgetful}"'
    )
    with pytest.raises(ds.InputError, match=message):
        ds.solve(FORMS[form], [1.0, 0.8], K, stepping(method, 2.0))
    ds.solve(FORMS[form], [1.0, 1.3], K, stepping(method, 2.0))


@pytest.mark.parametrize("method", FORGETFUL)
def test_other_methods_forget_it_in_the_first_step(method):
    run = ds.solve(FORMS["M"], [1.0, 0.8], K, stepping(method))
    assert abs(run.u[1:, 1] - K[0] * run.u[1:, 0]).max() < 1e-12


def test_rows_are_those_of_the_mass_and_not_of_the_variables():
    with pytest.raises(ds.InputError, match=r"row 0 has the residual 0\.5"):
        ds.solve(FORMS["rows exchanged"], [1.0, 0.8], K, stepping("cn"))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_what_is_admitted_has_the_units_of_the_row(scale):
    """An error of some 1e-6 of the variables; that of Newton's method is much smaller."""
    problem = ds.ODE(
        lambda t, u, p: np.array([-u[1], scale * (np.exp(u[1]) - p[0] * u[0] - 300.0)]),
        2,
        ["k"],
        mass=MASS,
    )
    start = ds.consistent_state(problem, [1.0, 5.0], K).array
    for error, fits in ((0.0, True), (1e-8, True), (3e-7, True), (1e-4, False), (-1e-4, False)):
        u0 = start * [1.0, 1.0 + error]
        if fits:
            ds.solve(problem, u0, K, stepping("cn"))
        else:
            with pytest.raises(ds.InputError, match="does not satisfy the algebraic equations"):
                ds.solve(problem, u0, K, stepping("cn"))


def test_at_rest_rounding_is_admitted_and_nothing_else():
    ds.solve(FORMS["M"], [0.0, 0.0], K, stepping("cn"))
    ds.solve(FORMS["M"], [0.0, 1e-15], K, stepping("cn"))
    with pytest.raises(ds.InputError, match="row 1 has the residual -1e-06"):
        ds.solve(FORMS["M"], [0.0, 1e-6], K, stepping("cn"))


def test_small_entries_of_a_mass_are_rates():
    """A capacitance of 1e-20 beside currents of 1: its equation is no algebraic one."""
    problem = ds.ODE(rhs, 2, ["k"], mass=np.diag([1.0, 1e-20]))
    ds.solve(problem, [1.0, 0.8], K, stepping("cn"))


def test_a_row_may_lose_its_rate_with_the_parameters():
    problem = ds.ODE(rhs, 2, ["k"], mass=lambda p: np.diag([1.0, p[0] - 1.0]))
    with pytest.raises(ds.InputError, match="row 1"):
        ds.solve(problem, [1.0, 0.8], [1.0], stepping("cn"))
    ds.solve(problem, [1.0, 0.8], K, stepping("cn"))
    with pytest.raises(ds.InputError, match="row 1"):
        ds.solve(problem, [1.0, 0.8], [1.0], stepping("cn"))


def test_the_later_side_of_a_breakpoint_and_the_time_of_the_start_count():
    problem = ds.ODE(
        lambda t, u, p: np.array([-u[1], u[1] - (1.0 if t < 0.5 else 2.0 + t)]),
        2,
        mass=MASS,
        breakpoints=[0.5],
    )
    ds.solve(problem, [1.0, 2.5], None, stepping("cn", 0.5))
    with pytest.raises(ds.InputError, match=r"residual 1\.5"):
        ds.solve(problem, [1.0, 1.0], None, stepping("cn", 0.5))


def test_pieces_after_events_begin_consistently():
    halved = ds.Event(0.45, reset=lambda t, u, p: 0.5 * u + np.array([0.0, 9.0]))
    problem = replace(FORMS["M"], events=(halved,))
    run = ds.solve(problem, [1.0, 1.3], K, stepping("cn"))
    assert abs(run.u[:, 1] - K[0] * run.u[:, 0]).max() < 1e-12


def test_a_fit_from_a_start_that_does_not_follow_the_parameters_is_refused():
    misfit = ds.LeastSquares([0.5, 1.0], np.ones((2, 2)))
    control = ds.Parameters({"k": ds.Parameter(0.8)}, [1.0, 0.8])
    functional = ds.Reduced(FORMS["M"], misfit, stepping("cn"), control)
    functional.value([0.8])
    with pytest.raises(ds.InputError, match="consistent=True"):
        functional.value([0.9])


def paired(comm):
    """Return x' = -y, 0 = y - k x in pairs of unknowns, six on each rank but the first."""
    template = PETSc.Vec().create(comm=comm)
    template.setType(PETSc.Vec.Type.STANDARD)
    template.setSizes((2 if comm.rank == 0 else 6, PETSc.DETERMINE))

    def fill(out, pair):
        for k in range(*out.getOwnershipRange())[::2]:
            out.setValues([k, k + 1], [k, k + 1], pair)
        out.assemble()

    def petsc_rhs(t, u, p, out):
        x, y = read(u)[::2], read(u)[1::2]
        write(out, np.column_stack([-y, y - p[0] * x]).ravel())

    mass = PETSc.Mat().createAIJ([template.getSizes(), template.getSizes()], comm=comm)
    mass.setUp()
    fill(mass, [[1.0, 0.0], [0.0, 0.0]])
    return template, ds.ODE(
        petsc_rhs,
        state=template,
        parameters=["k"],
        mass=mass,
        jacobian=lambda t, u, p, out: fill(out, [[0.0, -1.0], [-p[0], 1.0]]),
    )


@pytest.mark.mpi
def test_every_rank_names_the_same_row():
    template, problem = paired(PETSc.COMM_WORLD)
    start, end = template.getOwnershipRange()
    write(template, np.tile([1.0, 1.3], (end - start) // 2))
    ds.solve(problem, template, K, stepping("cn"))
    if end == template.getSize():
        template.getArray()[-1] = 1.1
    template.assemble()
    with pytest.raises(ds.InputError, match=f"row {template.getSize() - 1} has the residual 0.2,"):
        ds.solve(problem, template, K, stepping("cn"))


@pytest.mark.parametrize(
    ("row", "start"),
    [
        (lambda t, u: 1e6 * (0.1 + 0.2 - 0.3 - u[1]), [0.0, 0.0]),
        (lambda t, u: 1e5 * np.sin(np.pi * t) - u[1], [0.0, 0.0]),
        (lambda t, u: 1e6 * (u[0] - u[1]), [0.0, 1e-17]),
    ],
)
def test_rounding_in_rows_of_large_numbers_is_no_error(row, start):
    problem = ds.ODE(lambda t, u, p: np.array([-u[0], row(t, u)]), 2, mass=MASS)
    ds.solve(problem, start, None, ds.Stepping((1.0, 2.0), "cn", dt=0.5))
    with pytest.raises(ds.InputError, match="row 1"):
        ds.solve(problem, [start[0], 1.0], None, ds.Stepping((1.0, 2.0), "cn", dt=0.5))


# ---- a mass that is singular without rows of zeros -----------------------------------------------

MIXED = np.array([[1.0, 1.0, 0.0], [2e6, 2e6, 0.0], [0.0, 0.0, 1.0]])


def mixed(t, u, p):
    """Half a million times the first row less the second one is 0 = 2 x - y, in its units."""
    rate = p[0] - u[0]
    return np.array([rate, 2e6 * rate + 1e3 * (u[1] - 2 * u[0]), u[0] - u[2]])


SUMS = {
    "M": ds.ODE(mixed, 3, ["a"], mass=MIXED),
    "M(p)": ds.ODE(mixed, 3, ["a"], mass=lambda p: MIXED * (1 + p[0])),
    "F": ds.DAE(lambda t, u, udot, p: MIXED @ udot - mixed(t, u, p), 3, ["a"], linear_in_udot=True),
}


@pytest.mark.parametrize("form", SUMS)
@pytest.mark.parametrize("method", ["cn", "midpoint", "theta:0.7"])
def test_sums_of_rows_without_rates_are_algebraic_equations(form, method):
    """The start (1, 1.5) would alternate about the line y = 2 x for ever."""
    message = (
        r"the sum of rows 0, 1 without u' has the residual -?0\.00025, and (.|\n)*"
        r'try: consistent_state.* or method="beuler"'
    )
    with pytest.raises(ds.InputError, match=message):
        ds.solve(SUMS[form], [1.0, 1.5, 0.0], [0.3], stepping(method))
    run = ds.solve(SUMS[form], [1.0, 2.0, 0.0], [0.3], stepping(method))
    np.testing.assert_allclose(run.u[:, 1], 2 * run.u[:, 0], rtol=1e-6)
    run = ds.solve(SUMS[form], [1.0, 1.5, 0.0], [0.3], stepping("beuler"))
    np.testing.assert_allclose(run.u[1:, 1], 2 * run.u[1:, 0], rtol=1e-6)


def test_sums_and_rows_of_zeros_are_found_together():
    mass = np.zeros((4, 4))
    mass[:3, :3] = MIXED

    def rhs(t, u, p):
        return np.array([*mixed(t, u, p), u[3] - 3 * u[0]])

    problem = ds.ODE(rhs, 4, ["a"], mass=mass)
    for y, z, name in ((1.5, 3.0, "the sum of rows 0, 1"), (2.0, 2.5, "row 3")):
        with pytest.raises(ds.InputError, match=f"{name}.* has the residual"):
            ds.solve(problem, [1.0, y, 0.0, z], [0.3], stepping("cn"))
    ds.solve(problem, [1.0, 2.0, 0.0, 3.0], [0.3], stepping("cn"))


def test_a_regular_mass_of_any_units_has_no_algebraic_equations():
    """Of linear elements, in units that differ by row and by column."""
    n = 30
    element = 4 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    mass = np.logspace(-9, 9, n)[:, None] * element * np.logspace(6, -6, n)
    problem = ds.ODE(lambda t, u, p: -mass @ u, n, mass=mass)
    run = ds.solve(problem, np.ones(n), None, stepping("cn"))
    np.testing.assert_allclose(run.final.array, run.final.array[0], rtol=1e-6)


@pytest.mark.parametrize("form", ["M(p)", "F"])
def test_consistent_starts_of_such_masses_are_refused_unless_constant(form):
    message = r"0 rows and 0 (.|\n)*new unknowns, in which M is d"
    with pytest.raises(ds.UnsupportedError, match=message):
        ds.consistent_state(SUMS[form], [1.0, 1.5, 0.0], [0.3])
    start = ds.Parameters({"a": ds.Parameter(0.3)}, [1.0, 1.5, 0.0], consistent=True)
    cost = ds.LeastSquares([1.0], [0.5], observe=[0])
    with pytest.raises(ds.UnsupportedError, match=message):
        ds.Reduced(SUMS[form], cost, stepping("cn"), start).value(start.start())


@pytest.mark.parametrize("large", [1.0, 1e4, 1e8])
def test_a_large_equation_does_not_hide_the_error_of_a_small_one(large):
    """Of the sums without rates one has both: small changes of the large one exceed the error."""

    def rates(t, u, p):
        x, y, z = u
        return np.array([-x, -x + (y - 1.0), -x + large * (z - x)])

    problem = ds.ODE(rates, 3, mass=np.ones((3, 3)))
    stepping = ds.Stepping((0.0, 1.0), "cn", dt=0.1)
    with pytest.raises(ds.InputError, match=r"the sum of rows 0, 1 .* has the residual -?0\.01,"):
        ds.solve(problem, [1.0, 1.01, 1.0], None, stepping)
    right = ds.solve(problem, [1.0, 1.0, 1.0], None, stepping)
    assert abs(right.u[:, 1] - 1.0).max() < 1e-10


def test_equations_with_a_pole_at_zero_are_asked_at_the_start_alone():
    """Of x' = -k / x, y = 1 / x the solution x is the root of x(0)^2 - 2 k t."""

    def residual(t, u, udot, p):
        return np.array([udot[0] + p[0] / u[0], u[1] - 1.0 / u[0]])

    run = ds.solve(
        ds.DAE(residual, 2, ["k"]), [3.0, 1.0 / 3.0], K, ds.Stepping((0.0, 1.0), rtol=1e-8)
    )
    cost = ds.Terminal(lambda t, u, p: u[0])
    root = np.sqrt(9.0 - 2.0 * K[0])
    gradient, product = ds.adjoint(run, cost), ds.hessian_product(run, cost, dp=[1.0])
    values = [run.u[-1, 0], gradient.u0[0], gradient.p[0], product.p[0]]
    assert np.allclose(values, [root, 3.0 / root, -1.0 / root, -1.0 / root**3], rtol=1e-7)
