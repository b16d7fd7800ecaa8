"""What callbacks return and raise."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives import evaluate
from daeosens.errors import NotFiniteError
from daeosens.problem import Products
from daeosens.problem.callback_guard import check_output, guarded, unwrapped

# ---- what callbacks return -----------------------------------------------------------------------


def test_right_output_is_passed_on():
    assert check_output([1, 2], "f", (2,), 0.0).tolist() == [1, 2]
    assert check_output(3.0, "r", (), 0.0) == 3.0


@pytest.mark.parametrize("method", ["rk4", "cn", "beuler", "esdirk3"])
@pytest.mark.parametrize(
    "returned",
    [
        lambda rate: rate.astype(">f8"),
        lambda rate: rate.astype("<f8"),
        lambda rate: rate.astype(np.longdouble),
        lambda rate: np.stack([rate, 0 * rate])[:, ::-1][0, ::-1],
        np.ma.masked_array,
        list,
    ],
)
def test_numbers_are_taken_as_they_are_however_they_are_kept(method, returned):
    """Of bytes in the other order, as big-endian files have them, runs made other numbers."""
    stepping = ds.Stepping((0.0, 1.0), method, dt=0.1)
    runs = [
        ds.solve(
            ds.ODE(
                lambda t, u, p, result=result: result(-p[0] * u),
                2,
                1,
                jacobian=lambda t, u, p: -p[0] * np.eye(2),
                jacobian_p=lambda t, u, p: -u[:, None],
            ),
            np.array([1.0, 2.0], dtype=kind),
            np.array([0.5], dtype=kind),
            stepping,
        )
        for result, kind in ((returned, ">f8"), (lambda rate: rate, "f8"))
    ]
    np.testing.assert_array_equal(runs[0].u, runs[1].u)
    gradients = [ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0])) for run in runs]
    np.testing.assert_array_equal(gradients[0].p, gradients[1].p)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [1.0],
            r"callback 'f' returned shape \(1,\) at t = 0\.25 \(rank 0\)\n  expected: shape \(2,\)",
        ),
        (
            [[1.0, 2.0]],
            r"returned shape \(1, 2\)(.|\n)*try: return an array of shape \(2,\) from 'f'",
        ),
        (None, r"callback 'f' returned NoneType at t = 0\.25 \(rank 0\)\n  expected: real numbers"),
        (["a", "b"], r"callback 'f' returned <U1 values"),
        ([1j, 2.0], r"callback 'f' returned complex128 values"),
        ([True, False], r"callback 'f' returned bool values(.|\n)*try: the difference a - b"),
        (
            [[1.0], [1.0, 2.0]],
            r"callback 'f' returned no array at t = 0\.25 \(rank 0\): setting an",
        ),
    ],
)
def test_wrong_output_names_callback_time_and_rank(values, message):
    with pytest.raises(ds.InputError, match=message):
        check_output(values, "f", (2,), 0.25)


@pytest.mark.parametrize(
    ("values", "entry"),
    [([1.0, np.nan], r"nan in entry \[1\]"), ([np.inf, np.nan], r"inf in entry \[0\]")],
)
def test_output_that_is_not_finite_is_a_failed_solve(values, entry):
    message = rf"callback 'f' returned {entry} at t = 0\.25 \(rank 0\)\n  expected: finite values"
    with pytest.raises(ds.SolveError, match=message):
        check_output(values, "f", (2,), 0.25)


def star(t, u, p):
    density = np.where(u[0] > 0.0, np.abs(u[0]) ** p[0], 0.0)
    return np.array([u[1], -density - 2.0 * u[1] / t])


def mirrored(t, u, p):
    mass = np.log(u[0] - 1.5)
    return [p[0] * mass, np.exp(999.0 + u[1])]


@pytest.mark.parametrize("method", ["rk6vr", "esdirk5"])
def test_values_that_are_not_finite_are_told_with_the_operations_that_made_them(method):
    stepping = ds.Stepping((0.0, 3.0), method, rtol=1e-6)
    told = (
        r"nan in entry \[1\] at t = 0 \(rank 0\): invalid value in star, line \d+ of "
        r"test_callback_guard.py: `return np.array\(.*`, at `2.0 \* u\[1\] / t`\n  expected: finite"
    )
    with pytest.raises(NotFiniteError, match=told):
        ds.solve(ds.ODE(star, 2, ["index"]), [1.0, 0.0], [1.5], stepping)
    both = r"invalid value in mirrored, .*`np.log\(u\[0\] - 1.5\)`; overflow in mirrored, .*`np.exp"
    with pytest.raises(NotFiniteError, match=both):
        ds.solve(ds.ODE(mirrored, 2, ["rate"]), [1.0, 0.0], [1.5], stepping)


def test_a_value_that_no_operation_made_is_told_as_it_is():
    nowhere = ds.ODE(lambda t, u, p: np.nan * u, 1, ["rate"])
    with pytest.raises(NotFiniteError, match=r"nan in entry \[0\] at t = 0 \(rank 0\)\n"):
        ds.solve(nowhere, [1.0], [1.0], ds.Stepping((0.0, 3.0), "rk6vr", rtol=1e-6))


# ---- exceptions of callbacks ---------------------------------------------------------------------


def test_exception_of_a_callback_gets_name_time_and_rank():
    def faulty(t, u):
        raise KeyError("growth")

    with pytest.raises(KeyError) as raised:
        guarded(faulty, "rhs", PETSc.COMM_SELF)(0.125, None)
    place = ", in faulty, line "
    (note,) = raised.value.__notes__
    assert note.startswith(f"in callback 'rhs' at t = 0.125 (rank {MPI.COMM_WORLD.rank}){place}")
    assert note.endswith('of test_callback_guard.py: `raise KeyError("growth")`')
    with pytest.raises(KeyError) as raised:
        guarded(faulty, "mass", PETSc.COMM_SELF)(np.ones(2), None)
    (note,) = raised.value.__notes__
    assert note.startswith(f"in callback 'mass' (rank {MPI.COMM_WORLD.rank}){place}")


def writes(t, u, p):
    u[0] = 1.0
    return u


def writes_in_place(t, u, p):
    u *= 2.0
    return u


def writes_by_out(t, u, p):
    return np.negative(u, out=u)


def sorts(t, u, p):
    u.sort()
    return u


def writes_to_a_part(t, u, p):
    speeds = u[1:]
    speeds += 1.0
    return u


def writes_to_parameters(t, state, rates):
    rates[0] = 3.0
    return state


WRITING = {
    "u": [writes, writes_in_place, writes_by_out, sorts],
    "speeds": [writes_to_a_part],
    "rates": [writes_to_parameters],
}


@pytest.mark.parametrize(("name", "rhs"), [(k, rhs) for k in WRITING for rhs in WRITING[k]])
def test_callbacks_that_write_to_their_arguments_are_told_to_copy(name, rhs):
    problem = ds.ODE(rhs, 2, 1)
    message = (
        rf"(?s){name} is read-only, and callback 'rhs' writes to it at t = 0 .*in {rhs.__name__}, "
        rf"line \d+ of test_callback_guard.py: `.*try: work on {name}\.copy\(\)"
    )
    with pytest.raises(ds.InputError, match=message):
        ds.solve(problem, [1.0, 2.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))


def multiplies(t, u, p):
    forces = 2.0 * u
    return forces + np.dot(u, np.ones(3)) + 1.0


def test_the_line_and_the_function_of_numpy_that_failed_are_told():
    with pytest.raises(ValueError, match="not aligned") as raised:
        ds.solve(
            ds.ODE(multiplies, 2, 1), [1.0, 2.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
        )
    (note,) = raised.value.__notes__
    assert "in multiplies, line " in note
    assert note.endswith(
        "`return forces + np.dot(u, np.ones(3)) + 1.0`, at `np.dot(u, np.ones(3))`"
    )


def too_many(t, u, p):
    values = [u[0]]

    def helper():
        return values

    return np.concatenate([u, helper()])


@pytest.mark.parametrize(
    ("rhs", "told"),
    [
        (too_many, r"returned shape \(3,\) .*: `return np.concatenate\(\[u, helper\(\)\]\)`"),
        (lambda t, u, p: 1j * u, r"returned complex128 values .* in <lambda>, line .*1j \* u"),
        (lambda t, u, p: [u, 1.0], r"returned no array .* in <lambda>, line .*\[u, 1.0\]"),
    ],
)
def test_the_line_that_returns_what_is_wrong_is_told(rhs, told):
    other = ds.ODE(lambda t, u, p: -u, 2, 1)  # of the same name, made later, called before
    stepping = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)
    problem = ds.ODE(rhs, 2, 1)
    ds.solve(other, [1.0, 2.0], [1.0], stepping)
    with pytest.raises(ds.InputError, match=told):
        ds.solve(problem, [1.0, 2.0], [1.0], stepping)


def test_guarded_callback_returns_what_the_callback_returns():
    assert guarded(lambda t, u: t + u, "rhs", PETSc.COMM_SELF)(1.0, 2.0) == 3.0


class Faulty:
    """Context of a matrix whose product fails."""

    def __init__(self, error):
        self.error = error

    def mult(self, matrix, x, y):
        raise self.error


def faulty_matrix(error):
    matrix = PETSc.Mat().createPython([2, 2], Faulty(error), comm=PETSc.COMM_SELF)
    matrix.setUp()
    return matrix


def test_exception_that_went_through_petsc_comes_out_as_it_was_raised():
    """However often: a product inside a linear solver inside Newton's iteration."""
    error = ZeroDivisionError("in mult")
    matrix = faulty_matrix(error)
    x, y = matrix.createVecs()
    with pytest.raises(PETSc.Error):
        matrix.mult(x, y)

    @unwrapped
    def once():
        matrix.mult(x, y)

    @unwrapped
    def nested():
        snes = PETSc.SNES().create(comm=PETSc.COMM_SELF)
        snes.setFunction(lambda _snes, x, f: matrix.mult(x, f), y)
        snes.solve(None, x)

    for act in (once, nested):
        with pytest.raises(ZeroDivisionError, match="in mult") as raised:
            act()
        assert raised.value is error


