"""The log of a run through events: what each step was, and how its size follows their times."""

import numpy as np
import pytest

from daeosens import ODE, Event, SolveError, Stepping, Terminal, adjoint, solve

STEPPING = Stepping((0.0, 1.0), "rk4", dt=0.1)


def pendulum(t, u, p):
    return np.array([u[1], -np.sin(u[0]) / p[0]])


def falling(*events, p=("height",)):
    """Return u' = -1 with events."""
    return ODE(lambda t, u, p: -1.0 + 0.0 * u, 1, list(p), events=events)


LANDING = Event(lambda t, u, p: u[0] - p[0], lambda t, u, p: u + 2.0, direction=-1, name="landing")


def landed(height, stepping=STEPPING, t_eval=()):
    """Fall from 1: the event is at t = 1 - height."""
    return solve(falling(LANDING), [1.0], [height], stepping, t_eval=t_eval)


# ---- what the steps were -------------------------------------------------------------------------


def test_an_event_cuts_its_step_and_is_one_of_size_zero():
    run = landed(0.47)
    sizes = [0.1] * 5 + [0.03, 0.0, 0.07] + [0.1] * 4
    np.testing.assert_allclose(run.step_sizes, sizes, rtol=0, atol=1e-14)
    np.testing.assert_allclose(run.times, np.append(0.0, np.cumsum(sizes)), rtol=0, atol=1e-14)
    (crossing,) = run.crossings
    assert (crossing.name, crossing.step) == ("landing", 6)
    for ours, n in ((crossing.before, 6), (crossing.after, 7)):
        assert ours.array == run.states[n].array
        with pytest.raises(ValueError, match="read-only"):
            ours.array[0] = 1.0
    np.testing.assert_allclose(run.u[:, 0], 1.0 - run.times + 2.0 * (np.arange(13) > 6), rtol=1e-14)
    assert [record.ends_at is not None for record in run.records] == [k == 5 for k in range(12)]
    assert [record.jump is not None for record in run.records] == [k == 6 for k in range(12)]
    assert [record.plain for record in run.records] == [k not in (5, 6, 7) for k in range(12)]


def slopes_by_differences(t_eval=(), stepping=STEPPING, height=0.47, eps=1e-6):
    """Return dh/dtau of all steps behind the event at tau = 1 - height."""
    runs = [landed(height - sign * eps, stepping, t_eval) for sign in (1, -1)]
    behind = [run.step_sizes[run.crossings[0].step + 1 :] for run in runs]
    return (behind[0] - behind[1]) / (2.0 * eps)


@pytest.mark.parametrize("t_eval", [(), (0.56,), (0.531, 0.57, 0.93)])
def test_sizes_follow_the_time_of_the_event_by_their_slopes(t_eval):
    """Each step keeps its size, or its end: the time moves by 1 + slope of what it did before."""
    run, moved = landed(0.47, t_eval=t_eval), 1.0
    behind = run.records[run.crossings[0].step + 1 :]
    values = []
    for record in behind:
        assert record.timed == (moved != 0.0)
        values.append(record.slope * moved)
        moved *= 1.0 + record.slope
    assert moved == 0.0  # the times of all later steps are fixed again
    np.testing.assert_allclose(values, slopes_by_differences(t_eval), rtol=0, atol=1e-7)


def test_a_step_halfway_to_a_fixed_time_follows_by_half():
    adaptive = Stepping((0.0, 1.0), "rk5dp", rtol=1e-3, atol=1e-3, dt=0.1, max_step=0.1)
    run = landed(0.47, adaptive, (0.68,))
    behind = run.records[run.crossings[0].step + 1 :]
    assert [item.slope for item in behind[:2]] == [-0.5, -1.0]


def test_time_of_a_run_whose_events_are_at_given_times_does_not_move():
    jump = Event(0.33, lambda t, u, p: u + p[0], name="jump")
    run = solve(falling(jump), [1.0], [0.5], STEPPING)
    assert len(run.crossings) == 1
    assert not any(record.timed or record.slope or record.ends_at for record in run.records)


