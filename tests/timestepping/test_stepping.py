"""How to step: what is accepted, and that all that is wrong is said at once."""

import numpy as np
import pytest
from forms import METHODS, NO_ESTIMATE

from daeosens import ODE, InputError, Stepping, solve, trace
from daeosens.errors import OptionError
from daeosens.timestepping.stepping import pinned_times, refuse_reserved

SPAN = (0.0, 2.0)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_accepted_with_fixed_steps(method):
    stepping = Stepping(SPAN, method, dt=0.1)
    assert stepping.resolved_method.name == method
    assert not stepping.adaptive


@pytest.mark.parametrize("keywords", [{"rtol": 1e-3}, {"atol": 1e-3}, {"rtol": 1e-3, "atol": 1e-6}])
@pytest.mark.parametrize("method", METHODS)
def test_tolerances_make_steps_adaptive_where_there_is_an_error_estimate(method, keywords):
    if method in NO_ESTIMATE:
        with pytest.raises(
            InputError, match=f'method = "{method}" has no error estimate'
        ) as raised:
            Stepping(SPAN, method, **keywords)
        assert 'try: dt alone, or "rk3bs", "rk6vr", "cn"' in str(raised.value)
    else:
        assert Stepping(SPAN, method, **keywords).adaptive


def test_first_step_is_dt_or_a_small_part_of_the_span_and_at_most_max_step():
    assert Stepping(SPAN, dt=0.3).first_step == 0.3
    assert Stepping(SPAN, dt=0.3).method == "cn"
    assert Stepping(SPAN, rtol=1e-6).method == Stepping(SPAN, atol=1e-6).method == "auto"
    assert Stepping(SPAN, "rk3bs", rtol=1e-3).first_step == pytest.approx(2e-6)
    assert Stepping(SPAN, "rk3bs", rtol=1e-3).short_step == pytest.approx(2e-3)
    assert Stepping(SPAN, "cn", rtol=1e-3).first_step == pytest.approx(2e-6)
    assert Stepping(SPAN, rtol=1e-3, dt=0.3, max_step=0.1).first_step == 0.1


def test_petscs_bare_names_are_understood():
    assert Stepping(SPAN, "5dp", dt=0.1).resolved_method.name == "rk5dp"


def test_numpy_numbers_and_lists_are_accepted():
    stepping = Stepping([np.float64(0), np.int64(2)], "rk4", dt=np.float32(0.5))
    assert stepping.first_step == 0.5


BAD = [
    ({"t_span": (1.0, 0.0)}, r"t_span = \(1, 0\) is reversed or empty; expected: first < last"),
    ({"t_span": (1.0, 1.0)}, r"t_span = \(1, 1\) is reversed or empty"),
    ({"t_span": (0.0, np.nan)}, r"t_span = \(0\.0, nan\); expected: two finite numbers"),
    ({"t_span": (0.0, np.inf)}, r"t_span = \(0\.0, inf\); expected: two finite numbers"),
    ({"t_span": 3.0}, r"t_span = 3\.0; expected: two finite numbers"),
    ({"t_span": (0.0, 1.0, 2.0)}, r"t_span = \(0\.0, 1\.0, 2\.0\); expected: two finite numbers"),
    ({"t_span": ("a", 1.0)}, r"t_span = \('a', 1\.0\); expected: two finite numbers"),
    ({"dt": 0.0}, r"dt = 0\.0; expected: a positive number"),
    ({"dt": -0.1}, r"dt = -0\.1; expected: a positive number"),
    ({"dt": np.nan}, r"dt = nan; expected: a positive number"),
    ({"dt": "small"}, r"dt = 'small'; expected: a positive number"),
    ({"dt": True}, r"dt = True; expected: a positive number"),
    ({"dt": 2.5}, r"dt = 2\.5 is larger than the span 2; expected: dt <= span"),
    ({"dt": None}, r"dt is missing; expected: dt, or rtol and atol for adaptive steps"),
    ({"rtol": 0.0}, r"rtol = 0\.0; expected: a positive number"),
    ({"rtol": -1e-3}, r"rtol = -0\.001; expected: a positive number"),
    ({"atol": np.inf}, r"atol = inf; expected: a positive number"),
    ({"rtol": 1e-3, "max_step": -1}, r"max_step = -1; expected: a positive number"),
    ({"max_step": 0.1}, r"max_step = 0\.1 without rtol or atol; expected: adaptive .*; try: dt"),
    ({"max_steps": 0}, r"max_steps = 0; expected: at least 1"),
    ({"max_steps": 1.5}, r"max_steps = 1\.5; expected: an integer"),
    ({"max_steps": True}, r"max_steps = True; expected: an integer"),
    ({"method": "beular"}, r'method = "beular" is unknown; expected: rk1fe, .*; try: "beuler"'),
    ({"method": "rk5pd"}, r'method = "rk5pd" is unknown(.|\n)*try: "rk5dp"'),
    ({"method": "theta:1.5"}, r'method = "theta:1\.5"; expected: theta in \(0, 1\]'),
    ({"options": {"snes_rtl": 1e-3}}, r"snes_rtl(.|\n)*snes_rtol"),
    ({"options": {"-snes_rtol": 1e-3}}, r"-snes_rtol(.|\n)*dash"),
]


