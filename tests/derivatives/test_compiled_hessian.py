"""Tangents and second-order sweeps of C functions: the numbers of the sweeps by steps in Python."""

import forms
import frozen
import numpy as np
import pytest
from interrupted import part_done

import daeosens as ds
from daeosens.derivatives.engines.compiled import tangent as native_tangent
from daeosens.derivatives.engines.compiled.tangent import linear_steps
from daeosens.derivatives.hessian import Memory, hessian_sweep
from daeosens.derivatives.tangent import tangent_sweep
from daeosens.functional import InitialState

RNG = np.random.default_rng(7)
EXPLICIT = ("rk1fe", "rk4", "rk3bs", "rk5dp", "rk8vr")


def van_der_pol(mu=100.0):
    model = ds.trace(
        lambda t, u, p: np.array([u[1], p.mu * ((1 - u[0] ** 2) * u[1] - u[0]) + 0.1 * np.sin(t)]),
        size=2,
        parameters={"mu": ()},
    )
    return model, np.array([2.0, -0.66]), np.array([mu]), (0.0, 0.5)


def chain(n, stiff=-200.0):
    """Return a chain of reactions with diffusion; its Jacobian has a pattern for large n."""

    def rhs(t, u, p):
        flow = p.rate[0] * u[:-1] * u[1:] - p.rate[1] * (u[:-1] - u[1:])
        out = np.zeros_like(u)
        out[:-1] -= flow
        out[1:] += flow
        return out + p.source**2 * np.cos(t)

    model = ds.trace(rhs, size=n, parameters={"rate": (2,), "source": ()})
    u0 = 1.0 + 0.5 * np.sin(np.arange(n))
    return model, u0, np.array([3.0, stiff, 0.3]), (0.0, 1.0)


def robertson():
    model = ds.trace(
        lambda t, u, p: np.array(
            [
                p[2] * u[1] * u[2] - p[0] * u[0],
                p[0] * u[0] - p[2] * u[1] * u[2] - p[1] * u[1] ** 2,
                p[1] * u[1] ** 2,
            ]
        ),
        size=3,
        parameters=3,
    )
    return model, np.array([1.0, 0.0, 0.0]), np.array([0.04, 3e7, 1e4]), (0.0, 40.0)


STIFF = {
    "2 unknowns": van_der_pol,
    "20 with a pattern": lambda: chain(20),
    "40 by LAPACK": lambda: chain(40),
}
SMOOTH = {
    "2 unknowns": lambda: van_der_pol(1.0),
    "12 unknowns": lambda: chain(12, -5.0),
}


@pytest.fixture(scope="module", params=STIFF)
def stiff(request):
    return STIFF[request.param]()


@pytest.fixture(scope="module", params=SMOOTH)
def smooth(request):
    return SMOOTH[request.param]()


def costs(model, run):
    """Return a cost of the final state, and one of several observations, the first among them."""
    times = run.times[[0, 3, 5, -1]]
    data = ds.LeastSquares(times, np.ones((4, model.size)), 0.1)
    end = model.terminal(lambda t, u, p: 0.5 * u @ u + u[0] ** 3 * p[0] + p[-1] ** 2 * t)
    return [end, data, 2.0 * end + data]


def directions(unit, p, count):
    """Return directions in units of each unknown and of each parameter."""
    return [(RNG.normal(size=unit.size) * unit, RNG.normal(size=p.size) * p) for _ in range(count)]


def scaled(product, unit, p):
    return np.concatenate([product.u0 * unit, product.p * p])


def close(fast, slow):
    """Compare to a part of the largest number."""
    np.testing.assert_allclose(fast, slow, rtol=0.0, atol=1e-12 * np.abs(slow).max())


def compare(case, stepping, checkpoint="states"):
    model, u0, p, _ = case
    run = ds.solve(model, u0, p, stepping, checkpoint=checkpoint)
    unit = np.abs(run.u).max(axis=0)
    along = [*directions(unit, p, 2), (u0, None), (None, p)]
    fast = [
        hessian_sweep(run, objective, along, engine="compiled") for objective in costs(model, run)
    ]
    pushed = tangent_sweep(run, along, engine="compiled")
    for item, cost in zip(fast, costs(model, run), strict=True):
        slow = hessian_sweep(run, cost, along, engine="vectors")
        assert item[0].engine == item[0].gradient.engine == "compiled"
        assert item[0].gradient.value == slow[0].gradient.value
        close(scaled(item[0].gradient, unit, p), scaled(slow[0].gradient, unit, p))
        for ours, theirs in zip(item, slow, strict=True):
            close(scaled(ours, unit, p), scaled(theirs, unit, p))
    for ours, theirs in zip(pushed, tangent_sweep(run, along, engine="vectors"), strict=True):
        close(ours.u, theirs.u)


