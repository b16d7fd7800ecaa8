"""Traced models: every derivative against closed forms, sweeps, and what is generated."""

import re
from pathlib import Path
from typing import Any

import casadi
import forms
import numpy as np
import pytest
from mpi4py import MPI

import daeosens as ds
from daeosens import Event, InputError, Parameter, Parameters, Reduced, Stepping
from daeosens.problem import Native
from daeosens.tracing import derivatives, execution, tracer
from daeosens.tracing.c_source import source
from daeosens.tracing.matrix_nodes import block_jacobian
from daeosens.tracing.named_parameters import admit_shapes

COMM = MPI.COMM_SELF
RNG = np.random.default_rng(3)
POINT = (0.37, RNG.normal(size=3), RNG.normal(size=3))
W, DU, DP = RNG.normal(size=(3, 3))
CLOSE = {"rtol": 1e-13, "atol": 1e-13}


pytestmark = pytest.mark.filterwarnings("ignore:traced models run without being compiled")


@pytest.fixture(params=["compiled", "interpreted"])
def engine(request, monkeypatch):
    if request.param == "interpreted":
        monkeypatch.setenv("CC", "no-such-compiler")
    return request.param


@pytest.fixture(params=["scalars", "matrices"])
def nodes(request, monkeypatch):
    if request.param == "matrices":
        monkeypatch.setattr(derivatives, "_operations", lambda _graph: (10**9, 1))
    return request.param


def evaluate(callback, *arguments, shapes=(), returns=False):
    """Call what ``executable`` returned."""
    if isinstance(callback, Native):
        callback = execution.Compiled(callback, "f", shapes, returns=returns)
    return callback(*arguments)


# ---- derivatives ---------------------------------------------------------------------------------


def test_every_derivative_of_a_vector_has_its_closed_form(engine, nodes):
    n = ((3,),)
    made = tracer.Tracer(3, admit_shapes(3), COMM)
    ready = made.compiled([made.graph(forms.rhs, "rhs", (3,))])
    assert all(isinstance(value, Native) for value in ready.values()) == (engine == "compiled")
    for name, closed in {"rhs": forms.rhs, "rhs_t": forms.rhs_t}.items():
        np.testing.assert_allclose(evaluate(ready[name], *POINT, shapes=n), closed(*POINT), **CLOSE)
    for name, closed in {"rhs_u": forms.rhs_u, "rhs_p": forms.rhs_p}.items():
        matrix = evaluate(ready[name], *POINT, shapes=((3, 3),))
        np.testing.assert_allclose(matrix, closed(*POINT), **CLOSE)
    pulled = evaluate(ready["rhs_pull"], *POINT, W, shapes=n * 2)
    np.testing.assert_allclose(pulled[0], forms.rhs_u(*POINT).T @ W, **CLOSE)
    np.testing.assert_allclose(pulled[1], forms.rhs_p(*POINT).T @ W, **CLOSE)
    curved = evaluate(ready["rhs_hessian"], *POINT, W, DU, DP, shapes=n * 2)
    for item, expected in zip(curved, forms.rhs_hessian(*POINT, W, DU, DP), strict=True):
        np.testing.assert_allclose(item, expected, **CLOSE)
    step, (t, u, p) = 1e-40j, POINT
    in_time = evaluate(ready["rhs_hessian_t"], *POINT, W, shapes=n * 2, returns=True)
    by_u = [np.imag(forms.rhs_t(t, u + step * e, p) @ W) / 1e-40 for e in np.eye(3)]
    by_p = [np.imag(forms.rhs_t(t, u, p + step * e) @ W) / 1e-40 for e in np.eye(3)]
    by_t = np.imag(np.array(rhs_t_by_time(t + step, u, p)) @ W) / 1e-40
    for item, expected in zip(in_time, (by_u, by_p, by_t), strict=True):
        np.testing.assert_allclose(item, expected, **CLOSE)


def rhs_t_by_time(t, u, p):
    """``forms.rhs_t`` for complex times."""
    return [2 * p[2] * np.cos(2 * t), 0.0, -p[0] * p[1] * u[0] * np.exp(-t)]


def cost(t, u, p):
    return np.sin(u[0] * p[1]) * np.exp(-t) + u[1] ** 2 * p[0] * t + p[2] ** 3 * u[2]