RESERVED = {
    "ts_init_time": "t_span=",
    "ts_exact_final_time": "t_span=",
    "ts_eval_times": "t_eval=",
    "TS_Time_Span": "t_eval=",
    "ts_dt": "dt=",
}


@pytest.mark.parametrize(("name", "field"), RESERVED.items())
def test_options_in_whose_place_a_field_stands_are_refused(name, field):
    message = rf"options: {name} would contradict the Stepping; expected: .*; try: {field}"
    with pytest.raises(InputError, match=message):
        Stepping(SPAN, dt=0.1, options={name: 1.0})
    with pytest.raises(OptionError, match=rf"command line: {name} would(.|\n)*try: {field}"):
        refuse_reserved(["ts_monitor", name], "command line")


@pytest.mark.parametrize(("keywords", "message"), BAD, ids=[str(keywords) for keywords, _ in BAD])
def test_bad_input_is_named(keywords, message):
    with pytest.raises(InputError, match=message):
        Stepping(**{"t_span": SPAN, "dt": 0.1, **keywords})


def test_everything_that_is_wrong_is_said_at_once():
    with pytest.raises(InputError) as raised:
        Stepping((3.0, 1.0), "rk9", dt=-1.0, rtol=-1.0, max_step=0.0, max_steps=0)
    text = str(raised.value)
    assert text.startswith("Stepping: 6 problems")
    for name in ("t_span", "method", "dt", "rtol", "max_step", "max_steps"):
        assert f"  - {name} = " in text


def test_pinned_times_are_returned_as_given():
    np.testing.assert_array_equal(
        pinned_times(Stepping(SPAN, dt=0.1), [0.0, 0.5, 2.0]), [0, 0.5, 2]
    )
    assert pinned_times(Stepping(SPAN, dt=0.1), ()).shape == (0,)


def test_times_on_a_log_scale_are_apart_and_rounding_is_not():
    """The same distance from 0 is one of times, or rounding of larger ones, as neighbours say."""
    stepping = Stepping((0.0, 1e4), "rk4", dt=1.0)
    for times in ([1e-13, 2e-13], [1e-13, 2e-13, 1e-9, 1.0, 1e4], np.logspace(-14, 4, 40)):
        assert pinned_times(stepping, times).tolist() == [*times]
    noise = 0.1 * 3 - 0.3
    assert pinned_times(stepping, [noise, 0.1, 0.2]).tolist() == [0.0, 0.1, 0.2]
    assert pinned_times(stepping, [-noise, 0.1, 0.2]).tolist() == [0.0, 0.1, 0.2]
    around = Stepping((-1e4, 1e4), "rk4", dt=1.0)
    assert pinned_times(around, [-0.1, noise, 0.1], [0.0]).tolist() == [-0.1, 0.0, 0.1]
    assert pinned_times(around, [1e-13, 2e-13], [0.0]).tolist() == [0.0, 1e-13, 2e-13]
    backwards = Stepping((-1e4, 0.0), "rk4", dt=1.0)
    assert pinned_times(backwards, [-2e-13, -1e-13]).tolist() == [-2e-13, -1e-13]
    assert pinned_times(backwards, [-0.1, -noise]).tolist() == [-0.1, 0.0]
    assert pinned_times(stepping, [], [noise, 0.1]).tolist() == [0.1]


