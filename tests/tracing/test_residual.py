"""Traced residuals F(t, u, u', p) = 0: the same problem as by callbacks, with compiled derivatives.

``test_support.py`` proves their derivatives for every method against independent programs.
"""

import numpy as np
import pytest
from forms import FORMS, NAMES, P0, U0, make_stepping
from scipy import sparse

import daeosens as ds
from daeosens.problem import Native

N = 30
"""Unknowns of a chain, of which every other one is algebraic."""


def chain(t, u, udot, p):
    """Heat conduction of capacities that depend on the state, beside algebraic fluxes."""
    heat, flux = u[0::2], u[1::2]
    inflow = np.concatenate([[p.feed * np.sin(t)], flux[:-1]])
    later = np.concatenate([heat[1:], [0.0]])
    balance = (1.0 + 0.1 * heat**2) * udot[0::2] - inflow + flux
    law = flux - p.conductance * (heat - later) - 0.05 * flux**3
    return np.stack([balance, law], axis=1).ravel()


@pytest.fixture(scope="module")
def model() -> ds.tracing.Model:
    return ds.tracing.trace_residual(chain, N, {"conductance": (N // 2,), "feed": ()})


def by_callbacks(model: ds.tracing.Model) -> ds.problem.Problem:
    return ds.DAE(
        lambda t, u, udot, p: chain(t, u, udot, model.unpack(p)),
        N,
        model.parameter_names,
        jacobian=lambda *x: dense(model.residual_u, model, x),
        jacobian_udot=lambda *x: dense(model.residual_udot, model, x),
    )


def dense(derivative, model, point):
    t, u, udot, p = point
    vecs = [model.admit_state(value) for value in (u, udot)]
    matrix = derivative.create(t, *vecs, p)
    derivative.fill(t, *vecs, p, matrix)
    return matrix.convert("dense").getDenseArray().copy()


P = {"conductance": np.linspace(0.5, 1.5, N // 2), "feed": 0.8}
STEPPING = ds.Stepping((0.0, 1.0), "cn", dt=0.1, options={"snes_rtol": 1e-14})


def start(model: ds.tracing.Model) -> np.ndarray:
    return ds.consistent_state(model, np.tile([0.5, 0.0], N // 2), P).array


def test_jacobians_are_sparse_compiled_and_right(model, rng):
    assert isinstance(model.native["residual"], Native)
    assert model.native["jacobian"].pattern is not None
    assert model.native["jacobian_udot"].pattern is not None
    t, u, udot = 0.3, rng.normal(size=N), rng.normal(size=N)
    p = model.pack(P)

    def residual(u, udot, p):
        return chain(t, u, udot, model.unpack(p))

    for derivative, columns in (
        (model.residual_u, [residual(u + 1e-20j * e, udot, p) for e in np.eye(N)]),
        (model.residual_udot, [residual(u, udot + 1e-20j * e, p) for e in np.eye(N)]),
        (model.residual_p, [residual(u, udot, p + 1e-20j * e) for e in np.eye(p.size)]),
    ):
        exact = np.imag(columns).T / 1e-20
        np.testing.assert_allclose(dense(derivative, model, (t, u, udot, p)), exact, atol=1e-13)


def test_derivatives_pass_their_taylor_tests(model):
    misfit = model.terminal(lambda t, u, p: u @ u + p.feed * u[0])
    control = ds.Parameters(
        {"conductance": ds.Parameter(P["conductance"]), "feed": ds.Parameter(P["feed"])},
        initial_state=start(model),
        consistent=True,
    )
    taylor = ds.taylor(ds.Reduced(model, misfit, STEPPING, control), hessian=True)
    assert taylor.passed


def test_answers_are_those_of_callbacks(model, rng):
    u0, cost = start(model), ds.Terminal(lambda t, u, p: u @ u)
    dp = rng.normal(size=model.n_parameters)
    ours, theirs = (ds.solve(value, u0, P, STEPPING) for value in (model, by_callbacks(model)))
    np.testing.assert_allclose(ours.u, theirs.u, atol=1e-12)
    gradients = [ds.adjoint(run, cost) for run in (ours, theirs)]
    np.testing.assert_allclose(gradients[0].p, gradients[1].p, atol=1e-11)
    np.testing.assert_allclose(gradients[0].u0, gradients[1].u0, atol=1e-11)
    along = [ds.tangent(run, dp=dp).u[-1] for run in (ours, theirs)]
    np.testing.assert_allclose(along[0], along[1], atol=1e-11)


def test_whether_the_rate_is_linear_is_read_off_the_graph():
    assert ds.tracing.trace_residual(FORMS["F linear"].residual, 3, NAMES).constant_mass
    for residual in (
        FORMS["F"].residual,
        lambda t, u, udot, p: p[0] * udot + u,
        lambda t, u, udot, p: (1.0 + t) * udot + u,
        lambda t, u, udot, p: udot**2 + udot - u,
    ):
        assert not ds.tracing.trace_residual(residual, 3, NAMES).constant_mass


def test_petsc_s_own_adjoint_is_used_where_it_is_exact():
    linear = ds.tracing.trace_residual(FORMS["F linear"].residual, 3, NAMES)
    run = ds.solve(linear, U0, P0, make_stepping("cn"))
    cost = linear.terminal(lambda t, u, p: u @ u)
    ours, petsc = ds.adjoint(run, cost), ds.adjoint(run, cost, engine="tsadjoint")
    np.testing.assert_allclose(petsc.p, ours.p, rtol=1e-10)
    general = ds.tracing.trace_residual(FORMS["F"].residual, 3, NAMES)
    with pytest.raises(ds.UnsupportedError, match="F_udot may depend on u or u'"):
        ds.adjoint(ds.solve(general, U0, P0, make_stepping("cn")), cost, engine="tsadjoint")


def test_events_and_running_costs_are_traced_too():
    def tank(t, u, udot, p):
        return np.array([udot[0] + p.rate * u[0]])

    drained = ds.Event(lambda t, u, p: u[0] - 0.5, lambda t, u, p: 2.0 * u)
    model = ds.tracing.trace_residual(
        tank, 1, ["rate"], events=[drained], running=lambda t, u, p: u[0] ** 2
    )
    stepping = ds.Stepping((0.0, 2.5), "cn", dt=0.01)
    run = ds.solve(model, [1.0], {"rate": 0.5}, stepping)
    assert [crossing.t for crossing in run.crossings] == pytest.approx(
        [2.0 * np.log(2.0)], rel=1e-4
    )
    plain = ds.trace(
        lambda t, u, p: -p.rate * u,
        1,
        ["rate"],
        events=[drained],
        running=lambda t, u, p: u[0] ** 2,
    )
    other = ds.solve(plain, [1.0], {"rate": 0.5}, stepping)
    ours, theirs = (ds.adjoint(value, value.problem.running) for value in (run, other))
    np.testing.assert_allclose([*ours.p, *ours.u0], [*theirs.p, *theirs.u0], rtol=1e-9)


@pytest.mark.parametrize(
    ("residual", "message"),
    [
        (lambda t, u, udot, p: u[:1], r"'residual' returned shape \(1,\)(.|\n)*shape \(2,\)"),
        (lambda t, u, p: u, "residual"),
    ],
)
def test_what_cannot_be_traced_is_told(residual, message):
    with pytest.raises((ds.InputError, TypeError), match=message):
        ds.tracing.trace_residual(residual, 2, ["rate"])


def test_the_jacobians_share_one_pattern_so_that_steps_add_them_in_place(model):
    patterns = [model.native[name].pattern for name in ("jacobian", "jacobian_udot")]
    for ours, theirs in zip(*patterns, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    starts, columns = patterns[0]
    structure = sparse.csr_array((np.ones(columns.size), columns, starts), shape=(N, N))
    assert structure.diagonal().all()