@pytest.mark.parametrize("checkpoint", ["states", "stages"])
@pytest.mark.parametrize("method", forms.DIAGONAL)
def test_same_numbers_as_in_python(stiff, method, checkpoint):
    *_, (start, end) = stiff
    stepping = ds.Stepping((start, end), method, dt=0.07 * end)  # the last step is cut short
    compare(stiff, stepping, checkpoint)


@pytest.mark.parametrize("method", forms.DIAGONAL)
def test_stages_found_again_are_those_of_the_run_to_the_bit(stiff, method):
    model, u0, p, (start, end) = stiff
    stepping = ds.Stepping((start, end), method, dt=0.07 * end)
    runs = [ds.solve(model, u0, p, stepping, checkpoint=name) for name in ("states", "stages")]
    cost, along = costs(model, runs[0])[2], directions(u0, p, 2)
    values, kept = (hessian_sweep(run, cost, along) for run in runs)
    for again, once in zip(values, kept, strict=True):
        np.testing.assert_array_equal(again.u0, once.u0)
        np.testing.assert_array_equal(again.p, once.p)


@pytest.mark.parametrize("checkpoint", ["states", "stages"])
@pytest.mark.parametrize("method", EXPLICIT)
def test_same_numbers_as_in_python_by_explicit_methods(smooth, method, checkpoint):
    *_, (start, end) = smooth
    compare(smooth, ds.Stepping((start, end), method, dt=0.07 * end), checkpoint)


@pytest.mark.slow
def test_same_numbers_with_adaptive_steps():
    stepping = ds.Stepping((0.0, 40.0), "esdirk4", rtol=1e-6, atol=1e-10)
    compare(robertson(), stepping)


def test_same_numbers_if_memory_does_not_suffice(monkeypatch):
    case = van_der_pol()
    model, u0, p, span = case
    run = ds.solve(model, u0, p, ds.Stepping(span, "esdirk5", dt=0.03))
    along = directions(u0, p, 3)
    cost = costs(model, run)[2]
    kept = hessian_sweep(run, cost, along)
    monkeypatch.setattr(native_tangent, "STAGE_MEMORY", 0)
    memory = Memory()
    for _ in range(2):
        again = hessian_sweep(run, cost, along, memory)
        assert len(memory.first.compiled.weights) == 1
        for ours, theirs in zip(again, kept, strict=True):
            np.testing.assert_array_equal(ours.u0, theirs.u0)
            np.testing.assert_array_equal(ours.p, theirs.p)


def test_later_products_use_what_the_first_one_found(monkeypatch):
    model, u0, p, span = chain(12)
    variables = zip(model.parameter_names, p.tolist(), strict=True)
    control = ds.Parameters({name: ds.Parameter(value) for name, value in variables}, u0)
    cost = model.terminal(lambda t, u, p: u @ u)
    reduced = ds.Reduced(model, cost, ds.Stepping(span, "esdirk4", dt=0.1), control)
    whole = reduced.hessian(p)
    np.testing.assert_allclose(whole @ p, reduced.hessian_product(p, p).array, rtol=1e-12)
    kept = reduced._memory.first.compiled
    reduced.hessian_product(p, 2.0 * p)
    assert reduced._memory.first.compiled is kept
    value, gradient = reduced.value_and_gradient(p)
    run = reduced.trajectory(p)
    assert ds.hessian_product(run, cost, u0).gradient.value == value
    np.testing.assert_allclose(kept.mu, gradient.array, rtol=1e-12)


@pytest.mark.parametrize("method", [*forms.DIAGONAL, "rk4", "rk5dp"])
def test_the_hessian_is_symmetric(method):
    model, u0, p, span = chain(12, -20.0)
    run = ds.solve(model, u0, p, ds.Stepping(span, method, dt=0.03))
    (du, dp), (eu, ep) = directions(u0, p, 2)
    product, other = hessian_sweep(run, costs(model, run)[2], [(du, dp), (eu, ep)])
    forth, back = product.u0 @ eu + product.p @ ep, other.u0 @ du + other.p @ dp
    assert forth == pytest.approx(back, rel=1e-12)