def test_sums_of_steps_from_either_end_hit_the_other_and_breakpoints():
    """-T + k h errs by the rounding of T, however near to 0 it comes."""
    for k in range(1, 138):
        times = -0.1 * k + 0.1 * np.arange(1, k + 1)
        instants = pinned_times(Stepping((-0.1 * k, 0.0), "rk4", dt=0.1), times)
        assert instants.size == k
        assert instants[-1] == 0.0
    for k in range(2, 100):
        times = -0.1 * k + 0.1 * np.arange(1, 2 * k)
        instants = pinned_times(Stepping((-0.1 * k, 0.1 * k), "rk4", dt=0.1), times, [0.0])
        assert instants.size == 2 * k - 1
        assert 0.0 in instants
    assert pinned_times(Stepping((0.0, 10.0), "rk4", dt=1.0), [-1e-18, 1e-3]).tolist() == [
        0.0,
        1e-3,
    ]


def test_times_at_an_end_of_the_span_up_to_rounding_are_that_end():
    ends = Stepping((0.1, 0.3), "rk4", dt=0.1)
    after, before = 0.1 * 3, 0.1 * (1 - 2e-16)
    assert after > 0.3
    assert before < 0.1
    assert pinned_times(ends, [before, 0.2, after]).tolist() == [0.1, 0.2, 0.3]
    assert pinned_times(ends, [0.3, after]).tolist() == [0.3]
    assert pinned_times(ends, (), [0.1, 0.2, after]).tolist() == [0.2]
    with pytest.raises(
        InputError, match=r"0\.300000001 lies outside the time span\n.*in \[0\.1, 0\.3\]"
    ):
        pinned_times(ends, [0.3 + 1e-9])


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0.5, 0.3], r"t_eval decreases: 0\.5 is followed by 0\.3\n  expected: times in order"),
        ([-0.1, 0.5], r"time -0\.1 lies outside the time span\n  expected: times in \[0, 2\]"),
        ([0.5, 2.1], r"time 2\.1 lies outside the time span(.|\n)*try: a longer t_span"),
        ([[0.5, 1.0]], r"t_eval has shape \(1, 2\)\n  expected: shape \(K,\)"),
        (0.5, r"t_eval has shape \(\)\n  expected: shape \(K,\)"),
        ([0.5, np.nan], r"t_eval is nan at index \[1\]"),
        (["soon"], r"t_eval is not an array of real numbers"),
    ],
)
def test_bad_pinned_times_are_named(times, message):
    with pytest.raises(InputError, match=message):
        pinned_times(Stepping(SPAN, dt=0.1), times)


@pytest.mark.parametrize("name", ["ts_init_time", "ts_exact_final_time", "ts_dt", "ts_eval_times"])
def test_options_that_would_contradict_the_times_are_refused(name):
    with pytest.raises(InputError, match=f"options: {name} would contradict the Stepping"):
        Stepping((0.0, 1.0), "rk4", dt=0.1, options={name: 0.2})


def test_options_and_method_of_a_wrong_type_are_named():
    with pytest.raises(InputError, match=r"method = 4; expected: a name(.|\n)*options = \[1\]"):
        Stepping((0.0, 1.0), 4, dt=0.1, options=[1])


