"""Controls: one differentiable map from the optimisation variables to (u0, p)."""

import math

import numpy as np
import pytest
from distributed import make
from forms import FORMS, NAMES, P0, U0, initial_state, initial_state_p, make_stepping
from petsc4py import PETSc

import daeosens as ds
from daeosens import Terminal as Final
from daeosens.functional import FieldParameter, InitialState
from daeosens.petsc import gather, read

PROBLEM = FORMS["rhs"].analytic
MIXED = {
    "a": ds.Parameter(P0[0], lower=0.1, upper=2.0, scale="log"),
    "b": P0[1],
    "c": ds.Parameter(P0[2], upper=1.0),
}
"""One on a logarithmic scale, one fixed, one with an upper bound only."""


def vec(values, comm=PETSc.COMM_SELF):
    new = PETSc.Vec().createSeq(len(values), comm=comm)
    new.setArray(values)
    return new


# ---- the map -------------------------------------------------------------------------------------


def test_free_parameters_are_moved_on_their_scales():
    control = ds.Parameters(MIXED, U0)
    assert control.free_names == ("a", "c")
    x = control.start(PROBLEM)
    np.testing.assert_allclose(read(x), [math.log(P0[0]), P0[2]], rtol=1e-15)
    u0, p = control.unpack(PROBLEM, vec([math.log(0.5), 0.7]))
    np.testing.assert_array_equal(u0, U0)
    np.testing.assert_allclose(p, [0.5, P0[1], 0.7], rtol=1e-15)
    values = control.values_at(PROBLEM, x)
    assert values == pytest.approx(dict(zip(NAMES, P0, strict=True)), rel=1e-15)


def test_a_logarithm_beyond_the_largest_number_is_a_failed_solve():
    """A run at the largest number would have a gradient there that its values have not."""
    uptake = ds.ODE(
        lambda t, u, p: np.array([-p[0] * u[0] / (p[1] + u[0])]), 1, ["fastest", "half"]
    )
    entries = {name: ds.Parameter(1.0, scale="log") for name in ("fastest", "half")}
    control = ds.Parameters(entries, initial_state=[2.0])
    last = Final(lambda t, u, p: u[0])
    reduced = ds.Reduced(uptake, last, ds.Stepping((0.0, 1.0), "rk4", dt=0.1), control)
    near = np.array([690.0, 690.0])  # u' = -u, to rounding
    ahead, behind = (reduced.value(near + np.array([h, 0.0])) for h in (1e-4, -1e-4))
    slope = read(reduced.gradient(near))[0]
    assert slope == pytest.approx((ahead - behind) / 2e-4, rel=1e-7)
    assert slope == pytest.approx(-2 / math.e, rel=1e-5)
    for evaluate in (reduced.value, reduced.gradient):
        with pytest.raises(ds.SolveError, match=r'"fastest" = exp\(705\)\n.*exp\(700\)'):
            evaluate([705.0, 705.0])
    with pytest.raises(ds.SolveError, match=r'"half" = exp\(18817\)'):
        control.estimates_at(vec([1.0, 18817.0]))


def test_order_of_x_is_that_of_the_entries_and_of_p_that_of_the_problem():
    control = ds.Parameters({"c": ds.Parameter(3.0), "a": ds.Parameter(1.0), "b": 2.0}, U0)
    x = control.start(PROBLEM)
    assert read(x).tolist() == [3.0, 1.0]
    assert control.unpack(PROBLEM, x)[1].tolist() == [1.0, 2.0, 3.0]


def test_bounds_are_scaled_too():
    lower, upper = ds.Parameters(MIXED, U0).bounds(PROBLEM)
    np.testing.assert_allclose(read(lower), [math.log(0.1), -math.inf])
    np.testing.assert_allclose(read(upper), [math.log(2.0), 1.0])
    free = {"a": ds.Parameter(1.0), "b": 1.0, "c": 1.0}
    assert ds.Parameters(free, U0).bounds(PROBLEM) is None
    unbounded = {"a": ds.Parameter(1.0, lower=None, upper=None), "b": 1.0, "c": 1.0}
    assert ds.Parameters(unbounded, U0).bounds(PROBLEM) is None
    assert ds.Parameter([1.0, 2.0], lower=[None, 0.0]).entries("A")["A[0]"].lower == -math.inf
    from_zero = {"a": ds.Parameter(1.0, lower=0.0, scale="log"), "b": 1.0, "c": 1.0}
    assert read(ds.Parameters(from_zero, U0).bounds(PROBLEM)[0]).tolist() == [-math.inf]