def test_every_derivative_of_a_number_is_that_of_complex_steps(engine, nodes):
    made = tracer.Tracer(3, admit_shapes(3), COMM)
    ready = made.compiled([made.graph(cost, "cost", ())])
    (t, u, p), step = POINT, 1e-40j
    sin, decay = np.sin(u[0] * p[1]), np.exp(-t)

    def gradients(t, u, p):
        inner = np.cos(u[0] * p[1]) * np.exp(-t)
        by_u = [p[1] * inner, 2 * u[1] * p[0] * t, p[2] ** 3]
        return np.array([*by_u, u[1] ** 2 * t, u[0] * inner, 3 * p[2] ** 2 * u[2]])

    value = evaluate(ready["cost"], *POINT, returns=True)
    assert value == pytest.approx(cost(*POINT), rel=1e-14)
    values = [evaluate(ready[f"cost_{x}"], *POINT, shapes=((3,),)) for x in "up"]
    np.testing.assert_allclose(np.concatenate(values), gradients(*POINT), **CLOSE)
    slope = evaluate(ready["cost_t"], *POINT, returns=True)
    assert slope == pytest.approx(-sin * decay + u[1] ** 2 * p[0], rel=1e-13)
    curved = evaluate(ready["cost_hessian"], *POINT, DU, DP, shapes=((3,),) * 2)
    expected = np.imag(gradients(t, u + step * DU, p + step * DP)) / 1e-40
    np.testing.assert_allclose(np.concatenate(curved), expected, **CLOSE)
    *in_time, by_t = evaluate(ready["cost_hessian_t"], *POINT, shapes=((3,),) * 2, returns=True)
    expected = np.imag(gradients(t + step, u, p)) / 1e-40
    np.testing.assert_allclose(np.concatenate(in_time), expected, **CLOSE)
    assert by_t == pytest.approx(sin * decay, rel=1e-13)


def test_what_is_zero_is_said_and_not_generated():
    made = tracer.Tracer(3, admit_shapes(3), COMM)
    graph = made.graph(lambda t, u, p: u[0] * t, "product", ())
    assert set(derivatives.derive(graph)) == {"", "_hessian", "_u", "_t", "_hessian_t"}
    model = ds.trace(lambda t, u, p: -p[0] * u, 3, 1)
    assert model.autonomous
    assert model.sources["jacobian"] == "compiled"


def laplacian(t, u, p):
    inner = u[2:] - 2.0 * u[1:-1] + u[:-2]
    return p.D * np.concatenate([[u[1] - u[0]], inner, [u[-2] - u[-1]]]) - p.k * u**3


def test_a_sparse_jacobian_is_found_by_colouring(nodes):
    n = 60
    model = ds.trace(laplacian, n, ["D", "k"])
    starts, columns = model.native["jacobian"].pattern
    assert starts[-1] == columns.size == 3 * n - 2
    assert ds.check(model, np.sin(np.arange(n)), [1.3, 0.4]).wrong == ()
    trajectory = ds.solve(model, np.ones(n), [1.3, 0.4], Stepping((0.0, 1.0), "cn", dt=0.1))
    assert ds.verify.duality(trajectory, model.terminal(lambda t, u, p: u @ u)) < 1e-12


def test_a_function_written_entry_by_entry_is_expanded():
    def chain(t, u, p):
        inner = [u[k - 1] - 2.0 * u[k] + u[k + 1] - p.k * u[k] ** 3 for k in range(1, 399)]
        return np.array([u[1] - u[0], *inner, u[-2] - u[-1]])

    made = tracer.Tracer(400, admit_shapes(["k"]), COMM)
    functions = derivatives.derive(made.graph(chain, "rhs", (400,)))
    assert all(function.function.is_a("SXFunction") for function in functions.values())
    assert functions["_u"].pattern[0][-1] == 3 * 400 - 2


# ---- sweeps --------------------------------------------------------------------------------------


def van_der_pol(t, u, p):
    return np.array([u[1], p.mu * (1 - u[0] ** 2) * u[1] - u[0]])


def lotka_volterra(t, u, p):
    return u * (p.rate + p.A @ u)


def robertson(t, u, p):
    slow, fast, back = p.slow * u[0], p.fast * u[1] ** 2, p.back * u[1] * u[2]
    return np.array([back - slow, slow - back - fast, u.sum() - 1.0])


def falling(t, u, p):
    return np.array([u[1], -p.gravity - 0.1 * u[1] * np.abs(u[1])])