def test_time_span_may_be_an_array():
    assert Stepping(np.array([0.0, 1.0]), "rk4", dt=0.1).t_span == (0.0, 1.0)


def test_options_are_those_that_were_given():
    options = {"snes_rtol": 1e-9}
    stepping = Stepping((0.0, 1.0), "cn", dt=0.1, options=options)
    options["snes_rtol"] = 1.0
    assert stepping.options == {"snes_rtol": 1e-9}


def test_times_of_the_stepping_are_hit_in_every_run():
    stepping = Stepping((0.0, 1.0), "rk4", dt=1.0, t_eval=[0.25, 0.5])
    run = solve(ODE(lambda t, u, p: -u, size=1), [1.0], None, stepping, [0.125])
    assert run.times.tolist() == [0.0, 0.125, 0.25, 0.5, 1.0]


def test_times_of_the_stepping_that_rounding_moved_are_those_that_others_want():
    stepping = Stepping((0.0, 1.0), "rk4", dt=1.0, t_eval=[0.15, 0.1 * 3, 0.6])
    assert pinned_times(stepping, [0.3]).tolist() == [0.15, 0.3, 0.6]
    assert pinned_times(stepping, [], [0.3]).tolist() == [0.15, 0.3, 0.6]


@pytest.mark.parametrize(("t_eval", "told"), [([0.5, 0.2], "decreases"), ([2.0], "outside")])
def test_times_of_the_stepping_are_checked(t_eval, told):
    with pytest.raises(InputError, match=told):
        Stepping((0.0, 1.0), "rk4", dt=0.1, t_eval=t_eval)


def test_none_stands_for_no_options_and_no_times():
    assert Stepping((0.0, 1.0), "rk4", dt=0.1, options=None, t_eval=None).options == {}
    assert pinned_times(Stepping((0.0, 1.0), "rk4", dt=0.1), None).size == 0


@pytest.mark.parametrize("span", [(0.0, 1.0), (-3.0, 1000.0), (5.0, 5.001)])
def test_sums_of_many_steps_that_pass_an_end_mean_it(span):
    first, last = span
    stepping = Stepping(span, "rk4", dt=(last - first) / 10.0)
    beside = 5e-11 * (last - first)
    times = pinned_times(stepping, [first - beside, 0.5 * (first + last), last + beside])
    assert times[[0, -1]].tolist() == [first, last]
    with pytest.raises(InputError, match="lies outside the time span"):
        pinned_times(stepping, [last + 1e-8 * (last - first)])


def test_the_absolute_tolerance_follows_the_relative_one():
    def tolerances(**value):
        return Stepping((0.0, 1.0), "rk6vr", **value).tolerances

    assert tolerances(rtol=1e-4) == (1e-4, 1e-9)
    assert tolerances(rtol=1e-10) == (1e-10, 1e-13)
    assert tolerances(atol=1e-5) == (1e-6, 1e-5)
    assert tolerances(rtol=1e-10, atol=1e-6) == (1e-10, 1e-6)


def test_components_near_zero_gain_from_a_smaller_rtol():
    def rober(t, u, p):
        slow, fast, pairs = 0.04 * u[0], 1e4 * u[1] * u[2], 3e7 * u[1] ** 2
        return np.array([-slow + fast, slow - fast - pairs, pairs])

    problem = ODE(rober, size=3)
    small = solve(problem, [1.0, 0.0, 0.0], None, Stepping((0.0, 40.0), "esdirk5", rtol=1e-10))
    # Hairer and Wanner, Solving ODEs II: the Robertson problem at t = 40
    assert small.final[1] == pytest.approx(9.18553476e-6, rel=1e-8)


def test_whole_numbers_as_times_are_times():
    """They would be arrays of whole numbers, which compiled functions do not read."""
    model = trace(lambda t, u, p: -p[0] * u, 1, ["k"])
    run = solve(model, [1.0], [1.0], Stepping((0, 1), rtol=1e-8))
    assert run.u[-1, 0] == pytest.approx(np.exp(-1.0), rel=1e-7)
