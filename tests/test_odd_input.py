"""What users pass by mistake, to every public callable: always our errors, never a wrong result."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from odd_calls import CALLS, MADE_FOR_USERS, Worker
from odd_values import ODD
from public_names import public_names

import daeosens as ds

HUGE = 10**400
UNEVEN = [[1.0], [1.0, 2.0]]
TOO_LARGE = "int too large to convert to float"

MOST, MOST_NAMED = 2**31 - 1, 10_000_000


def decay():
    """Exponential decay."""
    return ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])


def last():
    """The last state."""
    return ds.Terminal(lambda t, u, p: u[0])


STEPS = ds.Stepping((0.0, 1.0), "rk4", dt=0.1)


def run():
    """A run of ten steps."""
    return ds.solve(decay(), [1.0], [0.5], STEPS)


def reduced(**bounds):
    """The last state over the rate."""
    rate = ds.Parameter(0.5, **bounds)
    return ds.Reduced(decay(), last(), STEPS, ds.Parameters({"rate": rate}, initial_state=[1.0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ds.Stepping((0.0, HUGE), dt=0.1), rf"t_span = \(0\.0, {HUGE}\)"),
        (lambda: ds.Stepping((0.0, 1.0), dt=HUGE), f"dt = {HUGE}"),
        (lambda: ds.Stepping((0.0, 1.0), rtol=HUGE), f"rtol = {HUGE}"),
        (lambda: ds.solve(decay(), [HUGE], [0.5], STEPS), f"u0 is not .*{TOO_LARGE}"),
        (lambda: ds.solve(decay(), [1.0], HUGE, STEPS), f"p is not .*{TOO_LARGE}"),
        (lambda: ds.solve(decay(), [1.0], [0.5], STEPS, t_eval=[HUGE]), f"t_eval.*{TOO_LARGE}"),
        (lambda: ds.LeastSquares([0.5], [[1.0]], sigma=HUGE), f"sigma is not .*{TOO_LARGE}"),
        (lambda: ds.LeastSquares([0.5], [[HUGE]], sigma=1.0), f"data is not .*{TOO_LARGE}"),
        (lambda: ds.ODE(lambda t, u, p: u, size=HUGE), f"size = {HUGE}"),
        (lambda: ds.ODE(lambda t, u, p: u, size=1, parameters=HUGE), f"parameters = {HUGE}"),
        (lambda: ds.Event(HUGE), f"when = {HUGE}"),
        (lambda: run().at(HUGE), f"t = {HUGE}\n"),
        (lambda: run().at(np.inf), r"t = inf\n"),
        (lambda: ds.tangent(run(), [HUGE], [1.0]), f"du0 is not .*{TOO_LARGE}"),
        (lambda: ds.tangent(run(), UNEVEN, [1.0]), "du0 is not an array of real numbers"),
        (lambda: ds.tangent(run(), [1.0], UNEVEN), "dp is not an array of real numbers"),
        (lambda: ds.hessian_product(run(), last(), [1.0], [HUGE]), f"dp is not .*{TOO_LARGE}"),
        (lambda: reduced().gradient([HUGE]), f"x is not .*{TOO_LARGE}"),
        (lambda: reduced(upper=HUGE), f'"rate": upper = {HUGE} is larger than any float'),
        (lambda: reduced(lower=-HUGE), f'"rate": lower = -{HUGE} is larger than any float'),
        (lambda: ds.minimize(reduced(), x0=[HUGE]), f"x0 is not .*{TOO_LARGE}"),
        (lambda: ds.taylor(reduced(), [HUGE]), f"x is not .*{TOO_LARGE}"),
    ],
)
def test_numbers_that_no_float_holds_and_uneven_lists_are_named(call, message):
    with pytest.raises(ds.InputError, match=message):
        call()


DATE, SPAN = np.datetime64("2020-01-01"), np.timedelta64(1, "s")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ds.Stepping((0.0, 1.0), dt=SPAN), r"dt = np\.timedelta64"),
        (lambda: ds.Stepping((0.0, 1.0), dt=0.1, max_steps=SPAN), "max_steps = .*an integer"),
        (lambda: run().at([DATE]), r"t = np.datetime64.*\n  expected: a time"),
        (lambda: ds.LeastSquares([DATE], [[1.0]]), "dates or spans.*\n.*\n.*np.timedelta64"),
        (lambda: reduced(scale=SPAN), "scale = np.timedelta64"),
        (
            lambda: ds.consistent_state(decay(), [1.0], [0.5], DATE),
            "t = np.datetime64",
        ),
    ],
)
def test_dates_and_spans_of_time_are_no_numbers(call, message):
    """NumPy would take the days since 1970."""
    with pytest.raises(ds.InputError, match=message):
        call()


def test_counts_end_where_petsc_ends():
    for too_many in (MOST + 1, 2**70):
        with pytest.raises(
            ds.InputError, match=f"max_steps = {too_many}; expected: at most {MOST}"
        ):
            ds.Stepping((0.0, 1.0), dt=0.1, max_steps=too_many)
        with pytest.raises(ds.InputError, match=f"size = {too_many}\n.*at most {MOST} unknowns"):
            ds.ODE(lambda t, u, p: u, size=too_many)
        with pytest.raises(ds.InputError, match=f"parameters = {too_many}\n.*at most {MOST_NAMED}"):
            ds.ODE(lambda t, u, p: u, size=1, parameters=too_many)
    most = ds.Stepping((0.0, 1.0), "rk4", dt=0.1, max_steps=MOST)
    assert ds.solve(decay(), [1.0], [0.5], most).n_steps == 10


def test_longdouble_is_taken_as_float():
    """Values, states, parameters and costs in extended precision give the numbers of floats."""
    unit = np.longdouble(1)
    extended = ds.ODE(lambda t, u, p: -p[0] * unit * u, size=1, parameters=["rate"])
    cost = ds.Terminal(lambda t, u, p: unit * u[0])
    start = np.array([1.0], dtype=np.longdouble)
    for method in ("rk4", "cn"):
        steps = ds.Stepping((0.0, 1.0), method, dt=0.1)
        ours = ds.adjoint(ds.solve(extended, start, start / 2, steps), cost)
        reference = ds.adjoint(ds.solve(decay(), [1.0], [0.5], steps), last())
        np.testing.assert_allclose(ours.p, reference.p, rtol=1e-14)


# ---- every public callable -----------------------------------------------------------------------

CASES, ALL_CASES = 150, 2000


@st.composite
def calls(draw):
    """A call with one or two odd arguments; of those it may have some are left out."""
    name = draw(st.sampled_from(sorted(CALLS)))
    entry = CALLS[name]
    arguments = [*entry.needed, *entry.optional]
    odd = {}
    if arguments:
        count = draw(st.integers(1, min(2, len(arguments))))
        chosen = draw(st.permutations(arguments))[:count]
        odd = {argument: draw(st.sampled_from(sorted(ODD))) for argument in chosen}
    left_out = [
        argument for argument in entry.optional if argument not in odd and draw(st.booleans())
    ]
    return name, odd, left_out


@pytest.fixture(scope="module")
def worker():
    """A process beside this one."""
    worker = Worker()
    yield worker
    worker.close()


def test_every_public_callable_is_among_the_calls():
    """By its own name, or as that of a class with the names of its methods."""
    known = {name.partition(",")[0] for name in CALLS}
    names = {
        name
        for name, value in public_names().items()
        if callable(value) and not name.endswith(("Error", "Warning"))
    }
    assert names - known == MADE_FOR_USERS & names


@pytest.mark.slow
def test_calls_are_right_without_odd_values(worker):
    for name, entry in CALLS.items():
        for left_out in ([], list(entry.optional)):
            assert worker.attempt(name, {}, left_out)[0] == "fine", (name, left_out)


def test_odd_arguments_are_refused_by_our_errors_or_give_numbers(worker, request):
    """No raw error, no hang, no end of the interpreter, no NaN in silence."""
    whole = request.config.getoption("all")

    @seed(request.config.getoption("sample_seed"))
    @settings(
        max_examples=ALL_CASES if whole else CASES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(calls())
    def test(call):
        kind, text = worker.attempt(*call)
        assert kind in ("fine", "refused", "the user's"), (call, kind, text)

    test()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_odd_value_in_the_place_of_every_argument(worker, name):
    """As above, one argument at a time."""
    entry, wrong = CALLS[name], []
    for argument in (*entry.needed, *entry.optional):
        for value in ODD:
            kind, text = worker.attempt(name, {argument: value}, [])
            if kind not in ("fine", "refused", "the user's"):
                wrong.append((argument, value, kind, text))
    assert not wrong, wrong