def unpacked(control, x):
    u0, p = control.unpack(PROBLEM, x)
    return np.concatenate([read(u0) if isinstance(u0, PETSc.Vec) else u0, p])


CONTROLS = {
    "fixed u0": ds.Parameters(MIXED, U0),
    "u0(p)": ds.Parameters(MIXED, initial_state),
    "u0(p), analytic": ds.Parameters(MIXED, initial_state, initial_state_p),
    "all on log scales": ds.Parameters(
        {name: ds.Parameter(value, scale="log") for name, value in zip(NAMES, P0, strict=True)},
        initial_state,
    ),
    "initial state": InitialState(U0, P0),
}


@pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
def test_derivative_of_the_map_and_its_transpose(control, rng):
    """push_forward agrees with differences, pull_back is its transpose."""
    x = control.start(PROBLEM)
    dx = vec(rng.normal(size=x.size))
    du0, dp = control.push_forward(PROBLEM, x, dx)
    pushed = np.concatenate([np.zeros(3) if part is None else read(part) for part in (du0, dp)])

    def moved(eps):
        point = x.copy()
        point.axpy(eps, dx)
        return unpacked(control, point)

    difference = (8 * (moved(1e-3) - moved(-1e-3)) - moved(2e-3) + moved(-2e-3)) / 12e-3
    np.testing.assert_allclose(pushed, difference, rtol=0, atol=1e-10)

    run = ds.solve(PROBLEM, *control.unpack(PROBLEM, x), make_stepping("rk4"))
    gradient = ds.adjoint(run, Final(lambda t, u, p: u @ u * p[1]))
    pulled = control.pull_back(PROBLEM, x, gradient)
    backward = read(pulled) @ read(dx)
    forward = np.concatenate([gradient.u0, gradient.p]) @ pushed
    assert backward == pytest.approx(forward, rel=1e-12)


def test_check_accepts_what_fits():
    for control in CONTROLS.values():
        control.check(PROBLEM)


def test_initial_state_may_be_a_vector():
    control = ds.Parameters(MIXED, vec(U0))
    control.check(PROBLEM)
    functional = ds.Reduced(PROBLEM, Final(lambda t, u, p: u[0]), make_stepping("rk4"), control)
    other = ds.Parameters(MIXED, U0)
    same = ds.Reduced(PROBLEM, Final(lambda t, u, p: u[0]), make_stepping("rk4"), other)
    assert functional.value(functional.start()) == same.value(same.start())


def test_bounds_of_a_whole_initial_state():
    assert InitialState(U0, P0).bounds(PROBLEM) is None
    lower, upper = InitialState(U0, P0, lower=-1.0).bounds(PROBLEM)
    assert read(lower).tolist() == [-1.0] * 3
    assert read(upper).tolist() == [math.inf] * 3


@pytest.mark.mpi
def test_field_parameter_on_all_ranks():
    case = make(PETSc.COMM_WORLD, field=True)
    control = FieldParameter(case.p, case.u0, lower=0.5, upper=3.0)
    control.check(case.problem)
    x = control.start(case.problem)
    np.testing.assert_array_equal(gather(x), gather(case.p))
    u0, p = control.unpack(case.problem, x)
    assert p is x
    np.testing.assert_array_equal(gather(u0), gather(case.u0))
    assert [gather(v)[0] for v in control.bounds(case.problem)] == [0.5, 3.0]
    du0, dp = control.push_forward(case.problem, x, x)
    assert du0 is None
    assert dp is x