def test_petscs_own_errors_stay_what_they_are():
    @unwrapped
    def broken():
        PETSc.Vec().createSeq(2).axpy(1.0, PETSc.Vec().createSeq(3))

    with pytest.raises(PETSc.Error, match="error code 75"):
        broken()
    assert broken.__name__ == "broken"


@unwrapped
def at_work(work):
    return work()


def in_another_thread(work):
    with ThreadPoolExecutor(1) as other:
        return other.submit(work).result()


def test_one_thread_at_a_time_calls_petsc():
    """One after the other they may; and what a callback of the same thread begins is part of it."""
    assert in_another_thread(lambda: at_work(lambda: 1)) == 1
    assert at_work(lambda: at_work(lambda: 2)) == 2
    message = r"at_work while another thread runs or sweeps\n  expected: one thread at a time"
    with pytest.raises(ds.UnsupportedError, match=message):
        at_work(lambda: in_another_thread(lambda: at_work(lambda: 3)))
    assert in_another_thread(lambda: at_work(lambda: 4)) == 4


# ---- ranks that do not agree ---------------------------------------------------------------------


def grid_problem(comm, **keywords):
    """Return a decay on several ranks, PETSc style, and its start."""
    state = PETSc.Vec().createMPI(6, comm=comm)
    state.set(1.0)

    def rhs(t, u, p, out):
        u.copy(out)
        out.scale(-p[0])

    def times(t, u, p, du, out):
        du.copy(out)
        out.scale(-p[0])

    keywords["jacobian"] = Products(times, times)
    return ds.ODE(rhs, state=state, parameters=["k"], **keywords), state