BOUNCE = Event(
    lambda t, u, p: u[0] - 0.05 * np.sin(t),
    lambda t, u, p: np.array([u[0], -p.restitution * u[1] + 0.05 * t * u[0]]),
    changes={"restitution": lambda t, u, p: 0.9 * p.restitution},
    direction=-1,
    name="bounce",
)
RATE, A = [1.1, -0.4], [[-0.1, -0.4], [0.1, 0.05]]
# rhs, n, parameters, values, u0, stepping, more
MODELS = {
    "van der Pol": (
        (van_der_pol, 2, ["mu"]),
        {"mu": 1.7},
        [2.0, 0.3],
        Stepping((0.0, 2.0), "rk8vr", dt=0.05),
        {},
    ),
    "van der Pol, implicit": (
        (van_der_pol, 2, {"mu": ()}),
        {"mu": 5.0},
        [2.0, 0.3],
        Stepping((0.0, 2.0), "cn", dt=0.02),
        {},
    ),
    "Lotka-Volterra": (
        (lotka_volterra, 2, {"rate": (2,), "A": (2, 2)}),
        {"rate": RATE, "A": A},
        [2.0, 1.0],
        Stepping((0.0, 3.0), "rk4", dt=0.05),
        {},
    ),
    "Robertson": (
        (robertson, 3, {"slow": (), "fast": (), "back": ()}),
        {"slow": 0.4, "fast": 30.0, "back": 10.0},
        [1.0, 0.0, 0.0],
        Stepping((0.0, 2.0), "beuler", dt=0.02),
        {"mass": np.diag([1.0, 1.0, 0.0])},
    ),
    "mass with parameters": (
        (lotka_volterra, 2, {"rate": (2,), "A": (2, 2)}),
        {"rate": RATE, "A": A},
        [2.0, 1.0],
        Stepping((0.0, 1.0), "cn", dt=0.05),
        {"mass": lambda p: np.array([[2.0 + p.rate[0] ** 2, p.A[0, 1]], [0.0, 1.0]])},
    ),
    "ball": (
        (falling, 2, ["gravity", "restitution"]),
        {"gravity": 9.81, "restitution": 0.8},
        [1.0, 0.2],
        Stepping((0.0, 1.4), "rk4", dt=0.02),
        {"events": [BOUNCE]},
    ),
}


def density(t, u, p):
    return np.sin(t) * u[0] ** 2 + u @ u


def final(t, u, p):
    return u[0] * u[1] + 0.5 * u @ u + t * u[-1]


def reduced(name):
    (rhs, n, parameters), values, u0, stepping, more = MODELS[name]
    model = ds.trace(rhs, n, parameters, running=density, **more)
    objective = 0.3 * model.running + model.terminal(final)
    p = dict(zip(model.parameter_names, model.pack(values), strict=True))
    control = Parameters({entry: Parameter(x) for entry, x in p.items()}, initial_state=u0)
    return model, objective, Reduced(model, objective, stepping, control)


def test_parameters_packed_or_taken_apart_wrongly_are_named():
    model = ds.trace(lambda t, u, p: -p.rate * u, 1, {"rate": ()})
    with pytest.raises(ds.InputError, match=r"pack\(\[0.5\]\)\n  expected: parameters by name"):
        model.pack([0.5])
    with pytest.raises(ds.InputError, match=r"p has shape \(2,\)\n  expected: shape \(1,\)"):
        model.unpack([0.5, 0.5])


def test_unpacked_parameters_are_parameters_again():
    model = ds.trace(lambda t, u, p: -p.rate * u, 1, {"rate": (1,)})
    stepping = Stepping((0.0, 1.0), "rk4", dt=0.5)
    p = model.pack(rate=[2.0])
    first, again = (ds.solve(model, [1.0], value, stepping) for value in (p, model.unpack(p)))
    np.testing.assert_array_equal(again.at(1.0).array, first.at(1.0).array)