@pytest.mark.parametrize("method", [*forms.DIAGONAL, "rk4", "rk5dp"])
def test_tangent_and_adjoint_agree(method):
    model, u0, p, span = chain(12, -20.0)
    run = ds.solve(model, u0, p, ds.Stepping(span, method, dt=0.03))
    cost = costs(model, run)[2]
    ((du, dp),) = directions(u0, p, 1)
    gradient = ds.adjoint(run, cost)
    expected = ds.tangent(run, du, dp).derivative(cost)
    assert gradient.u0 @ du + gradient.p @ dp == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", [*forms.DIAGONAL, "rk4", "rk5dp"])
def test_remainders_are_of_third_order(method):
    model, u0, p, span = van_der_pol(10.0)
    cost = model.terminal(lambda t, u, p: u @ u + p.mu * u[0])
    stepping = ds.Stepping(span, method, dt=0.03)
    for control, x in (
        (InitialState(u0, p), u0),
        (ds.Parameters({"mu": ds.Parameter(float(p[0]))}, u0), p),
    ):
        reduced = ds.Reduced(model, cost, stepping, control)
        assert ds.taylor(reduced, x, hessian=True).hessian_order > 2.9


@pytest.mark.parametrize("method", [*forms.DIAGONAL, *forms.EXPLICIT])
def test_products_are_differences_of_an_independent_program(method):
    """Non-autonomous, with observations on the way, and a last step that is cut."""
    model, case = ds.trace(forms.rhs, 3, list(forms.NAMES)), forms.COSTS["observations"]
    stepping = ds.Stepping((0.0, forms.T_END), method, dt=forms.DT)
    run = ds.solve(model, forms.U0, forms.P0, stepping, forms.OBSERVATION_TIMES)
    assert linear_steps(run, keep=True) is not None
    log, du, dp = (
        (run.times, run.step_sizes),
        np.array([0.3, -0.5, 0.2]),
        np.array([0.4, 0.1, -0.6]),
    )

    def gradient(eps):
        point = (forms.U0 + eps * du, forms.P0 + eps * dp)
        gradients = frozen.gradients(forms.FORMS["rhs"], method, log, [case], *point)
        return np.concatenate([item[0] for item in gradients])

    product = ds.hessian_product(run, case.objective, du, dp)
    eps = 2e-3
    weights = {1: 45 / 60, 2: -9 / 60, 3: 1 / 60}
    expected = sum(w * (gradient(k * eps) - gradient(-k * eps)) / eps for k, w in weights.items())
    values = np.concatenate([product.u0, product.p])
    np.testing.assert_allclose(values, expected, rtol=0.0, atol=1e-10 * abs(expected).max())


@pytest.mark.parametrize("method", [*forms.DIAGONAL, "rk4", "rk5dp"])
def test_remainders_are_of_third_order_where_the_start_follows_the_parameters(method):
    """With residuals that are not zero."""
    model = ds.trace(forms.rhs, 3, list(forms.NAMES))
    values = dict(zip(forms.NAMES, map(ds.Parameter, forms.P0.tolist()), strict=True))
    control = ds.Parameters(values, forms.initial_state)
    stepping = ds.Stepping((0.0, forms.T_END), method, dt=forms.DT)
    reduced = ds.Reduced(model, forms.COSTS["observations"].objective, stepping, control)
    reduced.hessian_product(forms.P0, forms.P0)
    assert reduced._memory.first.compiled is not None
    assert min(ds.taylor(reduced, forms.P0, hessian=True)) > 2.9


def test_against_differences_of_the_gradient():
    model, u0, p, span = van_der_pol()
    cost = model.terminal(lambda t, u, p: u[0] ** 2 + u[1])
    stepping = ds.Stepping(span, "esdirk5", dt=0.03)

    def gradient(mu):
        return ds.adjoint(ds.solve(model, u0, [mu], stepping), cost).p[0]

    step = 1e-2
    far, near = (
        (gradient(p[0] + k * step) - gradient(p[0] - k * step)) / (2 * k * step) for k in (2, 1)
    )
    product = ds.hessian_product(ds.solve(model, u0, p, stepping), cost, dp=[1.0])
    assert product.p[0] == pytest.approx((4 * near - far) / 3, rel=1e-7)