@pytest.mark.mpi
@pytest.mark.parametrize("distributed", [False, True])
def test_what_the_caller_changes_later_is_not_what_was_described(distributed):
    comm = PETSc.COMM_WORLD if distributed else PETSc.COMM_SELF
    case = make(comm, field=True)
    own = [case.p.copy(), case.u0.copy()]
    controls = FieldParameter(*own), InitialState(*reversed(own))
    before = [read(item).copy() for item in own]
    for item in own:
        item.set(7.0)
    x = controls[0].start(case.problem)
    np.testing.assert_array_equal(read(x), before[0])
    np.testing.assert_array_equal(read(controls[0].unpack(case.problem, x)[0]), before[1])
    x = controls[1].start(case.problem)
    np.testing.assert_array_equal(read(x), before[1])
    np.testing.assert_array_equal(read(controls[1].unpack(case.problem, x)[1]), before[0])


@pytest.mark.parametrize("form", [np.array, list, vec])
def test_values_near_each_other_belong_to_the_same_initial_state(form):
    """One of them is remembered, the other one is computed after the caller's change."""
    u0 = form(U0)
    control = ds.Parameters({**MIXED, "a": ds.Parameter(P0[0])}, u0)
    cost = Final(lambda t, u, p: u @ u)
    functional = ds.Reduced(PROBLEM, cost, make_stepping("rk4"), control)
    x = gather(functional.start())
    value, near = functional.value(x), functional.value(x * (1 + 1e-9))
    u0[0] = 50.0
    assert functional.value(x) == value
    assert functional.value(x * (1 + 1e-9)) == near == pytest.approx(value, rel=1e-7)


# ---- wrong descriptions --------------------------------------------------------------------------

ENTRIES = {
    "NaN": (ds.Parameter(math.nan), r'parameter "a": value = nan; expected: a finite number'),
    "infinite": (ds.Parameter(math.inf), r'parameter "a": value = inf; expected: a finite number'),
    "bounds": (
        ds.Parameter(1.0, lower=2.0, upper=0.0),
        r'parameter "a": bounds \[2, 0\]; expected: lower <= upper',
    ),
    "NaN bound": (ds.Parameter(1.0, lower=math.nan), r'parameter "a": bounds \[nan, inf\]'),
    "outside": (
        ds.Parameter(3.0, lower=0.0, upper=2.0),
        r'parameter "a": value = 3 outside its bounds \[0, 2\]; try: a start between them',
    ),
    "scale": (
        ds.Parameter(1.0, scale="log10"),
        r'parameter "a": scale = \'log10\'; expected: "linear" or "log"',
    ),
    "log of 0": (
        ds.Parameter(0.0, scale="log"),
        r'parameter "a": value = 0 on a log scale; expected: value > 0',
    ),
    "words": ("1.0", r'parameter "a": value = \'1.0\'; expected: a finite number'),
    "word as bound": (
        ds.Parameter(1.0, lower="0"),
        r'parameter "a": lower = \'0\'; expected: a number',
    ),
    "bounds by position": (
        ds.Parameter(1.0, 0.0, 2.0),
        r'parameter "a": free = 0.0; expected: True or False; try: lower=',
    ),
    "fixed NaN": (math.nan, r'parameter "a": value = nan; expected: a finite number'),
}


@pytest.mark.parametrize(("entry", "message"), ENTRIES.values(), ids=ENTRIES)
def test_wrong_entries_are_named(entry, message):
    with pytest.raises(ds.InputError, match=message):
        ds.Parameters({"a": entry, "b": 1.0}, U0)


def blocks_model():
    return ds.trace(
        lambda t, u, p: u * (p.r + p.A @ u), 2, parameters={"r": (2,), "A": (2, 2), "s": ()}
    )