def run_of(problem, u0, p=(1.0,)):
    return ds.solve(problem, u0, p, ds.Stepping((0.0, 1.0), "rk4", dt=0.1))


def without_start(problem, u0):
    return run_of(problem, None if problem.comm.rank else u0)


def differing_mode(comm, name):
    plain, _ = grid_problem(comm)
    modes = {"a": plain, "b": plain}
    return ds.hybrid(modes, "a", [ds.Event(0.5, mode=lambda t, u, p: name if comm.rank else "a")])


APART = {
    "a parameter is NaN": (
        lambda comm: run_of(*grid_problem(comm), [np.nan if comm.rank else 1.0]),
        ds.InputError,
        r"p is nan at index \[0\]",
    ),
    "more parameters": (
        lambda comm: run_of(*grid_problem(comm), [1.0] * (1 + (comm.rank > 0))),
        ds.InputError,
        r"p has shape \(2,\)",
    ),
    "no start": (
        lambda comm: without_start(*grid_problem(comm)),
        ds.InputError,
        "u0 is NoneType",
    ),
    "times of an event": (
        lambda comm: run_of(
            *grid_problem(comm, events=[ds.Event(lambda t, u, p: t - 0.3 - 0.2 * comm.rank)])
        ),
        ds.InputError,
        r"'event \"event\" when' returned .* on one rank and -0\.3 on another at t = 0\n",
    ),
    "an event function is NaN": (
        lambda comm: run_of(
            *grid_problem(
                comm,
                events=[ds.Event(lambda t, u, p: np.nan if comm.rank and t > 0.2 else t - 0.5)],
            )
        ),
        ds.SolveError,
        r"'event \"event\" when' returned nan in entry \[\] at t = 0\.3 \(rank [12]\)",
    ),
    "a cost": (
        lambda comm: evaluate(
            run_of(*grid_problem(comm)), ds.Terminal(lambda t, u, p: float(comm.rank > 0))
        ),
        ds.InputError,
        "cost 'terminal' returned 0 on one rank and 1 on another at t = 1\n",
    ),
    "modes": (
        lambda comm: run_of(differing_mode(comm, "b"), grid_problem(comm)[1]),
        ds.InputError,
        "the mode at t = 0.5 is a and b, by rank",
    ),
    "an unknown mode": (
        lambda comm: run_of(differing_mode(comm, "c"), grid_problem(comm)[1]),
        ds.InputError,
        "the mode at t = 0.5 is 'c'\n  expected: one of a, b",
    ),
    "directions": (
        lambda comm: ds.tangent(run_of(*grid_problem(comm)), dp=[1.0 + comm.rank]),
        ds.InputError,
        r"directions is \[\[None, \[1\.0\]\]\] on rank 0 and \[\[None, \[2\.0\]\]\] on rank 1",
    ),
}


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("call", "kind", "message"), APART.values(), ids=APART)
def test_what_is_wrong_or_different_on_one_rank_is_an_error_on_all(comm, call, kind, message):
    """Otherwise the others would wait for ever, or all go on with different numbers."""
    with pytest.raises(kind, match=message):
        call(comm)