@pytest.mark.parametrize("wanted", [("p",), ("u0",), ("u0", "p")])
@pytest.mark.parametrize("method", ["esdirk4", "rk4"])
def test_sensitivities_by_columns(method, wanted):
    model, u0, p, span = chain(12, -20.0)
    run = ds.solve(model, u0, p, ds.Stepping(span, method, dt=0.03))
    rows = ds.sensitivities(run, with_respect_to=wanted)
    earlier = ds.sensitivities(run, float(run.times[7]), with_respect_to=wanted)
    assert rows.sweep == ("adjoint" if len(wanted) == 2 else "tangent")
    for ours, t in ((rows, None), (earlier, float(run.times[7]))):
        theirs = ds.sensitivities(run, t, with_respect_to=wanted, engine="vectors")
        for name in wanted:
            close(getattr(ours, name), getattr(theirs, name))


def test_a_problem_without_parameters():
    """The closed form of u' = -u^2: u(T) = u0 / (1 + u0 T), d2u/du0^2 = -2 T / (1 + u0 T)^3."""
    model = ds.trace(lambda t, u, p: -(u**2), size=1)
    for method in ("esdirk6", "rk8vr"):
        run = ds.solve(model, [0.8], None, ds.Stepping((0.0, 1.0), method, dt=0.02))
        assert linear_steps(run, keep=True) is not None
        product = ds.hessian_product(run, model.terminal(lambda t, u, p: u[0]), [1.0])
        assert product.u0[0] == pytest.approx(-2 / 1.8**3, rel=1e-10)
        assert product.p.size == 0


SMALLEST = {
    "one unknown": (lambda t, u, p: -np.cos(t) * u**2, [0.8], {}),
    "one parameter": (lambda t, u, p: -p.a * np.cos(t) * u**2, [0.8], {"a": ()}),
    "no parameters": (lambda t, u, p: [t * u[1], -np.sin(u[0])], [0.8, 0.1], {}),
    "a matrix of one entry": (lambda t, u, p: u * (p.r + p.A @ u), [0.5], {"r": (1,), "A": (1, 1)}),
}


@pytest.mark.parametrize("engine", ["auto", "vectors", "arrays"])
@pytest.mark.parametrize("method", ["rk4", "rk5dp", "beuler", "cn", "midpoint", "esdirk4"])
@pytest.mark.parametrize("name", SMALLEST)
def test_smallest_models_have_dual_gradients_and_symmetric_hessians(name, method, engine):
    """Observed at the start, on the way and at the end; the last step is cut."""
    rhs, u0, shapes = SMALLEST[name]
    model = ds.trace(rhs, len(u0), shapes)
    if engine == "arrays" and method == "esdirk4":
        engine = "vectors"
    p, rng = np.full(model.n_parameters, 0.7), np.random.default_rng(5)
    times = [0.0, 0.33, 0.97]
    cost = ds.LeastSquares(times, rng.normal(size=(3, model.size)), 0.5)
    run = ds.solve(model, u0, p, ds.Stepping((0.0, 0.97), method, dt=0.1), times[1:2])
    (du, dp), (eu, ep) = directions(np.array(u0), p, 2)
    gradient = ds.adjoint(run, cost, engine)
    along = ds.tangent(run, du, dp, engine=engine).derivative(cost)
    assert gradient.u0 @ du + gradient.p @ dp == pytest.approx(along, rel=1e-12)
    product, other = hessian_sweep(run, cost, [(du, dp), (eu, ep)], engine=engine)
    assert product.u0 @ eu + product.p @ ep == pytest.approx(
        other.u0 @ du + other.p @ dp, rel=1e-11
    )
    np.testing.assert_allclose(product.gradient.u0, gradient.u0, rtol=1e-12)
    np.testing.assert_allclose(product.gradient.p, gradient.p, rtol=1e-12)


def test_running_costs_are_left_to_arrays():
    model = ds.trace(
        lambda t, u, p: -p[0] * u**2, size=1, parameters=1, running=lambda t, u, p: p[0] * u[0] ** 2
    )
    for method in ("esdirk4", "rk4"):
        run = ds.solve(model, [0.8], [0.5], ds.Stepping((0.0, 1.0), method, dt=0.1))
        product = ds.hessian_product(run, model.running, [1.0], [0.5])
        again = ds.hessian_product(run, model.running, [1.0], [0.5], "vectors")
        assert (product.engine, again.engine) == ("arrays", "vectors")
        np.testing.assert_allclose(product.p, again.p, rtol=1e-12)


@pytest.mark.slow
def test_what_is_left_to_python():
    model, u0, p, span = van_der_pol()
    run = ds.solve(model, u0, p, ds.Stepping(span, "rk4", dt=0.001))
    assert tangent_sweep(run, [(u0, p)], "arrays")[0].engine == "arrays"
    assert tangent_sweep(run, [(u0, p)])[0].engine == "compiled"