def test_parameters_and_modes_are_those_of_their_steps():
    double = {"height": lambda t, u, p: 2.0 * p[0]}
    change = Event(0.4, changes=double, name="change")
    run = solve(falling(change), [1.0], [0.25], STEPPING)
    jump = run.crossings[0].step
    assert [float(record.p[0]) for record in run.records] == [
        0.25 if k <= jump else 0.5 for k in range(run.n_steps)
    ]
    assert [record.changed for record in run.records] == [k > jump for k in range(run.n_steps)]
    assert float(run.crossings[0].p[0]) == 0.5
    assert float(run.p[0]) == 0.25


def test_two_events_at_one_place_are_joined_by_a_step_of_size_zero():
    other = Event(lambda t, u, p: 3.0 * (u[0] - p[0]), direction=-1, name="other")
    quiet = Event(lambda t, u, p: u[0] - p[0], direction=-1, name="quiet")
    run = solve(falling(quiet, other), [1.0], [0.47], STEPPING)
    assert [crossing.name for crossing in run.crossings] == ["quiet", "other"]
    first, second = (crossing.step for crossing in run.crossings)
    assert second == first + 2
    between = run.records[first + 1]
    assert between.ends_at is not None
    assert between.ends_at.name == "other"
    np.testing.assert_array_equal(run.step_sizes[first : second + 1], 0.0)


# ---- what pieces left ----------------------------------------------------------------------------


def test_effort_is_that_of_all_pieces():
    run, plain = landed(0.47), solve(falling(), [1.0], [0.47], STEPPING)
    assert plain.effort.steps == 10
    assert run.effort.steps == 11  # to the end of the one that the event cut, and its rest
    assert run.effort.rejected == 0


def test_kept_stages_belong_to_the_states_of_the_run():
    """Explicit events on the grid: each piece begins with a step of the same size."""
    kicks = [Event(t, lambda t, u, p: 1.1 * u, name="kick") for t in (0.5, 1.0, 1.5, 2.0, 2.5)]
    problem = ODE(pendulum, 2, ["length"], events=kicks)
    arguments = (problem, [1.0, 0.3], [0.7], Stepping((0.0, 3.0), "rk4", dt=0.1))
    kept, plain = solve(*arguments, checkpoint="stages"), solve(*arguments)
    for number, stages in kept.stages.items():
        assert stages[0].handle == kept.stored[number].handle
    assert len(kept.stages) == kept.n_steps - len(kicks)
    cost = Terminal(lambda t, u, p: u[0])
    np.testing.assert_allclose(adjoint(kept, cost).p, adjoint(plain, cost).p, rtol=1e-13)


# ---- words ---------------------------------------------------------------------------------------


def test_tables_of_events_call_states_by_their_names():
    kick = Event(0.5, lambda t, u, p: u + np.eye(len(u))[1], name="kick")

    def table(names):
        problem = ODE(lambda t, u, p: 0.0 * u, names, events=[kick])
        return repr(solve(problem, np.zeros(problem.size), [], STEPPING)).splitlines()[1:]

    heading, row = table(["height", "speed"])
    assert "state before (height, speed)  state after (height, speed)" in heading
    assert row.split()[-4:] == ["0", "0", "0", "1"]
    assert "state before  state after" in table(2)[0]
    heading, row = table(["a", "b", "c", "d", "e"])
    assert heading.endswith("changes")
    assert row.endswith("b 0 -> 1")
    assert "changes" not in table(5)[0]


def test_values_that_are_not_finite_are_told_with_the_name_of_the_state():
    problem = ODE(lambda t, u, p: np.array([1.0, np.inf if t > 0.5 else 0.0]), ["mass", "heat"])
    with pytest.raises(SolveError, match=r'returned inf in entry \[1\] \("heat"\)'):
        solve(problem, [0.0, 0.0], [], STEPPING)


def test_states_before_and_after_events_are_both_kept():
    kicks = [Event(t, lambda t, u, p: 1.1 * u, name="kick") for t in (0.5, 1.0)]
    run = solve(
        ODE(pendulum, 2, ["length"], events=kicks),
        [1.0, 0.3],
        [0.7],
        Stepping((0.0, 1.5), "rk4", dt=0.1),
    )
    assert len(run.stored) == len(run.times) == 18
    before, after = (run.stored[number].array for number in (5, 6))
    np.testing.assert_allclose(after, 1.1 * before, rtol=1e-15)
    np.testing.assert_array_equal(run.u[6], after)