def test_model_without_running_cost_says_how_to_trace_one():
    model = ds.trace(lambda t, u, p: -p.rate * u, 1, {"rate": ()})
    with pytest.raises(ds.InputError, match=r"no running cost\n.*trace\(\.\.\., running=density\)"):
        _ = model.running + model.terminal(lambda t, u, p: u[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_hessians_pass_their_taylor_tests(name, engine):
    model, objective, functional = reduced(name)
    epsilons = [4e-3 * 0.5**k for k in range(4)]
    assert min(ds.taylor(functional, epsilons=epsilons)) > 1.9
    assert min(ds.taylor(functional, epsilons=epsilons, hessian=True)) > 2.9
    _, values, u0, stepping, _ = MODELS[name]
    trajectory = ds.solve(model, u0, model.pack(values), stepping)
    assert ds.verify.duality(trajectory, objective) < 1e-12


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ball"])
def test_traced_runs_and_gradients_are_those_of_the_same_callbacks(name):
    """As NumPy callbacks their derivatives are complex steps, which np.abs has not."""
    (rhs, n, _), values, u0, stepping, more = MODELS[name]
    model, objective, _ = reduced(name)
    split, keywords = model.shapes.split, dict(more)
    if callable(keywords.get("mass")):
        mass = keywords["mass"]
        keywords["mass"] = lambda p: mass(split(p))
    plain = ds.ODE(lambda t, u, p: rhs(t, u, split(p)), n, model.parameter_names, **keywords)
    same = 0.3 * ds.Running(density) + ds.Terminal(final)
    p, direction = model.pack(values), RNG.normal(size=(2, 10))
    run = ds.solve(model, u0, p, stepping)
    expected = ds.solve(plain, u0, p, stepping)
    du, dp = direction[0, :n], direction[1, : p.size]
    for first, second in (
        (ds.adjoint(run, objective), ds.adjoint(expected, same)),
        (
            ds.hessian_product(run, objective, du, dp),
            ds.hessian_product(expected, same, du, dp),
        ),
    ):
        np.testing.assert_allclose(first.u0, second.u0, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(first.p, second.p, rtol=1e-9, atol=1e-9)


def test_every_callback_of_a_model_passes_check():
    for name, (_, values, u0, _, _) in MODELS.items():
        model, objective, _ = reduced(name)
        checked = ds.check(model, np.array(u0) + 0.1, model.pack(values), 0.3, objective=objective)
        assert checked.wrong == ()


def test_modes_are_models_and_their_events_are_traced():
    shape = {"size": 1, "parameters": {"power": (), "limits": (2,)}}
    heating = ds.trace(lambda t, u, p: p.power - u, **shape)
    cooling = ds.trace(lambda t, u, p: -u, **shape)
    hot = Event(lambda t, u, p: u[0] - p.limits[1], direction=1, mode="off", name="hot")
    cold = Event(
        lambda t, u, p: u[0] - p.limits[0],
        direction=-1,
        mode=lambda t, u, p: "on" if u[0] < p.limits[1] else "off",
        name="cold",
    )
    thermostat = ds.hybrid(
        {"on": heating, "off": cooling}, "on", [heating.event(hot), heating.event(cold)]
    )
    p = heating.pack(power=1.0, limits=[0.4, 0.8])
    trajectory = ds.solve(thermostat, [0.5], p, Stepping((0.0, 4.0), "rk4", dt=0.05))
    assert [crossing.name for crossing in trajectory.crossings][:3] == ["hot", "cold", "hot"]
    assert ds.verify.duality(trajectory, heating.terminal(lambda t, u, p: u[0])) < 1e-12


# ---- large models --------------------------------------------------------------------------------


def network(t, u, p):
    return -u + np.tanh(p.A @ u + p.b) / (1.0 + np.linalg.norm(u))


def size_of_code(n):
    made = tracer.Tracer(n, admit_shapes({"A": (n, n), "b": (n,)}), COMM)
    functions = derivatives.derive(made.graph(network, "rhs", (n,)))
    assert "_p" not in functions
    return len(source(list(functions.values())))


def test_the_code_of_a_dense_model_does_not_grow_with_the_matrix():
    small, large = size_of_code(100), size_of_code(200)
    assert large < 1.01 * small < 60_000


def test_a_dense_model_with_many_parameters_is_differentiated_without_their_matrix():
    n = 200
    model = ds.trace(network, n, {"A": (n, n), "b": (n,)})
    assert model.n_parameters == 40_200
    assert model.sources["jacobian_p"] == "products"
    rng = np.random.default_rng(1)
    weights, bias = rng.normal(size=(n, n)) / np.sqrt(n), rng.normal(size=n)
    p, u0 = model.pack(A=weights, b=bias), rng.normal(size=n)
    total = model.terminal(lambda t, u, p: u @ u)
    for method in ("rk4", "cn"):
        trajectory = ds.solve(model, u0, p, Stepping((0.0, 0.2), method, dt=0.05))
        assert ds.verify.duality(trajectory, total) < 1e-12
        product = ds.hessian_product(trajectory, total, u0, p)
        again = ds.hessian_product(trajectory, total, bias, p[::-1].copy())
        first = product.u0 @ bias + product.p @ p[::-1]
        assert first == pytest.approx(again.u0 @ u0 + again.p @ p, rel=1e-12)


def test_the_code_of_ten_states_compiles_in_moments():
    """The time is measured by scripts/bench/tracing.py; it grows with the code."""
    made = tracer.Tracer(10, admit_shapes({"rate": (10,), "A": (10, 10)}), COMM)
    functions = derivatives.derive(made.graph(lotka_volterra, "rhs", (10,)))
    assert len(source(list(functions.values()))) < 180_000


N = 40
MATRIX_FUNCTIONS = {
    "network": network,
    "from the left": lambda t, u, p: (u @ p.A) * np.sin(u) + p.c * np.exp(-t * u),
    "two layers": lambda t, u, p: p.B @ np.tanh(p.A @ (u * u) / p.b) + u.sum() * p.b,
    "parts": lambda t, u, p: np.concatenate([(p.A @ u)[:10], (u @ p.A)[::-1][:30]]) * u,
    "choice": lambda t, u, p: np.where(p.A @ u > 0, p.B @ u, u**3),
    "kinks": lambda t, u, p: p.b * np.maximum(u, 0.0) @ p.B,
    "constants": lambda t, u, p: np.concatenate([p.b[:20], (p.A @ u)[:20]]) + 2.0 * u,
    "pairs": lambda t, u, p: p.b * np.sin(u[None, :] - u[:, None]).sum(axis=1),
    "weighted pairs": lambda t, u, p: (p.A * np.tanh(u[:, None] - u)).sum(axis=0) @ p.B,
}


@pytest.mark.parametrize("function", MATRIX_FUNCTIONS.values(), ids=MATRIX_FUNCTIONS)
def test_jacobians_of_matrix_nodes(function):
    shapes = admit_shapes({"A": (N, N), "B": (N, N), "b": (N,), "c": ()})
    graph = tracer.Tracer(N, shapes, COMM).graph(function, "f", (N,))
    inputs = [graph.t, graph.u, graph.p]
    blocks = casadi.Function("b", inputs, [block_jacobian(graph.value, graph.u)])
    columns = casadi.Function("c", inputs, [casadi.jacobian(graph.value, graph.u)])
    point = (0.3, RNG.normal(size=N), RNG.normal(size=shapes.size))
    np.testing.assert_allclose(np.array(blocks(*point)), np.array(columns(*point)), **CLOSE)
    assert blocks.n_instructions() < columns.n_instructions() / 5


def test_a_jacobian_without_rules_is_made_row_by_row(engine):
    """The product of two matrices that both change with the state has none."""
    n, shapes = 36, admit_shapes({"A": (36, 36)})

    def function(t, u, p):
        square = u.reshape(6, 6)
        return (square @ square).ravel() + np.tanh(p.A @ u)

    made = tracer.Tracer(n, shapes, COMM)
    graph = made.graph(function, "f", (n,))
    ready = made.compiled([graph])
    assert derivatives.derive(graph)["_u"].by_rows
    jacobian = casadi.Function(
        "j", [graph.t, graph.u, graph.p], [casadi.jacobian(graph.value, graph.u)]
    )
    point = (0.3, RNG.normal(size=n), RNG.normal(size=shapes.size))
    value = evaluate(ready["f_u"], *point, shapes=((n, n),))
    np.testing.assert_allclose(value, np.array(jacobian(*point)), **CLOSE)


def test_the_example_of_the_documentation(capsys):
    text = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text()
    exec(text.split("```python")[1].split("```")[0], {})
    printed = capsys.readouterr().out
    assert np.array(re.findall(r"-?\d+\.\d+(?:e[+-]\d+)?", printed), dtype=float).shape == (4,)


# ---- bad input -----------------------------------------------------------------------------------


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"size = 0\n  expected: an integer"):
        ds.trace(van_der_pol, 0, ["mu"])
    with pytest.raises(InputError, match=r"'running' returned shape \(2,\)\n  expected: a number"):
        ds.trace(van_der_pol, 2, ["mu"], running=lambda t, u, p: u)
    with pytest.raises(InputError, match=r"mass has shape \(2,\)"):
        ds.trace(van_der_pol, 2, ["mu"], mass=lambda p: np.ones(2))
    above = Event(lambda t, u, p: u[0] > 1.0, name="above")
    with pytest.raises(InputError, match=r"returned a comparison, \(1<u\[0\]\)(.|\n)*try: the"):
        ds.trace(van_der_pol, 2, ["mu"], events=[above])
    value = Event(lambda t, u, p: u[0], when_u=lambda t, u, p: [1.0, 0.0], name="given")
    with pytest.raises(InputError, match='event "given" of a traced model has when_u'):
        ds.trace(van_der_pol, 2, ["mu"], events=[value])


def test_a_missing_library_is_named(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("daeosens.tracing.needed.importlib.import_module", missing)
    with pytest.raises(InputError, match=r"tracing needs casadi(.|\n)*daeosens\[trace\]"):
        ds.trace(van_der_pol, 2, ["mu"])


def test_a_constant_mass_is_found_to_be_constant():
    def mass(p):
        return np.array([[2.0, 0.0], [1.0, 1.0]])

    model = ds.trace(van_der_pol, 2, ["mu"], mass=mass)
    assert model.constant_mass
    assert model.form == "mass"


def test_costs_of_another_model_are_refused_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    decay, wide = (ds.trace(lambda t, u, p: -u, size, 1) for size in (1, 3))
    run = ds.solve(decay, [1.0], [2.0], Stepping((0.0, 1.0), "rk4", dt=0.5))
    with pytest.raises(InputError, match=r"'value' is a traced function .* sizes \[1, 3, 1\]"):
        ds.derivatives.evaluate(run, wide.terminal(lambda t, u, p: u.sum()))


def test_costs_and_events_of_another_model_are_refused_before_they_read_beyond_the_arrays():
    decay, wide = (ds.trace(lambda t, u, p: -u, size, 1) for size in (1, 3))
    run = ds.solve(decay, [1.0], [2.0], Stepping((0.0, 1.0), "rk4", dt=0.5))
    cost = wide.terminal(lambda t, u, p: u.sum())
    message = "terminal is a C function of 3 unknowns and 1 parameters"
    for use in (ds.derivatives.evaluate, ds.adjoint):
        with pytest.raises(InputError, match=message):
            use(run, cost)
    many = ds.trace(lambda t, u, p: -u, 1, 500, running=lambda t, u, p: p[499])
    with pytest.raises(InputError, match="running is a C function of 1 unknowns and 500 param"):
        ds.adjoint(run, many.running)
    event = wide.event(Event(lambda t, u, p: u[0] - 0.5))
    with pytest.raises(InputError, match=r'event "event" when .* of 3 unknowns'):
        ds.solve(ds.hybrid({"only": decay}, "only", [event]), [1.0], [2.0], run.stepping)


@pytest.mark.parametrize(
    ("cost", "looked_at"),
    [
        (lambda t, u, p: u[0] ** 2 + np.exp(-p[0] * t), False),
        (lambda t, u, p: np.abs(u[0] - 1.0), True),
        (lambda t, u, p: np.linalg.norm(u), True),
        (lambda t, u, p: np.hypot(u[0], p[0]), True),
        (lambda t, u, p: np.max(u), True),
    ],
)
def test_costs_are_looked_at_for_kinks_where_they_may_have_some(cost: Any, looked_at: bool) -> None:
    model = ds.trace(lambda t, u, p: -p[0] * u, 2, 1)
    assert (model.terminal(cost).branches is not None) == looked_at


def test_powers_with_exponents_that_vary_decide_nothing():
    """Their exponents are cut off in parts of 2^-40, which are no branches."""
    model = ds.trace(lambda t, u, p: [p[0] ** np.sin(t) * u[0] - np.floor(u[0])], 1, ["q"])
    assert model.branches(0.1, np.array([1.5]), np.array([2.0])).values.tolist() == [1.0]


@pytest.mark.parametrize(
    ("rhs", "message"),
    [
        (lambda t, u, udot, p: udot + p[0] * u, r"\(t, u, p\)\n  try: tracing.trace_residual"),
        (lambda t, u: -u, r"'rhs' takes \(t, u\)\n  expected: \(t, u, p\)$"),
    ],
    ids=["of the rate", "without p"],
)
def test_a_function_of_other_arguments_is_refused_with_those_that_it_takes(rhs, message):
    with pytest.raises(InputError, match=message):
        ds.trace(rhs, 1, ["rate"])


def test_arguments_may_be_collected():
    model = ds.trace(lambda *point: -point[2][0] * point[1], 1, ["rate"])
    run = ds.solve(model, [1.0], [0.5], Stepping((0.0, 1.0), "rk4", dt=0.1))
    assert np.isclose(run.u[-1, 0], np.exp(-0.5), rtol=1e-6)