def test_a_product_with_what_is_known_is_that_of_a_sweep_of_its_own():
    model, u0, p, span = van_der_pol()
    run = ds.solve(model, u0, p, ds.Stepping(span, "esdirk4", dt=0.03))
    value, other = directions(u0, p, 2)
    for cost in costs(model, run):
        memory = Memory()
        hessian_sweep(run, cost, [value], memory)
        (later,) = hessian_sweep(run, cost, [other], memory)
        alone = ds.hessian_product(run, cost, *other)
        for ours, theirs in ((later, alone), (later.gradient, alone.gradient)):
            np.testing.assert_array_equal(ours.u0, theirs.u0)
            np.testing.assert_array_equal(ours.p, theirs.p)


def test_runs_with_other_parameters_share_nothing():
    """The steps are kept with the model; each run puts its own parameters in."""
    model, u0, p, span = van_der_pol()
    stepping = ds.Stepping(span, "esdirk4", dt=0.03)
    runs = [ds.solve(model, u0, factor * p, stepping) for factor in (1.0, 1.5)]
    cost = costs(model, runs[0])[0]
    memories = [Memory(), Memory()]
    alone = [ds.hessian_product(run, cost, u0, p) for run in runs]
    for _ in range(2):
        for run, memory, expected in zip(runs, memories, alone, strict=True):
            (product,) = hessian_sweep(run, cost, [(u0, p)], memory)
            np.testing.assert_array_equal(product.p, expected.p)
    assert alone[0].p != alone[1].p


def test_directions_are_arrays_or_vectors_and_checked():
    model, u0, p, span = van_der_pol()
    run = ds.solve(model, u0, p, ds.Stepping(span, "rk4", dt=0.01))
    cost = costs(model, run)[0]
    du, dp = model.create_state(), model.create_parameters()
    du.setArray(u0)
    dp.setArray(p)
    np.testing.assert_array_equal(
        ds.hessian_product(run, cost, du, dp).u0, ds.hessian_product(run, cost, u0, p).u0
    )
    with pytest.raises(ds.InputError, match=r"dp has shape \(2,\)"):
        ds.hessian_product(run, cost, dp=[1.0, 2.0])
    with pytest.raises(ds.InputError, match=r"du0 has shape \(1,\)"):
        ds.hessian_product(run, cost, [1.0])
    with pytest.raises(ds.InputError, match="neither du0 nor dp was given"):
        ds.hessian_product(run, cost)


def test_values_that_are_not_finite_are_named():
    """A root has no derivative at 0, where this solution stays."""
    model = ds.trace(lambda t, u, p: np.array([-u[0], p[0] * np.sqrt(u[1])]), size=2, parameters=1)
    run = ds.solve(model, [1.0, 0.0], [0.5], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    with pytest.raises(ds.SolveError, match=r"'jacobian'|'hessian_product'|nan|inf"):
        ds.hessian_product(run, model.terminal(lambda t, u, p: u[1]), [1.0, 1.0])


def test_a_compiled_cost_that_is_not_finite_is_named():
    """The slope of u^1.5 has no derivative at 0, where this solution stays."""
    model = ds.trace(lambda t, u, p: -u, size=2)
    run = ds.solve(model, [1.0, 0.0], None, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    cost = model.terminal(lambda t, u, p: u[1] ** 1.5)
    assert ds.adjoint(run, cost).u0.tolist() == [0.0, 0.0]
    with pytest.raises(ds.SolveError, match=r"'terminal hessian_product' returned (nan|inf)"):
        ds.hessian_product(run, cost, [1.0, 1.0])


@pytest.mark.parametrize(("method", "dt"), [("rk4", 2e-6), ("esdirk4", 4e-6)])
@pytest.mark.parametrize("sweep", ["adjoint", "hessian_product"])
def test_sweeps_can_be_interrupted(sweep, method, dt):
    model, u0, p, span = van_der_pol(1.0)
    run = ds.solve(model, u0, p, ds.Stepping(span, method, dt=dt), checkpoint="stages")
    cost = model.terminal(lambda t, u, p: u @ u)
    sweeps = {
        "adjoint": lambda: ds.adjoint(run, cost, "compiled"),
        "hessian_product": lambda: ds.hessian_product(run, cost, u0, p, "compiled"),
    }
    assert part_done(sweeps[sweep]) < 0.5