@pytest.mark.mpi
def test_values_that_differ_by_rounding_are_the_same(comm):
    cost = ds.Terminal(lambda t, u, p: 0.5 * (1.0 + 1e-14 * comm.rank))
    value = evaluate(run_of(*grid_problem(comm)), cost)
    assert comm.allgather(value) == [value] * comm.size


def test_parameters_by_name_outside_a_traced_model_say_where_they_are():
    decay = ds.trace(lambda t, u, p: -p.rate * u, size=1, parameters=["rate"])
    run = ds.solve(decay, [1.0], [0.5], ds.Stepping((0.0, 1.0), "rk4", dt=0.5))
    with pytest.raises(AttributeError) as caught:
        evaluate(run, ds.Terminal(lambda t, u, p: p.rate * u[0]))
    assert "model.terminal(function)" in caught.value.__notes__[-1]


def test_a_parameter_by_name_in_a_plain_callback_says_what_p_is():
    model = ds.ODE(lambda t, u, p: -p["rate"] * u, 1, ["rate"])
    with pytest.raises(IndexError) as caught:
        ds.solve(model, [1.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    assert any("p is an array here" in note for note in caught.value.__notes__)


def test_an_infinite_second_derivative_says_what_has_none():
    tank = ds.ODE(lambda t, u, p: p[1] * t - p[0] * u**1.5, 1, ["outlet", "inflow"])
    run = ds.solve(tank, [0.0], [1.0, 1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    with pytest.raises(NotFiniteError, match=r"depth\*\*1.5 has a first derivative at 0"):
        ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0]), [1.0], [1.0, 0.0])


def hysteresis(power):
    """A Bouc-Wen oscillator, with the restoring term in a user's spelling."""

    def rhs(t, u, p):
        x, v, z = u
        restored = power(z) * abs(v) * 0.5 + 0.5 * v * abs(z) ** 1.5
        return np.array([v, np.sin(2 * t) - 0.1 * v - p[0] * (0.3 * x + 0.7 * z), v - restored])

    return ds.ODE(rhs, 3, ["stiffness"])


def test_a_slope_that_a_root_hides_is_told_with_the_spelling_that_shows_it():
    stepping, last = ds.Stepping((0.0, 1.0), "rk4", dt=0.05), ds.Terminal(lambda t, u, p: u[0])
    hidden = hysteresis(lambda z: abs(z) ** 0.5 * z)
    run = ds.solve(hidden, [0.0, 0.0, 0.0], [4.0], stepping)
    with pytest.raises(NotFiniteError, match=r"np\.sign\(z\) \* np\.abs\(z\)\*\*1\.5"):
        ds.adjoint(run, last)
    shown = hysteresis(lambda z: np.sign(z) * np.abs(z) ** 1.5)
    gradient = ds.adjoint(ds.solve(shown, [0.0, 0.0, 0.0], [4.0], stepping), last)
    ahead, behind = (
        ds.solve(hidden, [0.0, 0.0, 0.0], [4.0 + step], stepping).u[-1][0] for step in (1e-5, -1e-5)
    )
    assert np.isclose(gradient.p[0], (ahead - behind) / 2e-5, rtol=1e-8)


@pytest.mark.parametrize("make", [ds.ODE, ds.trace])
@pytest.mark.parametrize("method", ["rk6vr", "esdirk5"])
def test_what_starts_at_a_root_of_zero_is_told_a_start_beside_it_that_is_resolved(make, method):
    """A tank, h' = q - k sqrt(h), whose way to a height is a closed form."""
    tank = make(lambda t, u, p: p[0] - p[1] * np.sqrt(np.abs(u)), 1, 2)
    stepping, height = ds.Stepping((0.0, 3.0), method, rtol=1e-8), ds.Terminal(lambda t, u, p: u[0])

    def gradient(start):
        return ds.adjoint(ds.solve(tank, [start], [1.0, 0.5], stepping), height)

    with pytest.raises(NotFiniteError, match="starts at 0, as in an empty tank, a start at 1e-12"):
        gradient(0.0)
    ours = gradient(1e-12)

    def time(root, p):
        """Return when the height is so much squared."""
        return -2.0 * root / p[1] - 2.0 * p[0] / p[1] ** 2 * np.log(1.0 - p[1] * root / p[0])

    root = np.sqrt(ours.value)
    assert time(root, [1.0, 0.5]) == pytest.approx(3.0, rel=1e-7)
    by_root, *by_p = (
        time(root + 1e-30j * unit[0], np.array([1.0, 0.5]) + 1e-30j * unit[1:]).imag / 1e-30
        for unit in np.eye(3)
    )
    # later in time by dT is lower by as much as h rises in it
    np.testing.assert_allclose(ours.p, -2.0 * root * np.array(by_p) / by_root, rtol=1e-6)
    # and rates at both ends are in the proportion of what is between two ways
    np.testing.assert_allclose(ours.u0, (1.0 - 0.5 * root) / (1.0 - 0.5e-6), rtol=1e-5)