def test_blocks_are_their_entries():
    model = blocks_model()
    rates = [0.5, 0.2]
    values = {
        "A[0,1]": ds.Parameter(0.3, upper=1.0),  # before its block, and counts
        "r": ds.Parameter(np.array(rates), free=[True, False], lower=[0.1, 0.0], scale="log"),
        "A": [[-1.0, 0.1], [ds.Parameter(0.2), -0.5]],
        "s": 2.0,
        "A[1,1]": ds.Parameter(-0.7),
    }
    control = ds.Parameters(values, [1.0, 0.8])
    assert control.free_names == ("A[0,1]", "r[0]", "A[1,0]", "A[1,1]")
    misfit = ds.LeastSquares([0.5, 1.0], [[1.0, 0.7], [0.9, 0.8]])
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    functional = ds.Reduced(model, misfit, stepping, control)
    x = functional.start()
    np.testing.assert_allclose(x.getArray(), [0.3, math.log(0.5), 0.2, -0.7])
    assert functional.bounds()[0].getArray()[1] == math.log(0.1)
    p = control.unpack(model, x)[1]
    np.testing.assert_array_equal(p, model.pack(r=rates, A=[[-1.0, 0.3], [0.2, -0.7]], s=2.0))
    assert min(ds.taylor(functional)) > 1.9
    gradient = model.unpack(
        ds.adjoint(ds.solve(model, [1.0, 0.8], p, stepping, misfit.times), misfit).p
    )
    by_x = [gradient.A[0, 1], 0.5 * gradient.r[0], gradient.A[1, 0], gradient.A[1, 1]]
    np.testing.assert_allclose(functional.gradient(x).getArray(), by_x, rtol=1e-12)


def test_a_prior_of_a_block_is_that_of_its_entries():
    model = blocks_model()
    values = {
        "r": ds.Parameter([0.5, 0.2]),
        "A": ds.Parameter([[-1.0, 0.1], [0.2, -0.5]]),
        "s": 1.0,
    }
    control = ds.Parameters(values, [1.0, 0.8])
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    mean, sigma = [[-0.9, 0.0], [0.0, -0.6]], [[0.1, 0.2], [0.3, 0.4]]
    entries = ["A[0,0]", "A[0,1]", "A[1,0]", "A[1,1]"]
    block, single = (
        ds.Reduced(model, prior, stepping, control)
        for prior in (
            ds.Prior(mean, sigma, names=["A"]),
            ds.Prior(np.ravel(mean), np.ravel(sigma), names=entries),
        )
    )
    x = block.start()
    assert block.value(x) == single.value(x) > 0
    np.testing.assert_array_equal(gather(block.gradient(x)), gather(single.gradient(x)))
    with pytest.raises(ds.InputError, match=r"prior mean has shape \(3,\)(.|\n)*shape \(6,\)"):
        ds.Reduced(model, ds.Prior([1.0, 2.0, 3.0], names=["A", "r"]), stepping, control)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"r": ds.Parameter(0.1), "A": np.eye(2), "s": 1.0},
            r'"r" is one number for r\[0\] ... r\[1\]; expected: an array, .*full\(\(2,\), value',
        ),
        (
            {"r": ds.Parameter([0.1, 0.2]), "A": 1.0, "s": 1.0},
            r'"A" is one number for A\[0,0\] ... A\[1,1\].*np.full\(\(2, 2\), value',
        ),
        (
            {"r": ds.Parameter([0.1, 0.2, 0.3]), "A": np.eye(2), "s": 1.0},
            r'parameter "r\[2\]" is not one of the problem',
        ),
        (
            {"r": ds.Parameter([0.1, 0.2], lower=[0.0] * 3)},
            r'"r": value, free, lower, upper have shapes \(2,\), \(\), \(3,\), \(\)',
        ),
        ({"r": [0.1, math.nan]}, r'parameter "r\[1\]": value = nan'),
        ({"r": ds.Parameter([0.1, -1.0], scale="log")}, r'"r\[1\]": value = -1 on a log scale'),
        ({"A": [[1.0], [1.0, 2.0]]}, r'parameter "A\[0\]": value = \[1\.0\]; expected: a finite'),
    ],
)
def test_blocks_that_do_not_fit_are_told(values, message):
    with pytest.raises(ds.InputError, match=message):
        ds.Parameters(values, [1.0, 1.0]).check(blocks_model())


def test_names_are_words():
    with pytest.raises(ds.InputError, match="Parameters: 1 problem\n  - the name 1 is no str"):
        ds.Parameters({1: ds.Parameter(1.0), "b": 1.0}, U0)


def test_values_without_names_are_named():
    with pytest.raises(ds.InputError, match=r"values is list\n.*Mapping\n  try: Parameters"):
        ds.Parameters([1.0, 2.0], U0)


def test_all_wrong_entries_are_said_at_once():
    with pytest.raises(ds.InputError, match="Parameters: 3 problems") as raised:
        ds.Parameters({"a": ds.Parameter(-1.0, lower=0.0, scale="log"), "b": math.inf}, U0)
    assert str(raised.value).count("\n  - parameter") == 3


