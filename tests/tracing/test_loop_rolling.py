"""Loops in the place of statements: the same numbers to the last digit from far less code."""

import re

import numpy as np
import pytest

import daeosens as ds
from daeosens.tracing import loop_rolling as module
from daeosens.tracing.loop_rolling import rolled

HEAD = "static int casadi_f0(const double** arg, double** res) {\n  casadi_real a0, a1;\n"


def function(*statements):
    """Return a function of these statements, made long by others whose values nobody takes."""
    idle = ["a0=arg[0][0];"] * module.LONG
    every = "".join(f"  {statement}\n" for statement in (*idle, *statements))
    return f"{HEAD}{every}  return 0;\n}}"


def written(first, second, output):
    """Statements of res[0][output] = arg[0][first] * arg[1][second]."""
    return [
        f"a0=arg[0][{first}];",
        f"a1=arg[1][{second}];",
        "a0=(a0*a1);",
        f"if (res[0]!=0) res[0][{output}]=a0;",
    ]


def test_entries_may_be_shared_or_go_backwards():
    lines = [line for k in range(9) for line in written(3 * k, 7, 20 - k)]
    assert rolled(function(*lines)).splitlines()[1:-1] == [
        "  #pragma GCC ivdep",
        "  for (long k = 0; k < 9; k++) {",
        "    const double v0 = (arg[0][0 + 3 * k]*arg[1][7 + 0 * k]);",
        "    if (res[0]) res[0][20 + -1 * k] = v0;",
        "  }",
        "  return 0;",
    ]


def test_a_loop_ends_where_entries_go_on_otherwise():
    firsts = [*range(10), *range(30, 39), 50, 57]
    lines = [line for k, first in enumerate(firsts) for line in written(first, 0, k)]
    code = rolled(function(*lines))
    assert re.findall(r"k < (\d+)", code) == ["10", "9"]
    assert "const double v0 = (arg[0][30 + 1 * k]*arg[1][0 + 0 * k]);" in code
    assert (
        "{\n    const double v0 = (arg[0][57]*arg[1][0]);\n    if (res[0]) res[0][20] = v0;\n  }"
        in code
    )


@pytest.mark.parametrize("few", [module.LEAST - 1, module.LEAST])
def test_few_parts_remain_statements(few):
    code = function(*(line for k in range(few) for line in written(k, k, k)))
    assert (rolled(code) == code) == (few < module.LEAST)


def test_parts_that_share_results_are_one():
    lines = [line for k in range(20) for line in written(k, k, k)]
    lines += ["a1=arg[0][30];", "a0=(a0-a1);", "if (res[1]!=0) res[1][0]=a0;"]
    code = rolled(function(*lines))
    assert re.findall(r"k < (\d+)", code) == ["19"]
    assert code.count("res[1][0] = v1") == 1


def test_a_statement_that_is_unknown_leaves_the_function_as_it_is():
    lines = [line for k in range(20) for line in written(k, k, k)]
    code = function(*lines, "for (i=0; i<3; ++i) w[i]=0.;")
    assert rolled(code) == code


def layers(t, u, p):
    hidden = np.tanh(p.W @ u + p.b)
    gate = np.where(hidden > 0.1, hidden**2, np.minimum(hidden, p.low))
    return p.V @ gate - 2.0 * u + np.sin(t)


def derivatives(n, h, rng):
    model = ds.trace(layers, n, {"W": (h, n), "b": (h,), "low": (), "V": (n, h)})
    p = rng.normal(size=model.n_parameters) / np.sqrt(n)
    run = ds.solve(model, rng.normal(size=n), p, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    total = model.terminal(lambda t, u, p: u @ u)
    gradient = ds.adjoint(run, total)
    product = ds.hessian_product(run, total, dp=np.cos(np.arange(p.size)))
    return run.final.array.copy(), gradient.p, gradient.u0, ds.sensitivities(run).p, product.p


@pytest.mark.filterwarnings("ignore::daeosens.errors.KinkWarning")  # rectifiers
def test_numbers_are_those_of_the_statements_to_the_last_digit(monkeypatch):
    with_loops = derivatives(20, 31, np.random.default_rng(3))  # long enough for them
    monkeypatch.setattr(module, "LONG", 10**9)
    with_statements = derivatives(20, 31, np.random.default_rng(3))
    for item, other in zip(with_loops, with_statements, strict=True):
        np.testing.assert_array_equal(item, other)


@pytest.mark.slow
def test_code_does_not_grow_with_the_width_of_a_layer(monkeypatch):
    codes = []
    monkeypatch.setattr(
        "daeosens.tracing.c_source.rolled", lambda code: codes.append(rolled(code)) or codes[-1]
    )
    for h in (100, 200):
        ds.trace(layers, 20, {"W": (h, 20), "b": (h,), "low": (), "V": (20, h)})
    few, many = (code.count(";") for code in codes)
    assert many == few


def test_negative_constants_may_be_subtracted():
    """With warnings as errors: what does not compile is interpreted, after one."""
    model = ds.trace(lambda t, u, p: -p.g * (u - (-65.0)), 160, {"g": ()})
    run = ds.solve(model, np.zeros(160), [0.5], ds.Stepping((0.0, 1.0), "rk4", dt=0.05))
    np.testing.assert_allclose(run.final.array, 65.0 * np.expm1(-0.5), rtol=1e-6)


def test_what_neighbours_share_is_not_computed_again_where_that_takes_long():
    def shared(t, u, p):
        y = np.exp(u)
        return sum(np.roll(y, k) for k in range(-3, 4)) - 9.0 * u

    codes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "daeosens.tracing.c_source.rolled",
            lambda code: codes.append((code, rolled(code))) or codes[-1][1],
        )
        ds.trace(shared, 120, {"k": ()})
    before, after = (re.search(r"/\* rhs:(.|\n)*?\n}", code)[0] for code in codes[0])
    assert after.count("exp(") == before.count("exp(") == 120