FITS = {
    "unknown": (
        ds.Parameters({**MIXED, "aa": 1.0}, U0),
        r'parameter "aa" is not one of the problem\'s; try: "a"',
    ),
    "far": (ds.Parameters({**MIXED, "growth": 1.0}, U0), "of the problem's; try: a, b, c"),
    "missing": (
        ds.Parameters({"a": ds.Parameter(1.0), "b": 1.0}, U0),
        r'parameter "c" has no value; expected: an entry for it',
    ),
    "none free": (
        ds.Parameters(dict(zip(NAMES, P0, strict=True)), U0),
        r"no parameter is free; expected: at least one Parameter\(free=True\)",
    ),
    "free=False": (
        ds.Parameters({name: ds.Parameter(1.0, free=False) for name in NAMES}, U0),
        r"no parameter is free",
    ),
    "u0": (
        ds.Parameters(MIXED, [1.0]),
        r"initial_state has shape \(1,\)\n  expected: shape \(3,\)",
    ),
    "u0 NaN": (ds.Parameters(MIXED, [1.0, math.nan, 0.0]), r"initial_state is nan at index \[1\]"),
    "u0(p)": (
        ds.Parameters(MIXED, lambda p: p[:2]),
        r"callback 'initial_state' returned shape \(2,\)(.|\n)*expected: shape \(3,\)",
    ),
    "guess": (
        InitialState([1.0], P0),
        r"the initial guess has shape \(1,\)\n  expected: shape \(3,\)",
    ),
    "guess NaN": (InitialState([1.0, math.nan, 0.0], P0), r"the initial guess is nan"),
    "guess outside": (
        InitialState(U0, P0, lower=0.0),
        r"the start has values in \[-0\.3, 0\.8\]\n  expected: values within the bounds \[0, inf\]",
    ),
    "guess bounds": (
        InitialState(U0, P0, lower=2.0, upper=1.0),
        r"bounds \[2, 1\]\n  expected: lower <= upper",
    ),
    "guess p": (InitialState(U0, [1.0]), r"p has shape \(1,\)\n  expected: shape \(3,\)"),
    "field for numbers": (
        FieldParameter(vec(P0), U0),
        r"FieldParameter for a problem whose parameters are numbers(.|\n)*try: ODE\(..., param",
    ),
}


@pytest.mark.parametrize(("control", "message"), FITS.values(), ids=FITS)
def test_what_does_not_fit_the_problem_is_named_before_the_first_run(control, message):
    with pytest.raises(ds.InputError, match=message):
        ds.Reduced(PROBLEM, Final(lambda t, u, p: u[0]), make_stepping("rk4"), control)


@pytest.mark.mpi
def test_what_does_not_fit_a_field_is_named():
    case = make(PETSc.COMM_WORLD, field=True)
    with pytest.raises(
        ds.InputError,
        match=r"Parameters for a problem whose parameters are fields[\s\S]*FieldParameters",
    ):
        ds.Parameters({"r": ds.Parameter(1.0)}, case.u0).check(case.problem)
    with pytest.raises(ds.InputError, match=r"the start has values in \[1, 2\](.|\n)*\[0, 1\.2\]"):
        FieldParameter(case.p, case.u0, lower=0.0, upper=1.2).check(case.problem)
    with pytest.raises(ds.InputError, match=r"bounds \[1, 0\]\n  expected: lower <= upper"):
        FieldParameter(case.p, case.u0, lower=1.0, upper=0.0).check(case.problem)


def test_whole_numbers_are_numbers_like_any():
    """They made an array of integers, in which every later value lost what is behind the point."""
    control = ds.Parameters({"a": ds.Parameter(1), "b": 2, "c": ds.Parameter(3)}, initial_state=U0)
    functional = ds.Reduced(PROBLEM, Final(lambda t, u, p: u[0]), make_stepping("rk4"), control)
    x = functional.start()
    x.setValues([0, 1], [0.25, 2.75])
    np.testing.assert_array_equal(functional.trajectory(x).p, [0.25, 2.0, 2.75])
